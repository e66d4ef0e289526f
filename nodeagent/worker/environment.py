"""The environment a task's command sees, in two parts. Pure; called by task_run.

Three layers, later wins: what the worker inherited (config already took out its own settings and
secrets), the task's `envs`, and the names Mitosis promises, which a task cannot override.
"""

from collections.abc import Mapping

from nodeagent.marker import HANDED_ON
from nodeagent.worker.comm import TaskOffer
from nodeagent.worker.workspace import Workspace

RESERVED_PREFIXES = ("MITO_", "MITOSIS_")


def without_reserved(env: Mapping[str, str]) -> dict[str, str]:
    """Drop every name that belongs to Mitosis: promises of ours, or the worker's own settings."""
    return {name: value for name, value in env.items() if not name.startswith(RESERVED_PREFIXES)}


def shared_env(inherited: Mapping[str, str], workspace: Workspace) -> dict[str, str]:
    """What all attempts of one worker see alike; made once."""
    return {
        **without_reserved(inherited),
        "MITO_RESULT_DIR": str(workspace.result_dir),
        "MITO_EXEC_DIR": str(workspace.exec_dir),
        "MITO_RESOURCE_DIR": str(workspace.resource_dir),
        "MITO_NEW_TASK": str(workspace.new_task_file),
        **{name: inherited[name] for name in HANDED_ON if name in inherited},
    }


def own_env(offer: TaskOffer) -> dict[str, str]:
    """What one attempt sees beside that. It wins, and reaches no promised name."""
    own = without_reserved(offer.spec.envs)
    own["MITO_TASK_UUID"] = str(offer.uuid)
    if offer.upstream_task_uuid is not None:
        own["MITO_UPSTREAM_TASK_UUID"] = str(offer.upstream_task_uuid)
    if offer.attempt is not None:
        own["MITOSIS_TASK_ATTEMPT"] = str(offer.attempt)
    return own
