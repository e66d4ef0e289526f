"""Why runners do not take tasks: the judgement alone, fact by fact."""

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from mitosis_protocol.enums import (
    AssignmentState,
    ConsentState,
    DesiredState,
    ManagerState,
    Outcome,
    Role,
    RunnerKind,
    SuiteState,
    TaskPhase,
)
from tasks.facts import EngagementFacts, Need, RunnerFacts
from tasks.verdicts import judge, judge_all, no_runners, smallest_change
from tasks.waiting import (
    SuiteFacts,
    TaskFacts,
    UpstreamFacts,
    suite_obstacles,
    task_obstacles,
)

MOMENT = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
SPELLED = "2026-05-04T03:02:01.000000Z"
OTHER = UUID("11111111-1111-4111-8111-111111111111")


def host(**changes: Any) -> RunnerFacts:
    members: dict[str, Any] = {
        "id": 1,
        "uuid": uuid4(),
        "tags": frozenset({"gpu"}),
        "role": Role.WRITE,
        "consent": ConsentState.ACCEPTED,
        **changes,
    }
    return RunnerFacts(**members)


def need(**changes: Any) -> Need:
    return Need(**{"group_name": "lab", "is_suite": True, **changes})


def lease(**changes: Any) -> EngagementFacts:
    members: dict[str, Any] = {
        "is_ours": False,
        "state": AssignmentState.EXECUTING,
        "lease_until": MOMENT,
        **changes,
    }
    return EngagementFacts(**members)


def test_a_manager_that_meets_every_rule_is_able() -> None:
    verdict = judge(host(), need(tags=frozenset({"gpu"}), demands=[frozenset({"gpu"})]))
    assert verdict.is_able
    assert smallest_change([], [verdict]) == []


@pytest.mark.parametrize(
    ("facts", "wanted", "code", "words"),
    [
        ({"role": None, "consent": None}, {}, "no_role", ["lab", "no role"]),
        ({"role": Role.READ}, {}, "role_too_low", ["only read"]),
        ({"consent": ConsentState.PENDING}, {}, "consent_pending", ["not accepted"]),
        ({"consent": ConsentState.REFUSED}, {}, "consent_refused", ["refused"]),
        ({}, {"tags": frozenset({"gpu", "arm", "big"})}, "tags_missing", ["arm, big"]),
        ({}, {"demands": [frozenset({"arm"})]}, "tags_missing", ["task", "arm"]),
        (
            {"desired": DesiredState.QUARANTINED, "wish_reason": "3 tasks failed"},
            {},
            "quarantined",
            ["3 tasks failed"],
        ),
        (
            {"desired": DesiredState.QUARANTINED, "probe_after": MOMENT},
            {},
            "quarantined",
            [SPELLED],
        ),
        (
            {"desired": DesiredState.DRAINING, "wish_reason": "repairs"},
            {},
            "draining",
            ["repairs"],
        ),
        ({"desired": DesiredState.SHUTDOWN}, {}, "shutting_down", []),
        ({"is_alive": False, "last_seen": MOMENT}, {}, "offline", [f"since {SPELLED}"]),
        ({"state": ManagerState.OFFLINE}, {}, "offline", []),
        ({"is_connected": False}, {}, "disconnected", []),
        ({"is_removed": True}, {}, "removed", ["by hand"]),
        ({}, {"auto_match": False}, "not_matched", ["not added"]),
        ({"preparation_failure": "exit 3"}, {}, "preparation_failed", ["exit 3"]),
        ({}, {"excluded_ids": [1]}, "excluded", ["failed too often"]),
        ({}, {"pinned_id": 7}, "pinned_elsewhere", []),
        ({"engagement": lease(suite_uuid=OTHER)}, {}, "leased", [str(OTHER), SPELLED]),
        ({"engagement": lease()}, {}, "leased", ["another suite", SPELLED]),
        ({"state": ManagerState.CLEANUP}, {}, "busy", ["Cleanup"]),
        (
            {"engagement": lease(is_ours=True, state=AssignmentState.ASSIGNED)},
            {},
            "starting",
            [],
        ),
        (
            {"engagement": lease(is_ours=True, state=AssignmentState.PREPARING)},
            {},
            "preparing",
            [],
        ),
        (
            {"engagement": lease(is_ours=True, state=AssignmentState.CLEANUP)},
            {},
            "cleaning_up",
            [],
        ),
    ],
)
def test_each_rule_has_one_verdict_and_a_fix(
    facts: dict[str, Any], wanted: dict[str, Any], code: str, words: list[str]
) -> None:
    [found] = judge(host(**facts), need(**wanted)).obstacles
    assert found.code == code
    assert found.fix
    for word in words:
        assert word in found.text


@pytest.mark.parametrize("state", [AssignmentState.EXECUTING, AssignmentState.LINGERING])
def test_a_manager_at_work_for_the_suite_is_engaged_and_able(state: AssignmentState) -> None:
    facts = host(engagement=lease(is_ours=True, state=state), state=ManagerState.EXECUTING)
    verdict = judge(facts, need())
    assert verdict.is_able
    assert verdict.is_engaged


def test_a_chosen_manager_needs_no_tags_of_the_suite_but_those_of_its_tasks() -> None:
    chosen = host(is_chosen=True, tags=frozenset())
    assert judge(chosen, need(tags=frozenset({"gpu"}), auto_match=False)).is_able
    [found] = judge(chosen, need(tags=frozenset({"x"}), demands=[frozenset({"gpu"})])).obstacles
    assert (found.code, "gpu" in found.text) == ("tags_missing", True)


