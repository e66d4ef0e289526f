"""Tasks in and unstarted tasks out: claims, the shelf, returns.

A claim keeps its `claim_id` until it is answered, so a lost answer neither loses nor doubles a
task. Called by nodeagent.state after whatever may have made room.
"""

from itertools import islice
from typing import Final

from mitosis_protocol.enums import ReportAnswer
from mitosis_protocol.from_manager import FetchTasks, ReturnTasks
from mitosis_protocol.ipc import WorkItem
from mitosis_protocol.limits import MAX_REPORTS_PER_FRAME, MAX_TASKS_PER_FETCH
from mitosis_protocol.to_manager import OfferedTask, ReportResult, ReturnSurplus, TasksReady
from nodeagent.buffer import wanted
from nodeagent.core.attempts import Attempt, Stage
from nodeagent.core.custody import forget, give_back, recall
from nodeagent.core.model import FETCH_BURST, FETCHES_PER_S, Claim, Engagement, Model
from nodeagent.core.requests import Fetching, Returning
from nodeagent.effects import PutOnShelf, SendFrame, Withdraw

MAX_CLAIMS: Final = 2  # the second is asked while the first is under way


def advance(m: Model) -> None:
    """Ask for what fits, return what does not."""
    if not m.session.is_welcome:
        return
    supply = m.supply
    if supply.to_return and m.now >= supply.return_at:
        _send_returns(m)
    if supply.claims:
        _repeat(m)
    engaged = m.engagement
    if (
        engaged is None
        or not engaged.is_confirmed
        or m.ready_count == 0
        or len(supply.claims) >= MAX_CLAIMS
        or m.now < supply.dry_until
    ):
        return
    want = wanted(
        waiting=m.ledger.shelved_count + supply.asked_count,
        idle=m.parked_count,
        prefetch=0 if supply.is_thrifty else engaged.prefetch,
    )
    if want and m.is_accepting and _may_fetch(m):
        _claim(m, engaged, min(want, MAX_TASKS_PER_FETCH))


def on_tasks(m: Model, request_id: int, tasks: list[OfferedTask], *, has_more: bool) -> None:
    """An answer to nobody is dropped: its attempts are not named in the inventory, or the
    repeated claim has brought them.
    """
    purpose = m.requests.open.get(request_id)
    if not isinstance(purpose, Fetching):
        return
    claim = purpose.claim
    _take_in(m, claim, tasks)
    if not has_more:
        del m.requests.open[request_id]
        m.supply.claims.remove(claim)
        if len(claim.received) < claim.want:
            m.supply.dry_until = m.now + m.settings.idle_ask_s
    _recount(m)


def on_fetch_failed(m: Model, purpose: Fetching, *, is_refused: bool, is_retryable: bool) -> None:
    claim = purpose.claim
    claim.is_sent = False
    claim.due_at = m.now + m.settings.retry_s if is_refused else m.now
    if is_refused and not is_retryable:
        _drop(m, claim)
        m.supply.dry_until = m.now + m.settings.retry_s


def on_returned(m: Model, purpose: Returning, results: list[ReportResult]) -> None:
    answers = {result.task_id: result.answer for result in results}
    for attempt_id in purpose.attempt_ids:
        attempt = m.ledger.attempts.get(attempt_id)
        if attempt is None or attempt.stage is not Stage.RETURNING:
            continue
        answer = answers.get(attempt_id, ReportAnswer.RETRY_LATER)
        if answer is ReportAnswer.RETRY_LATER:
            m.supply.to_return[attempt_id] = None
            m.supply.return_at = m.now + m.settings.retry_s
        else:
            forget(m, attempt, "returned")


def on_return_failed(m: Model, purpose: Returning, *, is_refused: bool) -> None:
    for attempt_id in purpose.attempt_ids:
        attempt = m.ledger.attempts.get(attempt_id)
        if attempt is not None and attempt.stage is Stage.RETURNING:
            m.supply.to_return[attempt_id] = None
    if is_refused:
        m.supply.return_at = m.now + m.settings.retry_s


