"""The scheduler's decisions, without a database: who gets which host, who stays, who leaves."""

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from managers.enums import ReleaseReason
from managers.picture import Campaign, Engagement, Host, Kind, Picks, Rules
from managers.planning import Plan, make_plan
from mitosis_protocol.enums import AssignmentState, DesiredState, ManagerState, SuiteState

RULES = Rules(idle_threshold_s=300, answer_s=120)
NO_PICKS = Picks()


def host(number: int, **members: Any) -> Host:
    return Host(id=number, tags=members.pop("tags", ()), group_ids=(1, 2), **members)


def campaign(number: int, **members: Any) -> Campaign:
    members.setdefault("group_id", 1)
    kinds = members.pop("demands", [()])
    members["demands"] = [kind if isinstance(kind, Kind) else Kind(kind) for kind in kinds]
    members.setdefault("pending", 1)
    return Campaign(id=number, **members)


def engaged(number: int, suite_id: int, **members: Any) -> Host:
    """A host at work for a suite; the engagement has the host's number times ten."""
    defaults = {
        "state": AssignmentState.EXECUTING,
        "age_s": 1000.0,
        "is_lease_over": False,
        "idle_s": None,
        "holds_tasks": False,
    }
    own = {name: members.pop(name) for name in list(members) if name in defaults}
    engagement = Engagement(id=number * 10, suite_id=suite_id, **{**defaults, **own})
    return host(number, engagement=engagement, **members)


def plan(hosts: list[Host], campaigns: list[Campaign], picks: Picks = NO_PICKS) -> Plan:
    return make_plan(hosts, campaigns, picks, RULES)


def test_higher_priority_first_then_age() -> None:
    result = plan(
        [host(1), host(2)],
        [campaign(5), campaign(6, priority=9), campaign(7)],
    )
    assert sorted(suite for _, suite in result.assign) == [5, 6]


def test_a_suite_gets_as_many_hosts_as_it_can_keep_busy() -> None:
    hosts = [host(number) for number in range(1, 11)]
    result = plan(hosts, [campaign(5, pending=33, workers=8)])
    assert len(result.assign) == 5
    result = plan([*hosts, engaged(20, 5), engaged(21, 5)], [campaign(5, pending=33, workers=8)])
    assert len(result.assign) == 3


def test_max_running_bounds_the_hosts() -> None:
    hosts = [host(number) for number in range(1, 11)]
    result = plan(hosts, [campaign(5, pending=1000, workers=8, max_running=9)])
    assert len(result.assign) == 2


def test_groups_of_equal_priority_share_by_weight() -> None:
    hosts = [host(number) for number in range(1, 13)]
    result = plan(
        hosts,
        [
            campaign(5, group_id=1, pending=100, weight=1),
            campaign(6, group_id=2, pending=100, weight=2),
        ],
    )
    assert Counter(suite for _, suite in result.assign) == {5: 4, 6: 8}


def test_what_a_group_has_already_counts_for_its_share() -> None:
    hosts = [host(1), host(2), engaged(3, 5, holds_tasks=True), engaged(4, 5, holds_tasks=True)]
    result = plan(hosts, [campaign(5, pending=100), campaign(6, group_id=2, pending=100)])
    assert Counter(suite for _, suite in result.assign) == {6: 2}


@pytest.mark.parametrize(
    "change",
    [
        {"is_reachable": False},
        {"desired": DesiredState.DRAINING},
        {"desired": DesiredState.QUARANTINED},
        {"desired": DesiredState.SHUTDOWN},
        {"state": ManagerState.CLEANUP},
        {"state": ManagerState.OFFLINE},
        {"group_ids": ()},
    ],
)
def test_only_a_free_willing_and_permitted_host_is_assigned(change: dict[str, Any]) -> None:
    assert plan([replace(host(1), **change)], [campaign(5)]).assign == []


@pytest.mark.parametrize(
    "change",
    [
        {"demands": ()},
        {"is_paused": True},
        {"is_blocked": True},
        {"state": SuiteState.COMPLETE},
        {"state": SuiteState.CANCELLED},
        {"tags": ["gpu"]},
        {"auto_match": False},
    ],
)
def test_only_a_suite_with_work_for_the_host_gets_it(change: dict[str, Any]) -> None:
    assert plan([host(1)], [replace(campaign(5), **change)]).assign == []


