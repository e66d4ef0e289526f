"""Why a runner does not take the tasks of a suite, or a task: the judgement about known facts.

Pure. tasks.services.explain gathers the facts in few statements; every check here is the reading of
one rule that claims (tasks/sql) and the scheduler (managers.planning) apply.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mitosis_protocol.enums import (
    AssignmentState,
    ConsentState,
    DesiredState,
    ManagerState,
    Role,
    RunnerKind,
)
from mitosis_protocol.node_calls import COMMAND_NODE, NODE_TAG_PREFIX, node_tag
from mitosis_protocol.timestamps import format_rfc3339
from tasks.facts import EngagementFacts, Need, Obstacle, RunnerFacts


@dataclass(frozen=True, slots=True)
class Verdict:
    """The judgement about one runner; without obstacles it takes tasks, now or at its next call."""

    runner: RunnerFacts
    obstacles: list[Obstacle]

    @property
    def is_able(self) -> bool:
        return not self.obstacles

    @property
    def is_engaged(self) -> bool:
        engagement = self.runner.engagement
        return engagement is not None and engagement.is_ours


def judge(runner: RunnerFacts, need: Need) -> Verdict:
    """Everything that stands between this runner and the tasks, most lasting reason first."""
    checks = _SUITE_CHECKS if need.is_suite else _WORKER_CHECKS
    found = (check(runner, need) for check in checks)
    return Verdict(runner, [one for one in found if one is not None])


def judge_all(runners: Sequence[RunnerFacts], need: Need) -> list[Verdict]:
    """Those that come closest to running first."""
    verdicts = [judge(runner, need) for runner in runners]
    return sorted(verdicts, key=lambda one: (len(one.obstacles), not one.is_engaged, one.runner.id))


def smallest_change(about: Sequence[Obstacle], verdicts: Sequence[Verdict]) -> list[str]:
    """What to do, and no more than that: about the thing itself and about the nearest runner."""
    nearest = verdicts[0].obstacles if verdicts else []
    return list(dict.fromkeys(one.fix for one in (*about, *nearest)))


def no_runners(need: Need) -> Obstacle:
    """The verdict where there is nobody to judge."""
    kind = "manager" if need.is_suite else "worker"
    return Obstacle(
        "no_runners",
        f"no {kind} serves the group {need.group_name}",
        f"register a {kind} for the group {need.group_name}",
    )


def _role(runner: RunnerFacts, need: Need) -> Obstacle | None:
    name = _name(runner)
    if runner.role is None:
        return Obstacle(
            "no_role",
            f"the group {need.group_name} has no role on {name}",
            f"give the group {need.group_name} Write on {name}",
        )
    if runner.consent is ConsentState.PENDING:
        return Obstacle(
            "consent_pending",
            f"the group {need.group_name} has not accepted {name} yet",
            f"let an Admin of {need.group_name} accept {name}",
        )
    if runner.consent is ConsentState.REFUSED:
        return Obstacle(
            "consent_refused",
            f"the group {need.group_name} refused {name}",
            f"let an Admin of {need.group_name} accept {name}",
        )
    if not runner.role.allows(Role.WRITE):
        return Obstacle(
            "role_too_low",
            f"the group {need.group_name} may only read {name}",
            f"raise the role of {need.group_name} on {name} to Write",
        )
    return None


def _desired(runner: RunnerFacts, need: Need) -> Obstacle | None:
    name = _name(runner)
    because = f" because {runner.wish_reason}" if runner.wish_reason else ""
    match runner.desired:
        case DesiredState.ACTIVE:
            return None
        case DesiredState.QUARANTINED:
            until = _until(runner.probe_after)
            again = "" if until is None else f"; it is tried again at {until}"
            text = f"{name} is in quarantine{because}{again}"
            wait = "" if until is None else f", or wait until {until}"
            return Obstacle("quarantined", text, f"release {name}{wait}")
        case DesiredState.DRAINING:
            return Obstacle("draining", f"{name} is draining{because}", f"undrain {name}")
        case DesiredState.SHUTDOWN:
            return Obstacle(
                "shutting_down", f"{name} is shutting down{because}", f"start {name} again"
            )


def _presence(runner: RunnerFacts, need: Need) -> Obstacle | None:
    name, seen = _name(runner), _until(runner.last_seen)
    since = "" if seen is None else f" since {seen}"
    if not runner.is_alive or runner.state is ManagerState.OFFLINE:
        return Obstacle("offline", f"{name} has been offline{since}", f"bring {name} back online")
    # Independent workers poll; only sockets can be closed.
    if runner.kind is not RunnerKind.INDEPENDENT and not runner.is_connected:
        return Obstacle(
            "disconnected", f"{name} is not connected{since}", f"bring {name} back online"
        )
    return None


def _choice(runner: RunnerFacts, need: Need) -> Obstacle | None:
    name = _name(runner)
    if runner.is_chosen:
        return None
    if runner.is_removed:
        return Obstacle(
            "removed", f"{name} was taken off the suite by hand", f"add {name} to the suite"
        )
    if not need.auto_match and not runner.is_matched:
        return Obstacle(
            "not_matched",
            f"the suite does not match by itself, and {name} was not added",
            f"add {name} to the suite, or refresh its managers",
        )
    return None


def _suite_tags(runner: RunnerFacts, need: Need) -> Obstacle | None:
    missing = need.tags - runner.tags
    return None if runner.is_chosen or not missing else _missing(runner, missing, "suite")


def _task_tags(runner: RunnerFacts, need: Need) -> Obstacle | None:
    """Of several kinds of tasks one is enough; the nearest one is named."""
    if not need.demands:
        return None
    gaps = [demand - runner.tags for demand in need.demands]
    nearest = min(gaps, key=lambda gap: (len(gap), sorted(gap)))
    if not nearest or nearest <= need.tags - runner.tags:
        return None
    return _missing(runner, nearest, "task")


def _missing(runner: RunnerFacts, missing: frozenset[str], whose: str) -> Obstacle:
    tags = ", ".join(sorted(missing))
    name = _name(runner)
    return Obstacle(
        "tags_missing", f"{name} lacks tags of the {whose}: {tags}", f"add {tags} to {name}"
    )


def _preparation(runner: RunnerFacts, need: Need) -> Obstacle | None:
    if runner.preparation_failure is None:
        return None
    return Obstacle(
        "preparation_failed",
        f"{_name(runner)} could not be prepared: {runner.preparation_failure}",
        "mend the preparation and resume the suite",
    )


def _exclusion(runner: RunnerFacts, need: Need) -> Obstacle | None:
    if runner.id not in need.excluded_ids:
        return None
    name = _name(runner)
    return Obstacle(
        "excluded", f"the task failed too often on {name}", f"let another than {name} run it"
    )


def _pin(runner: RunnerFacts, need: Need) -> Obstacle | None:
    if need.pinned_id is None or need.pinned_id == runner.id:
        return None
    return Obstacle(
        "pinned_elsewhere",
        "the task's resources are on another worker",
        "bring the worker with the resources online",
    )


def _lease(runner: RunnerFacts, need: Need) -> Obstacle | None:
    """What the manager does for a suite now."""
    name, engagement = _name(runner), runner.engagement
    if engagement is None:
        if runner.state in {ManagerState.IDLE, ManagerState.OFFLINE}:
            return None
        return Obstacle("busy", f"{name} is in {runner.state.value}", "wait until it is idle")
    if not engagement.is_ours:
        whom = (
            "another suite" if engagement.suite_uuid is None else f"suite {engagement.suite_uuid}"
        )
        until = format_rfc3339(engagement.lease_until)
        return Obstacle(
            "leased",
            f"{name} is leased to {whom} until {until}",
            f"wait until {until}, or add a manager"
            + ("" if need.priority > engagement.priority else ", or raise the suite's priority"),
        )
    return _own_engagement(name, engagement)


def _own_engagement(name: str, engagement: EngagementFacts) -> Obstacle | None:
    match engagement.state:
        case AssignmentState.ASSIGNED:
            return Obstacle("starting", f"{name} was given the suite", "wait for it to begin")
        case AssignmentState.PREPARING:
            return Obstacle(
                "preparing", f"{name} prepares its host for the suite", "wait for the preparation"
            )
        case AssignmentState.CLEANUP | AssignmentState.RELEASED:
            return Obstacle("cleaning_up", f"{name} cleans up after the suite", "wait for it")
        case AssignmentState.EXECUTING | AssignmentState.LINGERING:
            return None


def _commands(runner: RunnerFacts, need: Need) -> Obstacle | None:
    """A direct worker says which handlers it has; plain commands are one of them."""
    nodes = {tag for tag in runner.tags if tag.startswith(NODE_TAG_PREFIX)}
    if not nodes or node_tag(COMMAND_NODE) in nodes:
        return None
    if any(tag.startswith(NODE_TAG_PREFIX) for demand in need.demands for tag in demand):
        return None
    return Obstacle(
        "no_commands",
        f"{_name(runner)} runs handlers and no commands",
        f"let {_name(runner)} register `{COMMAND_NODE}`, or start another worker",
    )


def _busy(runner: RunnerFacts, need: Need) -> Obstacle | None:
    if not runner.is_busy:
        return None
    return Obstacle("busy", f"{_name(runner)} runs another task", "wait, or start another worker")


def _name(runner: RunnerFacts) -> str:
    kind = "manager" if runner.kind is RunnerKind.MANAGER else "worker"
    return f"{kind} {runner.uuid}"


def _until(moment: datetime | None) -> str | None:
    return None if moment is None else format_rfc3339(moment)


_Check = Callable[[RunnerFacts, Need], Obstacle | None]
_SUITE_CHECKS: Final[tuple[_Check, ...]] = (
    *(_role, _choice, _suite_tags, _task_tags, _preparation, _exclusion, _pin),
    *(_desired, _presence, _lease),
)
_WORKER_CHECKS: Final[tuple[_Check, ...]] = (
    *(_role, _task_tags, _commands, _exclusion, _pin, _desired, _presence, _busy),
)