def on_ready(m: Model, message: TasksReady) -> None:
    if m.engagement is not None and m.engagement.suite.uuid == message.suite_uuid:
        m.supply.dry_until = 0.0
        m.supply.is_thrifty = False


def on_surplus(m: Model, message: ReturnSurplus) -> None:
    """Other hosts idle while tasks wait here."""
    engaged = m.engagement
    if engaged is None or engaged.suite.uuid != message.suite_uuid or not m.is_accepting:
        return
    m.supply.is_thrifty = True
    held = m.ledger.in_stage(Stage.SHELVED, Stage.HANDED)
    surplus = len(held) - message.keep
    named = frozenset(message.task_ids)
    # Newest first: the oldest are the next to run here.
    candidates = (
        one for one in reversed(held) if one.stage is Stage.SHELVED and one.attempt_id in named
    )
    recall(m, list(islice(candidates, max(0, surplus))))


def withdraw_all(m: Model) -> None:
    """Whatever nobody has taken goes back."""
    if m.ledger.shelved_count:
        m.out.append(Withdraw(m.ledger.shelved_count))


def drop_claims(m: Model) -> None:
    """The engagement they were for is over; what they bring is returned."""
    for claim in list(m.supply.claims):
        if not claim.is_sent:
            _drop(m, claim)


def _take_in(m: Model, claim: Claim, tasks: list[OfferedTask]) -> None:
    engaged = m.engagement
    is_wanted = (
        m.is_accepting and engaged is not None and engaged.assignment_id == claim.assignment_id
    )
    limits = None if engaged is None else engaged.suite.limits
    items: list[WorkItem] = []
    for task in tasks:
        attempt_id = task.task_id
        if attempt_id in claim.received or attempt_id in m.ledger.attempts:
            continue
        claim.received.add(attempt_id)
        item = WorkItem(
            task=task, limits=task.limits or limits, needs_permit=task.max_failures == 1
        )
        attempt = Attempt(attempt_id, item, Stage.SHELVED, engaged)
        m.ledger.receive(attempt)
        if is_wanted:
            items.append(item)
        else:
            give_back(m, attempt)
    if items:
        m.out.append(PutOnShelf(tuple(items)))


def _claim(m: Model, engaged: Engagement, want: int) -> None:
    claim = Claim(m.draw_id(), want, engaged.assignment_id)
    m.supply.claims.append(claim)
    _recount(m)
    _send_claim(m, claim)


def _send_claim(m: Model, claim: Claim) -> None:
    claim.is_sent = True
    m.supply.budget -= 1
    message = FetchTasks(
        request_id=m.requests.ask(Fetching(claim)),
        max_tasks=claim.want,
        claim_id=claim.claim_id,
        assignment_id=claim.assignment_id,
    )
    m.out.append(SendFrame(message))


def _repeat(m: Model) -> None:
    for claim in list(m.supply.claims):
        if claim.is_sent or m.now < claim.due_at:
            continue
        engaged = m.engagement
        is_ours = engaged is not None and engaged.assignment_id == claim.assignment_id
        if is_ours and m.is_accepting:
            _send_claim(m, claim)
        else:
            _drop(m, claim)


def _drop(m: Model, claim: Claim) -> None:
    m.supply.claims.remove(claim)
    _recount(m)


def _recount(m: Model) -> None:
    m.supply.asked_count = sum(
        max(0, claim.want - len(claim.received)) for claim in m.supply.claims
    )


def _may_fetch(m: Model) -> bool:
    supply = m.supply
    gained = (m.now - supply.budget_at) * FETCHES_PER_S
    supply.budget = min(FETCH_BURST, supply.budget + gained)
    supply.budget_at = m.now
    return supply.budget >= 1


def _send_returns(m: Model) -> None:
    supply = m.supply
    while supply.to_return:
        ids = list(islice(supply.to_return, MAX_REPORTS_PER_FRAME))
        for attempt_id in ids:
            del supply.to_return[attempt_id]
        request_id = m.requests.ask(Returning(ids))
        m.out.append(SendFrame(ReturnTasks(request_id=request_id, task_ids=ids)))
