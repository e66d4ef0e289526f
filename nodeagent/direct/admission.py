"""Whether a dispatched command may start here: the answer a worker owes before anything runs.

Pure; called by machine. A refusal is an `error` about the dispatch: the scheduler gives the task to
somebody else (E.DISPATCH.UNAVAILABLE, E.CMD.CONCURRENCY_VIOLATION) or gives up on this worker for
it (E.CMD.UNKNOWN).
"""

from collections.abc import Collection, Mapping

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import Dispatch, Error
from nodeagent.direct.events import Resources, Traits


def refusal(
    dispatch: Dispatch,
    *,
    traits: Traits,
    held: Mapping[int, Dispatch],
    drains: Collection[str],
    resources: Resources,
) -> Error | None:
    """Why it may not, or None."""
    if drains:
        return _error(
            dispatch, ControlCode.DISPATCH_UNAVAILABLE, f"draining: {', '.join(sorted(drains))}"
        )
    if dispatch.node_type not in traits.node_types:
        return _error(dispatch, ControlCode.CMD_UNKNOWN, f"no handler for {dispatch.node_type}")
    if len(held) >= traits.max_parallel:
        return _error(
            dispatch, ControlCode.CMD_CONCURRENCY_VIOLATION, f"{len(held)} are running already"
        )
    key = dispatch.concurrency_key
    if key is not None and any(other.concurrency_key == key for other in held.values()):
        return _error(dispatch, ControlCode.CMD_CONCURRENCY_VIOLATION, f"key {key} is running")
    return _missing_resource(dispatch, traits, resources)


def _missing_resource(dispatch: Dispatch, traits: Traits, resources: Resources) -> Error | None:
    for wanted in dispatch.resource_refs:
        if str(wanted.worker_id) != traits.worker_id:
            text = f"resource {wanted.resource_id} is on another worker"
            return _error(dispatch, ControlCode.CMD_UNKNOWN, text)
        if wanted.resource_id not in resources:
            text = f"resource {wanted.resource_id} is not here any more"
            return _error(dispatch, ControlCode.CMD_UNKNOWN, text)
    return None


def _error(dispatch: Dispatch, code: ControlCode, message: str) -> Error:
    return Error(code=code, message=message, task_id=dispatch.task_id)
