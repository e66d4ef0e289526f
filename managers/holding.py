"""The judgement about one host and the suite it is engaged with.

Pure; used by managers.planning, which knows who else wants the host.
"""

from dataclasses import dataclass

from managers.enums import ReleaseReason
from managers.picture import Campaign, Engagement, Host, Rules
from mitosis_protocol.enums import AssignmentState, DesiredState, SuiteState


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What should happen to an engagement, as far as it alone decides."""

    host_id: int
    engagement: Engagement
    priority: int
    must_leave: ReleaseReason | None = None
    yields_to_any: bool = False  # it would be idle anyway: any suite with work may have the host
    yields_to_higher: bool = False  # idle for long: a suite of higher priority may have the host
    renews: bool = False
    rests: bool = False
    wakes: bool = False
    turns_idle: bool = False
    turns_busy: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """What a host is to the suite it is engaged with."""

    may_stay: bool  # it is still eligible
    can_work: bool  # it has the tags of at least one task that waits


def judge(host: Host, campaign: Campaign | None, rules: Rules, fit: Fit) -> Holding:
    """Judge the host's engagement."""
    engagement = host.engagement
    if engagement is None:
        raise ValueError("a host without an engagement has nothing to be judged")
    priority = 0 if campaign is None else campaign.priority
    if engagement.is_leaving:
        return Holding(host_id=host.id, engagement=engagement, priority=priority)
    must_leave = _must_leave(host, engagement, campaign, rules, fit.may_stay)
    if must_leave is not None or campaign is None:
        return Holding(
            host_id=host.id, engagement=engagement, priority=priority, must_leave=must_leave
        )
    is_settled = engagement.state in {AssignmentState.EXECUTING, AssignmentState.LINGERING}
    # Work that needs tags this host lacks is none: it must not keep the host from others.
    has_something = (campaign.has_work and fit.can_work) or engagement.holds_tasks
    idle_s = None if has_something else engagement.idle_s
    is_finished = _is_finished(campaign) and not engagement.holds_tasks
    is_idle_long = idle_s is not None and idle_s >= rules.idle_threshold_s
    # Its lease keeps a host warm for work to come; here there is work, and not for this host.
    is_unfit = campaign.has_work and not fit.can_work
    return Holding(
        host_id=host.id,
        engagement=engagement,
        priority=priority,
        # Paused counts as finished here: waiting for a person must not keep others waiting.
        yields_to_any=is_settled
        and not has_something
        and (
            is_finished
            or is_unfit
            or campaign.is_paused
            or (is_idle_long and engagement.is_lease_over)
        ),
        yields_to_higher=is_settled and is_idle_long,
        renews=engagement.is_lease_over,
        rests=is_finished and engagement.state is AssignmentState.EXECUTING,
        wakes=engagement.state is AssignmentState.LINGERING and not is_finished,
        turns_idle=is_settled and not has_something and engagement.idle_s is None,
        turns_busy=has_something and engagement.idle_s is not None,
    )


def _must_leave(
    host: Host, engagement: Engagement, campaign: Campaign | None, rules: Rules, may_stay: bool
) -> ReleaseReason | None:
    """Why the host has to leave whoever waits; None if it need not."""
    # What runs may end in peace, unless an operator is in a hurry. Tasks that have to stop with
    # their suite are told so one by one, and then the host holds none.
    is_due = not engagement.holds_tasks
    if campaign is None or campaign.state is SuiteState.CANCELLED:
        return ReleaseReason.CANCELLED if is_due or host.is_forced else None
    if host.desired is not DesiredState.ACTIVE:
        return ReleaseReason.DRAIN if is_due or host.is_forced else None
    if not may_stay:
        return ReleaseReason.INELIGIBLE
    return None if engagement.holds_tasks else _overstayed(engagement, campaign, rules)


def _overstayed(engagement: Engagement, campaign: Campaign, rules: Rules) -> ReleaseReason | None:
    if campaign.is_blocked:
        return ReleaseReason.BLOCKED
    if engagement.state is AssignmentState.ASSIGNED and engagement.age_s > rules.answer_s:
        return ReleaseReason.UNANSWERED
    idle_s = engagement.idle_s
    is_over = _is_finished(campaign) and idle_s is not None and idle_s >= campaign.linger_s
    return ReleaseReason.DONE if is_over else None


def _is_finished(campaign: Campaign) -> bool:
    """Nothing is left, and nothing is expected before somebody submits again."""
    if campaign.state is SuiteState.OPEN:
        return False
    return campaign.state is SuiteState.COMPLETE or campaign.pending == 0