def test_a_suite_whose_tasks_all_need_other_tags_does_not_get_the_host() -> None:
    picky = campaign(5, demands=[["gpu"], ["arm", "gpu"]])
    assert plan([host(1, tags=["arm"])], [picky]).assign == []
    assert plan([host(1, tags=["gpu"])], [picky]).assign == [(1, 5)]
    chosen = Picks(chosen={5: {1}})
    assert plan([host(1)], [picky], chosen).assign == [], "claims would refuse it all the same"


def test_what_the_engaged_host_gave_up_gets_another_one() -> None:
    given_up = campaign(5, demands=[Kind((), [1])])
    assert plan([engaged(1, 5), host(2)], [given_up]).assign == [(2, 5)]
    assert plan([engaged(1, 5)], [given_up]).assign == []
    assert plan([host(1)], [given_up]).assign == [], "it would be refused all the same"


def test_every_kind_of_task_gets_a_host_that_can_run_it() -> None:
    hosts = [*(host(number) for number in range(1, 5)), host(9, tags=["gpu"])]
    mixed = campaign(5, pending=3, demands=[[], ["gpu"]])
    assert sorted(plan(hosts, [mixed]).assign) == [(1, 5), (2, 5), (9, 5)]
    busy = [engaged(number, 5, holds_tasks=True) for number in range(1, 4)]
    assert plan([*busy, hosts[-1]], [mixed]).assign == [(9, 5)], "three hosts, none of them able"
    able = engaged(9, 5, holds_tasks=True, tags=["gpu"])
    assert plan([*busy, able, host(4)], [mixed]).assign == []


def test_a_host_that_can_take_nothing_of_what_waits_is_idle_and_makes_room() -> None:
    picky = campaign(5, demands=[["gpu"]], pending=3)
    assert plan([engaged(1, 5)], [picky]).idle == [10]
    for waiting in (campaign(6), campaign(6, priority=9)):
        left = plan([engaged(1, 5, idle_s=0.0)], [picky, waiting]).release
        assert left == [(10, ReleaseReason.MADE_ROOM)], "its lease keeps it for no work at all"
        able = engaged(1, 5, idle_s=301.0, tags=["gpu"])
        result = plan([able], [picky, waiting])
        assert (result.release, result.busy) == ([], [10])


def test_a_host_that_gave_up_all_that_waits_makes_room_and_stays_while_nobody_else_waits() -> None:
    given_up = campaign(5, demands=[Kind((), [1])], pending=11)
    idle = engaged(1, 5, idle_s=0.0)
    assert plan([idle], [given_up, campaign(6)]).release == [(10, ReleaseReason.MADE_ROOM)]
    assert plan([idle], [given_up]).release == []
    assert plan([engaged(1, 5, holds_tasks=True)], [given_up, campaign(6)]).release == []


def test_a_host_that_can_take_nothing_of_what_waits_does_not_stand_for_one_that_can() -> None:
    picky = campaign(5, demands=[["gpu"]], pending=1)
    assert plan([engaged(1, 5), host(2, tags=["gpu"])], [picky]).assign == [(2, 5)]


def test_a_closed_suite_with_tasks_left_gets_hosts() -> None:
    assert plan([host(1)], [campaign(5, state=SuiteState.CLOSED)]).assign == [(1, 5)]


def test_people_choose_hosts_without_the_tags_and_take_hosts_off() -> None:
    tagged = campaign(5, tags=["gpu"], auto_match=False)
    assert plan([host(1)], [tagged], Picks(chosen={5: {1}})).assign == [(1, 5)]
    assert plan([host(1)], [campaign(5)], Picks(removed={5: {1}})).assign == []
    stranger = replace(host(1), group_ids=())
    assert plan([stranger], [tagged], Picks(chosen={5: {1}})).assign == []