def test_one_kind_of_task_that_fits_is_enough_and_else_the_nearest_is_named() -> None:
    demands = [frozenset({"a", "b", "c"}), frozenset({"a", "gpu"})]
    [found] = judge(host(), need(demands=demands)).obstacles
    assert "task: a" in found.text
    assert judge(host(), need(demands=[*demands, frozenset()])).is_able


def test_a_missing_tag_is_named_once_though_suite_and_task_want_it() -> None:
    wanted = need(tags=frozenset({"arm"}), demands=[frozenset({"arm"})])
    assert [one.code for one in judge(host(), wanted).obstacles] == ["tags_missing"]


def test_a_higher_priority_is_not_advised_to_who_has_it() -> None:
    leased = host(engagement=lease(priority=5))
    assert "priority" in judge(leased, need(priority=5)).obstacles[0].fix
    assert "priority" not in judge(leased, need(priority=6)).obstacles[0].fix


def test_workers_know_neither_suites_nor_leases() -> None:
    worker = host(kind=RunnerKind.INDEPENDENT, is_connected=False, engagement=lease())
    wanted = need(is_suite=False, auto_match=False, tags=frozenset({"x"}))
    assert judge(worker, wanted).is_able
    [found] = judge(host(kind=RunnerKind.INDEPENDENT, is_busy=True), wanted).obstacles
    assert found.code == "busy"
    direct = host(kind=RunnerKind.DIRECT, is_connected=False)
    assert [one.code for one in judge(direct, wanted).obstacles] == ["disconnected"]


def test_the_nearest_runner_comes_first_and_decides_what_to_change() -> None:
    far = host(id=1, role=None, consent=None, is_alive=False)
    near = host(id=2, tags=frozenset())
    verdicts = judge_all([far, near], need(tags=frozenset({"gpu"})))
    assert [one.runner.id for one in verdicts] == [2, 1]
    assert smallest_change([], verdicts) == [f"add gpu to manager {near.uuid}"]


def test_without_runners_the_answer_is_to_register_one() -> None:
    assert "register a manager for the group lab" in no_runners(need()).fix
    assert "register a worker" in no_runners(need(is_suite=False)).fix


def suite(**changes: Any) -> SuiteFacts:
    return SuiteFacts(**{"uuid": OTHER, "state": SuiteState.OPEN, "pending": 1, **changes})


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        ({}, []),
        ({"state": SuiteState.CLOSED}, []),
        ({"state": SuiteState.CANCELLED, "cancel_reason": "enough"}, ["suite_cancelled"]),
        ({"is_paused": True}, ["suite_paused"]),
        ({"blocked_reason": "3 hosts failed"}, ["suite_blocked"]),
        ({"pending": 0, "has_ready": False}, ["no_tasks"]),
        ({"state": SuiteState.COMPLETE, "pending": 0, "has_ready": False}, ["no_tasks"]),
        ({"has_ready": False, "next_at": MOMENT}, ["backoff"]),
        ({"has_ready": False, "held": 3}, ["all_running"]),
        ({"has_ready": False}, ["waiting_on_upstream"]),
        ({"held": 3, "max_running": 3}, ["at_max_running"]),
        ({"held": 2, "max_running": 3}, []),
        ({"is_paused": True, "blocked_reason": "x"}, ["suite_blocked", "suite_paused"]),
    ],
)
def test_what_a_suite_itself_waits_for(facts: dict[str, Any], codes: list[str]) -> None:
    found = suite_obstacles(suite(**facts))
    assert [one.code for one in found] == codes
    assert all(one.text and one.fix for one in found)


@pytest.mark.parametrize(
    ("facts", "codes"),
    [
        ({"phase": TaskPhase.READY}, []),
        ({"phase": TaskPhase.RUNNING, "runner_uuid": OTHER}, ["running"]),
        ({"phase": TaskPhase.READY, "not_before": MOMENT}, ["backoff"]),
        ({"phase": TaskPhase.READY, "key_holder": OTHER}, ["concurrency_key"]),
        (
            {
                "phase": TaskPhase.PENDING,
                "upstream": [UpstreamFacts(uuid=OTHER, phase=TaskPhase.RUNNING)],
            },
            ["waiting_on_upstream"],
        ),
        ({"phase": TaskPhase.RUNNING, "is_cancelling": True}, ["cancelling", "running"]),
        ({"outcome": Outcome.FAILED, "reason": "exit 1"}, ["ended"]),
    ],
)
def test_what_a_task_itself_waits_for(facts: dict[str, Any], codes: list[str]) -> None:
    found = task_obstacles(TaskFacts(uuid=uuid4(), **facts))
    assert [one.code for one in found] == codes
    assert all(one.text and one.fix for one in found)


def test_a_direct_worker_without_commands_is_told_apart():
    plain, call = frozenset[str](), frozenset({"node:model"})
    for tags, demand, codes in (
        ({"node:model"}, plain, ["no_commands"]),
        ({"node:model"}, call, []),
        ({"node:command"}, plain, []),
        ({"node:command"}, call, ["tags_missing"]),
    ):
        worker = host(kind=RunnerKind.DIRECT, tags=frozenset(tags))
        verdict = judge(worker, need(is_suite=False, demands=[demand]))
        assert [one.code for one in verdict.obstacles] == codes
