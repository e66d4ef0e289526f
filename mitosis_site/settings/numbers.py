"""The policy of this installation: product defaults with the environment's overrides.

Ends the process with one line when the numbers contradict each other.
"""

from mitosis_site.env import ENV
from mitosis_site.policy import Policy, PolicyError, build_policy


def _policy_or_exit() -> Policy:
    try:
        return build_policy(ENV.policy)
    except PolicyError as error:
        raise SystemExit(f"The coordinator cannot start, its policy is wrong: {error}") from None


MITOSIS = _policy_or_exit()