def test_a_refresh_of_a_suite_that_does_not_match_by_itself_counts_while_the_rule_holds() -> None:
    manual = campaign(5, tags=["gpu"], auto_match=False)
    picks = Picks(matched={5: {1, 2}})
    hosts = [host(1, tags=["gpu"]), host(2), host(3, tags=["gpu"])]
    assert plan(hosts, [replace(manual, pending=9)], picks).assign == [(1, 5)]


def test_a_host_that_failed_the_preparation_is_not_tried_again() -> None:
    hosts = [host(1), host(2)]
    result = plan(hosts, [campaign(5, pending=9)], Picks(banned={5: {1}}))
    assert result.assign == [(2, 5)]


def test_special_hosts_are_kept_for_those_who_need_them() -> None:
    hosts = [host(1, tags=["gpu"]), host(2)]
    result = plan(hosts, [campaign(5), campaign(6, tags=["gpu"])])
    assert sorted(result.assign) == [(1, 6), (2, 5)]


def test_a_host_with_work_stays_whoever_waits() -> None:
    working = engaged(1, 5, holds_tasks=True, idle_s=None, is_lease_over=True)
    result = plan([working], [campaign(5), campaign(6, priority=99)])
    assert (result.release, result.assign, result.renew) == ([], [], [10])


def test_idle_below_the_threshold_stays() -> None:
    idle = engaged(1, 5, idle_s=299.0)
    tail = campaign(5, demands=(), pending=3)
    assert plan([idle], [tail, campaign(6, priority=99)]).release == []


def test_idle_above_the_threshold_leaves_for_a_higher_priority_only() -> None:
    idle = engaged(1, 5, idle_s=301.0)
    tail = campaign(5, demands=(), pending=3, priority=1)
    assert plan([idle], [tail, campaign(6, priority=1)]).release == []
    assert plan([idle], [tail, campaign(6, priority=2)]).release == [(10, ReleaseReason.OUTRANKED)]


def test_idle_with_its_lease_over_makes_room_for_anybody() -> None:
    idle = engaged(1, 5, idle_s=301.0, is_lease_over=True)
    tail = campaign(5, demands=(), pending=3, priority=5)
    assert plan([idle], [tail, campaign(6)]).release == [(10, ReleaseReason.MADE_ROOM)]
    assert plan([idle], [tail]).renew == [10], "nobody waits: it stays"


def test_nobody_leaves_while_a_free_host_will_do() -> None:
    idle = engaged(1, 5, idle_s=900.0)
    tail = campaign(5, demands=(), pending=3)
    result = plan([idle, host(2)], [tail, campaign(6, priority=9)])
    assert (result.assign, result.release) == ([(2, 6)], [])


def test_nobody_leaves_while_a_host_on_its_way_will_do() -> None:
    idle = engaged(1, 5, idle_s=900.0)
    leaving = engaged(2, 5, state=AssignmentState.CLEANUP)
    tail = campaign(5, demands=(), pending=3)
    assert plan([idle, leaving], [tail, campaign(6, priority=9)]).release == []


def test_as_many_leave_as_are_wanted() -> None:
    idle = [engaged(number, 5, idle_s=900.0) for number in range(1, 6)]
    tail = campaign(5, demands=(), pending=3)
    result = plan(idle, [tail, campaign(6, priority=9, pending=16, workers=8)])
    assert len(result.release) == 2


def test_a_finished_suite_lingers_and_leaves_when_its_time_is_over() -> None:
    done = campaign(5, state=SuiteState.COMPLETE, demands=(), pending=0, linger_s=60)
    fresh = plan([engaged(1, 5)], [done])
    assert (fresh.rest, fresh.idle, fresh.release) == ([10], [10], [])
    lingering = engaged(1, 5, state=AssignmentState.LINGERING, idle_s=59.0)
    assert plan([lingering], [done]).release == []
    over = engaged(1, 5, state=AssignmentState.LINGERING, idle_s=60.0)
    assert plan([over], [done]).release == [(10, ReleaseReason.DONE)]


def test_no_linger_leaves_at_the_next_pass() -> None:
    done = campaign(5, state=SuiteState.COMPLETE, demands=(), pending=0, linger_s=0)
    lingering = engaged(1, 5, state=AssignmentState.LINGERING, idle_s=0.0)
    assert plan([lingering], [done]).release == [(10, ReleaseReason.DONE)]


