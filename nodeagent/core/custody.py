"""Taking attempts back: revoked, cancelled, returned, forgotten, or tried once more.

Called by the other parts of the core. An attempt may be on its way from the shelf to a worker
while it is taken back, so what happens is decided when the shelf has answered.
"""

from collections.abc import Iterable

from mitosis_protocol import ipc
from mitosis_protocol.errors import ErrorCode
from nodeagent.core.attempts import Attempt, Farewell, Stage, Wish
from nodeagent.core.model import Model
from nodeagent.effects import ForgetResults, Publish, PutOnShelf, Remove, ReplyIpc
from nodeagent.events import RequestToken, Withdrawn


def try_again(m: Model, attempt: Attempt) -> None:
    """Back to the front of the shelf; or to the coordinator, where nobody would take it."""
    if attempt.item is None:
        # Of an earlier life: the next inventory does not name it, so it is queued again.
        forget(m, attempt, "dropped")
    elif attempt.wish == "revoked":
        forget(m, attempt, "revoked")
    elif attempt.wish == "cancelled" or not m.is_accepting:
        give_back(m, attempt)
    else:
        attempt.op_id = attempt.report = attempt.worker_id = attempt.stop_by = None
        m.ledger.move(attempt, Stage.SHELVED)
        m.out.append(PutOnShelf((attempt.item,), at_front=True))


def give_back(m: Model, attempt: Attempt) -> None:
    """Unstarted, free of charge; sent by nodeagent.core.supply."""
    attempt.op_id = attempt.report = attempt.worker_id = attempt.stop_by = None
    m.ledger.move(attempt, Stage.RETURNING)
    m.supply.to_return[attempt.attempt_id] = None


def recall(m: Model, attempts: Iterable[Attempt]) -> None:
    """Take these off the shelf; what a worker has taken meanwhile stays with it."""
    ids = tuple(one.attempt_id for one in attempts if one.stage is Stage.SHELVED)
    if ids:
        m.out.append(Remove(ids))


def on_withdrawn(m: Model, event: Withdrawn) -> None:
    for attempt_id in event.attempt_ids:
        attempt = m.ledger.attempts.get(attempt_id)
        if attempt is None or attempt.stage is not Stage.SHELVED:
            continue
        if attempt.wish == "revoked":
            forget(m, attempt, "revoked")
        elif attempt.wish is None and m.is_accepting and not m.supply.is_thrifty:
            # The reason for taking it back is gone (a pause that was lifted at once).
            try_again(m, attempt)
        else:
            give_back(m, attempt)


def cancel(m: Model, attempt: Attempt) -> None:
    """Its user does not want it any more: stop it and report."""
    if attempt.wish is not None:
        return
    attempt.wish = "cancelled"
    if attempt.stage is Stage.SHELVED:
        recall(m, (attempt,))
    elif attempt.stage is Stage.HANDED:
        _stop(m, attempt, "cancelled")
    elif attempt.stage is Stage.DECIDING:
        give_back(m, attempt)


def revoke(m: Model, attempt: Attempt) -> None:
    """It is not ours any more: stop it, report nothing."""
    if attempt.wish == "revoked":
        return
    attempt.wish = "revoked"
    if attempt.stage is Stage.SHELVED:
        recall(m, (attempt,))
    elif attempt.stage is Stage.HANDED:
        _stop(m, attempt, "revoked")
    elif attempt.stage is not Stage.STORING:
        forget(m, attempt, "revoked")


def stop_if_unwanted(m: Model, attempt: Attempt) -> None:
    """A worker has just taken it although it was being taken back."""
    if attempt.wish is not None:
        _stop(m, attempt, attempt.wish)


def forget(m: Model, attempt: Attempt, why: Farewell) -> None:
    """The last thing that happens to an attempt, and it happens once."""
    attempt_id, reports = attempt.attempt_id, m.reports
    refuse_permit(m, attempt_id)
    reports.starts.pop(attempt_id, None)
    m.supply.to_return.pop(attempt_id, None)
    op_id = attempt.op_id
    if op_id is not None and reports.lines.pop(op_id, None) is not None:
        reports.queue.pop(op_id, None)
        reports.later.pop(op_id, None)
        m.out.append(ForgetResults((op_id,)))
    let_go(m, attempt)
    m.ledger.drop(attempt, why)


def let_go(m: Model, attempt: Attempt) -> None:
    """Its worker has it no more, and goes on with what it was given ahead."""
    slot = None if attempt.worker_id is None else m.slots.get(attempt.worker_id)
    if slot is None:
        return
    if slot.ahead is attempt:
        slot.ahead = None
    elif slot.attempt is attempt:
        slot.attempt, slot.ahead = slot.ahead, None
        if slot.attempt is not None:
            _note_start(m, slot.attempt)


def _note_start(m: Model, attempt: Attempt) -> None:
    """It comes from a busy shelf: its result will mostly spare the word, and bring the flush."""
    item = attempt.item
    if attempt.wish is None and item is not None and not item.needs_permit:
        m.reports.starts[attempt.attempt_id] = m.now + m.settings.busy_flush_s


def refuse_permit(m: Model, attempt_id: int) -> None:
    """Whoever waits for leave to start hears that the attempt is gone."""
    token = m.reports.permits.pop(attempt_id, None)
    if token is not None:
        m.reports.to_permit.pop(attempt_id, None)
        refuse_gone(m, token)


def refuse_gone(m: Model, token: RequestToken) -> None:
    answer = ipc.Refused(
        request_id=token.request_id,
        code=ErrorCode.TASK_STALE_ATTEMPT,
        message="this attempt is not yours (any more)",
        is_gone=True,
    )
    m.out.append(ReplyIpc(token, answer))


def refuse_for_now(m: Model, token: RequestToken, message: str) -> None:
    answer = ipc.Refused(
        request_id=token.request_id,
        code=ErrorCode.DEPENDENCY_UNAVAILABLE,
        message=message,
        is_retryable=True,
    )
    m.out.append(ReplyIpc(token, answer))


def _stop(m: Model, attempt: Attempt, why: Wish) -> None:
    attempt.stop_by = m.now + m.settings.stop_s
    m.reports.starts.pop(attempt.attempt_id, None)
    if why == "revoked":
        refuse_permit(m, attempt.attempt_id)
    else:
        token = m.reports.permits.pop(attempt.attempt_id, None)
        if token is not None:
            m.reports.to_permit.pop(attempt.attempt_id, None)
            answer = ipc.StartReply(request_id=token.request_id, may_run=False)
            m.out.append(ReplyIpc(token, answer))
    m.out.append(Publish(ipc.CancelTask(attempt_id=attempt.attempt_id, why=why)))
