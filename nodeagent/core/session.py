"""The link to the coordinator: hello and welcome, heartbeats, leases, what is wanted of this host.

Pushes are hints; the answer to a heartbeat says the same, so both lead to the same functions. The
coordinator's word on an engagement counts once it answers a frame that named the engagement.
"""

from functools import lru_cache

from mitosis_protocol.durations import NS_PER_S, parse_nanoseconds
from mitosis_protocol.enums import AssignmentState, DesiredState, PartitionPolicy
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.from_manager import Heartbeat, Hello, ManagerMetrics
from mitosis_protocol.limits import MAX_INVENTORY, SELF_FENCE_MARGIN_S
from mitosis_protocol.to_manager import (
    CancelTask,
    ConfigUpdate,
    Engagement,
    HeartbeatAck,
    Reconciliation,
    Shutdown,
    SuiteDrained,
    TaskSuiteSpec,
    Welcome,
)
from nodeagent.core import news, reports
from nodeagent.core.attempts import Stage
from nodeagent.core.custody import cancel, revoke, try_again
from nodeagent.core.engagement import leave, offer
from nodeagent.core.model import FOREVER, Model, Step
from nodeagent.core.requests import Beating, Greeting
from nodeagent.core.stopping import stop
from nodeagent.effects import SendFrame, SendHeartbeat
from nodeagent.events import LinkUp

_OPEN = (AssignmentState.EXECUTING, AssignmentState.LINGERING)
MIN_HEARTBEAT_S = 0.05  # whatever a configuration says, the loop is not spent on heartbeats


def on_link_up(m: Model, event: LinkUp) -> None:
    m.session.manager_uuid = event.manager_uuid
    m.session.is_up, m.session.is_welcome = True, False
    _greet(m)


def _greet(m: Model) -> None:
    session, engaged = m.session, m.engagement
    session.greet_at = FOREVER
    is_prepared = engaged is not None and engaged.step is Step.EXECUTING
    hello = Hello(
        request_id=m.requests.ask(Greeting(m.now)),
        process_id=m.process_id,
        manager_uuid=session.manager_uuid,
        inventory=m.ledger.inventory(MAX_INVENTORY),
        suite_uuid=engaged.suite.uuid if engaged is not None and is_prepared else None,
        is_clean=not session.was_welcome,
    )
    m.out.append(SendFrame(hello))


def on_link_lost(m: Model) -> None:
    session = m.session
    session.is_up = session.is_welcome = False
    session.next_beat_at = session.greet_at = FOREVER
    m.next_suite = None  # the welcome says it again
    m.news.clear()
    m.news_bytes = 0
    if m.engagement is not None:
        m.engagement.is_confirmed = False


def on_greeting_failed(m: Model) -> None:
    """The link is up but nobody greeted back: once more, with what we hold then."""
    if m.session.is_up:
        m.session.greet_at = m.now + m.settings.retry_s


def on_welcome(m: Model, message: Welcome) -> None:
    purpose = m.requests.open.get(message.request_id)
    if not isinstance(purpose, Greeting):
        return
    del m.requests.open[message.request_id]
    session = m.session
    session.is_welcome = session.was_welcome = True
    session.config_version = message.config_version
    session.heartbeat_s = seconds(message.heartbeat_interval, session.heartbeat_s)
    _extend_lease(m, message.lease, purpose.sent_at)
    _obey(m, message.desired_state)
    _compare(m, message.engagement, message.suite_spec)
    reconcile(m, message.held)
    m.supply.dry_until = 0.0
    session.is_beat_due = True
    reports.resend(m)


def beat(m: Model) -> None:
    """Now, with everything we hold."""
    session, engaged = m.session, m.engagement
    if session.manager_uuid is None or not session.is_welcome:
        return
    session.is_beat_due = False
    session.next_beat_at = m.now + session.heartbeat_s
    assignment_id = None if engaged is None else engaged.assignment_id
    message = Heartbeat(
        manager_uuid=session.manager_uuid,
        state=m.state,
        metrics=ManagerMetrics(
            active_workers=m.ready_count,
            total_tasks_completed=m.completed_count,
            total_tasks_failed=m.failed_count,
            current_suite_tasks_completed=0 if engaged is None else engaged.completed_count,
            current_suite_tasks_failed=0 if engaged is None else engaged.failed_count,
            uptime_seconds=max(0, int(m.now - m.started_at)),
        ),
        request_id=m.requests.ask(Beating(m.now, assignment_id)),
        assignment_id=assignment_id,
        inventory=m.ledger.inventory(MAX_INVENTORY),
        config_version=session.config_version,
    )
    m.out.append(SendHeartbeat(message))


def on_ack(m: Model, message: HeartbeatAck) -> None:
    purpose = m.requests.open.get(message.request_id)
    if not isinstance(purpose, Beating):
        return
    del m.requests.open[message.request_id]
    _extend_lease(m, message.lease, purpose.sent_at)
    _obey(m, message.desired_state)
    engaged = m.engagement
    if engaged is not None and purpose.assignment_id == engaged.assignment_id:
        _compare(m, message.engagement, None)
    reconcile(m, message.held)