def test_lingering_is_cut_short_when_another_suite_waits_for_that_host() -> None:
    done = campaign(5, state=SuiteState.COMPLETE, demands=(), pending=0, priority=9)
    lingering = engaged(1, 5, state=AssignmentState.LINGERING, idle_s=1.0)
    assert plan([lingering], [done, campaign(6)]).release == [(10, ReleaseReason.MADE_ROOM)]
    elsewhere = campaign(6, tags=["gpu"])
    assert plan([lingering], [done, elsewhere]).release == []


def test_a_reopened_suite_finds_its_host_warm() -> None:
    lingering = engaged(1, 5, state=AssignmentState.LINGERING, idle_s=30.0)
    result = plan([lingering], [campaign(5)])
    assert (result.wake, result.busy, result.assign, result.release) == ([10], [10], [], [])


def test_an_open_suite_without_tasks_keeps_its_host() -> None:
    empty = campaign(5, demands=(), pending=0)
    result = plan([engaged(1, 5, idle_s=5.0)], [empty])
    assert (result.rest, result.release) == ([], [])


def test_a_paused_suite_does_not_keep_others_waiting() -> None:
    paused = campaign(5, is_paused=True, pending=9, priority=9)
    result = plan([engaged(1, 5, idle_s=1.0)], [paused, campaign(6)])
    assert result.release == [(10, ReleaseReason.MADE_ROOM)]
    assert plan([engaged(1, 5, idle_s=1.0)], [paused]).release == []


@pytest.mark.parametrize(
    ("change", "suite", "reason"),
    [
        ({}, {"state": SuiteState.CANCELLED}, ReleaseReason.CANCELLED),
        ({}, {"is_blocked": True}, ReleaseReason.BLOCKED),
        ({"desired": DesiredState.DRAINING}, {}, ReleaseReason.DRAIN),
        ({"desired": DesiredState.QUARANTINED}, {}, ReleaseReason.DRAIN),
        ({"group_ids": ()}, {}, ReleaseReason.INELIGIBLE),
    ],
)
def test_reasons_to_leave_at_once(
    change: dict[str, Any], suite: dict[str, Any], reason: ReleaseReason
) -> None:
    result = plan([replace(engaged(1, 5), **change)], [replace(campaign(5), **suite)])
    assert result.release == [(10, reason)]


def test_a_drained_host_may_end_what_it_runs_unless_forced() -> None:
    running = engaged(1, 5, holds_tasks=True, desired=DesiredState.DRAINING)
    assert plan([running], [campaign(5)]).release == []
    forced = replace(running, desired=DesiredState.SHUTDOWN, is_forced=True)
    assert plan([forced], [campaign(5)]).release == [(10, ReleaseReason.DRAIN)]


def test_a_host_of_a_cancelled_suite_may_end_what_it_runs_unless_forced() -> None:
    running = engaged(1, 5, holds_tasks=True)
    cancelled = campaign(5, state=SuiteState.CANCELLED)
    assert plan([running], [cancelled]).release == []
    forced = replace(running, desired=DesiredState.SHUTDOWN, is_forced=True)
    assert plan([forced], [cancelled]).release == [(10, ReleaseReason.CANCELLED)]


def test_a_host_that_never_begins_is_taken_off() -> None:
    silent = engaged(1, 5, state=AssignmentState.ASSIGNED, age_s=121.0)
    assert plan([silent], [campaign(5)]).release == [(10, ReleaseReason.UNANSWERED)]


def test_a_second_pass_over_the_same_picture_decides_the_same() -> None:
    hosts = [host(number) for number in range(1, 6)]
    suites = [campaign(number, pending=3, group_id=1 + number % 2) for number in range(5, 9)]
    assert plan(hosts, suites) == plan(hosts, suites)


def test_an_engagement_that_is_leaving_is_left_alone() -> None:
    leaving = engaged(1, 5, state=AssignmentState.CLEANUP, is_lease_over=True)
    result = plan([leaving], [campaign(5, state=SuiteState.CANCELLED)])
    assert result == Plan()
