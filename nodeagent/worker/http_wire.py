"""JSON bodies of the worker's HTTP API and their way to and from the worker's own values.

Pure; used by http_comm only. Unknown members are ignored, so newer coordinators may say more.
"""

from uuid import UUID

import msgspec

from mitosis_protocol.durations import parse_nanoseconds
from mitosis_protocol.enums import TaskResultMessage, TaskState
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.specs import TaskSpec
from nodeagent.errors import OfferUnreadable
from nodeagent.worker.comm import (
    Cancel,
    Commit,
    Crash,
    Finish,
    Report,
    Submit,
    TaskOffer,
    TaskRef,
    TaskSnapshot,
    Upload,
)

_NS_PER_S = 1_000_000_000


class UrlAnswer(msgspec.Struct, frozen=True):
    """The answer to a report."""

    url: str | None = None


class OfferedTask(msgspec.Struct, frozen=True):
    """A fetched task, read only as far as its name: what is wrong with the rest can be settled."""

    id: int
    uuid: UUID

    def to_offer(self, body: bytes) -> TaskOffer:
        """Read the whole `body`; raises OfferUnreadable, which names the attempt."""
        try:
            return _to_offer(msgspec.json.decode(body, type=_WholeTask))
        except (msgspec.MsgspecError, InvalidValue) as error:
            raise OfferUnreadable(
                str(error),
                attempt_id=self.id,
                uuid=self.uuid,
                is_resource_trouble=_is_sound_without_resources(body),
            ) from error


class _WholeTask(msgspec.Struct, frozen=True):
    id: int
    uuid: UUID
    timeout: str
    spec: TaskSpec
    upstream_task_uuid: UUID | None = None
    attempt: int | None = None
    live_logs: bool = False


class _BareTask(msgspec.Struct, frozen=True):
    timeout: str
    spec: dict[str, msgspec.Raw]


class _Result(msgspec.Struct, frozen=True):
    exit_status: int
    msg: str | None = None


class _Info(msgspec.Struct, frozen=True):
    state: TaskState
    result: _Result | None = None
    downstream_task_uuid: UUID | None = None


class ReadTask(msgspec.Struct, frozen=True):
    """The part of a task's description that a worker reads."""

    info: _Info

    def to_snapshot(self) -> TaskSnapshot:
        """A message we do not know counts as none: the state still says that it is over."""
        result = self.info.result
        known = {message.value: message for message in TaskResultMessage}
        return TaskSnapshot(
            state=self.info.state,
            msg=known.get(result.msg) if result is not None and result.msg else None,
            is_committed=result is not None,
            downstream_task_uuid=self.info.downstream_task_uuid,
        )


def encode_report(task: TaskRef, report: Report) -> bytes:
    """The request body: unit operations are bare strings, the others one-key objects."""
    return msgspec.json.encode({"id": task.attempt_id, "op": _wire(report)})


def _wire(report: Report) -> object:
    match report:
        case Finish():
            return "Finish"
        case Cancel():
            return "Cancel"
        case Upload():
            return {"Upload": report}
        case Submit():
            return {"Submit": report.request}
        case Commit():
            return {"Commit": {"exit_status": report.exit_status, "msg": report.msg}}
        case Crash():
            raise TypeError("this wire has no crash: commit the status")


def _to_offer(task: _WholeTask) -> TaskOffer:
    return TaskOffer(
        attempt_id=task.id,
        uuid=task.uuid,
        timeout_s=parse_nanoseconds(task.timeout) / _NS_PER_S,
        spec=task.spec,
        upstream_task_uuid=task.upstream_task_uuid,
        attempt=task.attempt,
        live_logs=task.live_logs,
    )


def _is_sound_without_resources(body: bytes) -> bool:
    try:
        task = msgspec.json.decode(body, type=_BareTask)
        parse_nanoseconds(task.timeout)
        task.spec.pop("resources", None)
        msgspec.json.decode(msgspec.json.encode(task.spec), type=TaskSpec)
    except (msgspec.MsgspecError, InvalidValue):
        return False
    return True
