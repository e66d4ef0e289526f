"""An explanation as the pages of suites and tasks show it."""

from typing import Final

from tasks.services.explain import Explanation

MAX_SHOWN: Final = 100  # the nearest runners are the ones to act on


def explanation_context(found: Explanation) -> dict[str, object]:
    return {
        "found": found,
        "verdicts": found.verdicts[:MAX_SHOWN],
        "hidden_count": max(0, len(found.verdicts) - MAX_SHOWN),
    }
