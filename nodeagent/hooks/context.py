"""What a hook is told about its suite: the MITOSIS_ variables and its whole environment. Pure.

Three layers, later wins: what the agent hands on, the hook's own `envs`, and what Mitosis promises,
which a hook cannot override. Used by runner; the context is also kept in the cleanup debt.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from mitosis_protocol.specs import EnvHookSpec
from nodeagent.marker import MARKER, SUITE_DIR
from nodeagent.worker.environment import without_reserved

Phase: TypeAlias = Literal["preparation", "cleanup"]

# The names of the agent's own user mean nothing to the user a hook runs as.
_OF_THE_AGENT = ("USER", "LOGNAME", "MAIL", "XDG_RUNTIME_DIR")


class HookContext(msgspec.Struct, frozen=True, kw_only=True):
    """One hook of one engagement."""

    phase: Phase
    suite_uuid: UUID
    suite_name: str
    group_name: str
    worker_count: int
    manager_uuid: UUID
    assignment_id: int

    def variables(self) -> dict[str, str]:
        """The names the RFC promises."""
        return {
            "MITOSIS_TASK_SUITE_UUID": str(self.suite_uuid),
            # Names come from users; the kernel takes no NUL and the coordinator lets none through.
            "MITOSIS_TASK_SUITE_NAME": self.suite_name,
            "MITOSIS_GROUP_NAME": self.group_name,
            "MITOSIS_WORKER_COUNT": str(self.worker_count),
            "MITOSIS_NODE_MANAGER_ID": str(self.manager_uuid),
        }


class Surroundings(msgspec.Struct, frozen=True, kw_only=True):
    """What the host adds to a hook's environment."""

    inherited: Mapping[str, str]
    marker: str
    directory: Path  # where the hook runs and its files are
    is_sandboxed: bool


def hook_environment(
    hook: EnvHookSpec, context: HookContext, around: Surroundings
) -> dict[str, str]:
    """The whole environment of one hook."""
    inherited = without_reserved(around.inherited)
    if around.is_sandboxed:
        inherited = {name: value for name, value in inherited.items() if name not in _OF_THE_AGENT}
        inherited["HOME"] = str(around.directory)
    promised = {
        **context.variables(),
        "MITO_RESOURCE_DIR": str(around.directory),
        SUITE_DIR: str(around.directory),
        MARKER: around.marker,
    }
    return {**inherited, **without_reserved(hook.envs), **promised}
