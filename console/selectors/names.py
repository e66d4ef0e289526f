"""Names and uuids of what rows point at by number, read in sets."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from accounts.models import Group
from mitosis_protocol.enums import RunnerKind
from runners.models import Runner
from suites.models import TaskSuite


@dataclass(frozen=True, slots=True)
class SuiteName:
    uuid: UUID
    name: str

    @property
    def shown(self) -> str:
        return self.name or str(self.uuid)[:8]


@dataclass(frozen=True, slots=True)
class RunnerName:
    """A runner has no name of its own: its first label stands for one."""

    uuid: UUID
    kind: RunnerKind
    label: str

    @property
    def shown(self) -> str:
        return self.label or str(self.uuid)[:8]

    @property
    def is_manager(self) -> bool:
        return self.kind is RunnerKind.MANAGER


@dataclass(frozen=True, slots=True)
class Names:
    """By internal id."""

    groups: dict[int, str] = field(default_factory=dict)
    suites: dict[int, SuiteName] = field(default_factory=dict)
    runners: dict[int, RunnerName] = field(default_factory=dict)


def names_of(
    *,
    groups: Collection[int] = (),
    suites: Collection[int] = (),
    runners: Collection[int] = (),
) -> Names:
    """One statement per kind that was asked for."""
    return Names(
        groups=dict(Group.objects.filter(pk__in=groups).values_list("pk", "name"))
        if groups
        else {},
        suites=_suites(suites) if suites else {},
        runners=_runners(runners) if runners else {},
    )


def _suites(ids: Collection[int]) -> dict[int, SuiteName]:
    rows = TaskSuite.objects.filter(pk__in=ids).values_list("pk", "uuid", "name")
    return {pk: SuiteName(uuid, name or "") for pk, uuid, name in rows}


def _runners(ids: Collection[int]) -> dict[int, RunnerName]:
    rows = Runner.objects.filter(pk__in=ids).values_list("pk", "uuid", "kind", "labels")
    return {
        pk: runner_name(uuid, cast("RunnerKind", kind), labels) for pk, uuid, kind, labels in rows
    }


def runner_name(uuid: UUID, kind: RunnerKind, labels: Collection[str]) -> RunnerName:
    return RunnerName(uuid, kind, next(iter(labels), ""))
