"""The list of managers, and what the page of one shows beside its row."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Count, QuerySet

from accounts.models import User
from console.selectors.names import RunnerName, runner_name
from console.viewer import Viewer
from core.clock import now
from managers.models import NodeManager, SuiteAssignment
from managers.selectors import ManagerFilter, engagements_of, list_managers
from mitosis_protocol.enums import ConsentState, DesiredState, ManagerState, RunnerKind
from tasks.models import ActiveTask, TaskExecutionFailure

PAGE: Final = 50
MAX_PAST: Final = 25
CRASH_WINDOW: Final = timedelta(hours=24)
WORKING: Final = (ManagerState.PREPARING, ManagerState.EXECUTING, ManagerState.CLEANUP)
STATES: Final[dict[str, tuple[ManagerState, ...]]] = {
    "online": tuple(state for state in ManagerState if state is not ManagerState.OFFLINE),
    "working": WORKING,
    "idle": (ManagerState.IDLE,),
    "offline": (ManagerState.OFFLINE,),
}
WISHES: Final = {state.value.lower(): state for state in DesiredState}


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerListFilter:
    """All conditions hold together; None asks for nothing."""

    state: str | None = None  # a key of STATES
    wish: str | None = None  # a key of WISHES
    group_name: str | None = None
    tag: str | None = None


@dataclass(frozen=True, slots=True)
class ManagerLine:
    """One manager of a list; `engagement` None also where its suite is not the viewer's matter."""

    node: NodeManager
    engagement: SuiteAssignment | None
    is_suite_visible: bool
    held: int

    @property
    def name(self) -> RunnerName:
        runner = self.node.runner
        return runner_name(runner.uuid, RunnerKind.MANAGER, runner.labels)

    @property
    def numbers(self) -> "Numbers":
        return Numbers.of(self.node)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The newest sample, as far as it holds numbers where we look for them."""

    families: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(cls, node: NodeManager) -> "Numbers":
        sample = node.metrics if isinstance(node.metrics, dict) else {}
        families = sample.get("families")
        found = families if isinstance(families, dict) else {}
        own = {name: value for name, value in sample.items() if name != "families"}
        return cls({"manager": own, **{k: v for k, v in found.items() if isinstance(v, dict)}})

    def get(self, family: str, name: str) -> float | None:
        value = self.families.get(family, {}).get(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            return None
        return float(value)

    def percent(self, family: str, used: str, total: str) -> float | None:
        part, whole = self.get(family, used), self.get(family, total)
        return 100 * part / whole if part is not None and whole else None

    @property
    def cpu(self) -> float | None:
        return self.get("system", "cpu_usage_percent")

    @property
    def memory(self) -> float | None:
        return self.percent("system", "memory_used_bytes", "memory_total_bytes")

    @property
    def disk(self) -> float | None:
        return self.percent("system", "disk_used_bytes", "disk_total_bytes")

    @property
    def workers(self) -> float | None:
        return self.get("manager", "active_workers")

    @property
    def executing(self) -> float | None:
        return self.get("worker_pool", "workers_executing")

    @property
    def worker_lines(self) -> list[tuple[str, str]]:
        """What each worker says of itself, by its local number."""
        pool = self.families.get("worker_pool", {})
        lines = [
            (int(name.removeprefix("worker_")), str(value)[:200])
            for name, value in pool.items()
            if name.removeprefix("worker_").isdecimal() and isinstance(value, str)
        ]
        return [(str(number), text) for number, text in sorted(lines)]


@dataclass(frozen=True, slots=True)
class ManagerPage:
    lines: list[ManagerLine]
    older: int | None


def read_manager_page(
    viewer: Viewer, wanted: ManagerListFilter, *, before: int | None = None
) -> ManagerPage:
    """Newest first."""
    rows = _visible(viewer, wanted)
    if wanted.wish is not None:
        rows = rows.filter(runner__desired_state=WISHES[wanted.wish])
    if before is not None:
        rows = rows.filter(pk__lt=before)
    found = list(rows.order_by("-pk")[: PAGE + 1])
    shown = found[:PAGE]
    return ManagerPage(_lines(viewer, shown), shown[-1].pk if len(found) > PAGE else None)


def read_manager_line(viewer: Viewer, node: NodeManager) -> ManagerLine:
    [line] = _lines(viewer, [node])
    return line


def read_engagements(node: NodeManager) -> list[SuiteAssignment]:
    """The newest engagements, the live one included."""
    rows = SuiteAssignment.objects.filter(manager_id=node.pk).select_related("suite__group")
    return list(rows.order_by("-pk")[:MAX_PAST])


def read_crashes(node: NodeManager) -> list[TaskExecutionFailure]:
    """Tasks that crashed here lately, newest first."""
    rows = TaskExecutionFailure.objects.filter(
        runner_id=node.pk, last_failure_at__gte=now() - CRASH_WINDOW
    )
    return list(rows.order_by("-last_failure_at")[:50])


def _visible(viewer: Viewer, wanted: ManagerListFilter) -> "QuerySet[NodeManager]":
    states = None if wanted.state is None else STATES[wanted.state]
    tags = None if wanted.tag is None else [wanted.tag]
    if viewer.member_id is not None:
        asked = ManagerFilter(group_name=wanted.group_name, tags=tags, states=states)
        return list_managers(User(pk=viewer.member_id), asked)
    rows = NodeManager.objects.select_related("runner", "runner__owner", "runner__lease")
    rows = rows.filter(runner__revoked_at__isnull=True)
    if states is not None:
        rows = rows.filter(state__in=states)
    if tags is not None:
        rows = rows.filter(runner__tags__contains=tags)
    if wanted.group_name is not None:
        rows = rows.filter(
            runner__group_roles__group__name=wanted.group_name,
            runner__group_roles__consent=ConsentState.ACCEPTED,
        )
    return rows


def _lines(viewer: Viewer, nodes: Sequence[NodeManager]) -> list[ManagerLine]:
    ids = [node.pk for node in nodes]
    engaged = engagements_of(ids)
    visible = viewer.group_ids()
    held = ActiveTask.objects.filter(runner_id__in=ids).values_list("runner_id")
    counts = dict(held.annotate(n=Count("pk")))
    return [
        ManagerLine(
            node,
            row := engaged.get(node.pk),
            row is not None and (visible is None or row.suite.group_id in visible),
            counts.get(node.pk, 0),
        )
        for node in nodes
    ]