def reconcile(m: Model, held: Reconciliation) -> None:
    """What became of the attempts that were named, by the coordinator's word."""
    attempts = m.ledger.attempts
    for attempt_id in (*held.kept, *held.adopted):
        attempt = attempts.get(attempt_id)
        if attempt is not None and attempt.stage is Stage.DECIDING:
            try_again(m, attempt)
    for attempt_id in held.cancel:
        attempt = attempts.get(attempt_id)
        if attempt is not None:
            cancel(m, attempt)
    for attempt_id in held.settled:
        attempt = attempts.get(attempt_id)
        if attempt is not None:
            reports.settle_by_word(m, attempt)
    for attempt_id in held.revoked:
        attempt = attempts.get(attempt_id)
        if attempt is not None:
            revoke(m, attempt)
    if any(attempt_id in attempts for attempt_id in held.missing):
        # It came after the frame was written. Named in the next one it is adopted, or revoked.
        m.session.is_beat_due = True


def on_cancel_task(m: Model, message: CancelTask) -> None:
    attempt = m.ledger.find_task(message.task_uuid)
    if attempt is not None:
        cancel(m, attempt)


def on_drained(m: Model, message: SuiteDrained) -> None:
    if m.next_suite is not None and m.next_suite[0] == message.assignment_id:
        m.next_suite = None
    engaged = m.engagement
    if engaged is not None and engaged.assignment_id == message.assignment_id:
        leave(m, message.reason)


def on_config(m: Model, message: ConfigUpdate) -> None:
    session = m.session
    if message.version < session.config_version:
        return
    session.config_version = message.version
    if message.heartbeat_interval is not None:
        session.heartbeat_s = seconds(message.heartbeat_interval, session.heartbeat_s)
        session.next_beat_at = min(session.next_beat_at, m.now + session.heartbeat_s)


def on_shutdown(m: Model, message: Shutdown) -> None:
    stop(m, "the coordinator asked for it", is_forced=not message.graceful)


def tick(m: Model) -> None:
    news.send(m)
    if m.now >= m.session.greet_at:
        _greet(m)
    if m.now >= m.session.next_beat_at:
        m.session.is_beat_due = True
    engaged = m.engagement
    if (
        engaged is not None
        and not engaged.is_fenced
        and engaged.suite.on_partition is PartitionPolicy.STOP
        and m.now >= m.session.lease_until - m.session.lease_margin_s
    ):
        m.warn("lease.ran_out", suite=str(engaged.suite.uuid))
        engaged.is_fenced = True
        for attempt in m.ledger.in_stage(Stage.SHELVED, Stage.HANDED, Stage.DECIDING):
            revoke(m, attempt)


def _compare(m: Model, theirs: Engagement | None, suite: TaskSuiteSpec | None) -> None:
    """Our engagement against the one the coordinator holds us to."""
    ours = m.engagement
    if theirs is None:
        leave(m, "the coordinator knows of no engagement")
        return
    if ours is not None and theirs.assignment_id != ours.assignment_id:
        is_ours = theirs.suite_uuid == ours.suite.uuid and ours.step is Step.EXECUTING
        if is_ours and theirs.assignment_id > ours.assignment_id:
            # We came back after the lease had ended and were taken on again.
            ours.assignment_id = theirs.assignment_id
        else:
            leave(m, "the coordinator knows another engagement")
    if theirs.state is AssignmentState.CLEANUP:
        if ours is not None and theirs.assignment_id == ours.assignment_id:
            leave(m, theirs.release_reason or "it has to end")
    elif theirs.state is not AssignmentState.RELEASED:
        if suite is not None:
            offer(m, theirs.assignment_id, suite)
        if ours is not None and theirs.assignment_id == ours.assignment_id:
            ours.is_confirmed = theirs.state in _OPEN
            ours.is_paused = theirs.is_paused


def _extend_lease(m: Model, lease: str, sent_at: float) -> None:
    session = m.session
    lease_s = seconds(lease, 0.0)
    until = sent_at + lease_s
    if session.lease_until == FOREVER or until > session.lease_until:
        session.lease_until = until
        session.lease_margin_s = min(SELF_FENCE_MARGIN_S, lease_s / 6)
    if m.engagement is not None and m.now < session.lease_until - session.lease_margin_s:
        m.engagement.is_fenced = False


def _obey(m: Model, desired: DesiredState) -> None:
    m.session.is_wanted = desired is DesiredState.ACTIVE
    if desired is DesiredState.SHUTDOWN:
        stop(m, "the coordinator asked for it", is_forced=False)


@lru_cache(maxsize=64)
def seconds(text: str, otherwise: float) -> float:
    """A duration of the coordinator; a bad one changes nothing."""
    try:
        return max(MIN_HEARTBEAT_S, parse_nanoseconds(text) / NS_PER_S)
    except InvalidValue:
        return otherwise
