"""Which managers may be given which suites: matched by tags and roles, or chosen by a person.

Matching runs when a suite is made, a manager registers, tags or roles change, and in a sweep; a
refresh forces it. All of it under one lock, so matchings never wait for each other's rows.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from django.db import connection
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.models import User
from accounts.services.audit import record
from core.locks import advisory_xact_lock, try_advisory_xact_lock
from core.pg import load_sql
from managers.models import SuiteManager
from mitosis_protocol.enums import ConsentState, Role, RunnerKind, SelectionType
from runners.models import GroupRunner, Runner
from suites.models import TaskSuite

_MATCH: Final = load_sql("managers", "match")
_DRIFT: Final = load_sql("managers", "drift")
LOCK: Final = "managers.matching"
# Pairs are suites times managers: with a thousand managers a statement handles 20,000, which is
# half a second at most on a loaded machine and keeps the lock short.
SUITES_PER_SWEEP: Final = 20


@dataclass(frozen=True, slots=True)
class Matched:
    """Pairs of suite id and manager uuid that came and went."""

    added: list[tuple[int, uuid.UUID]] = field(default_factory=list)
    removed: list[tuple[int, uuid.UUID]] = field(default_factory=list)

    @property
    def count(self) -> int:
        return len(self.added) + len(self.removed)


@dataclass(frozen=True, slots=True)
class Added:
    """The answer to an explicit choice; `reason` says why some were rejected."""

    added: list[uuid.UUID]
    rejected: list[uuid.UUID]
    reason: str | None


def match_suites(suite_ids: Collection[int]) -> Matched:
    """After suites were made or changed hands; respects `auto_match`."""
    return _match(suite_ids=list(suite_ids), manager_ids=None)


def match_managers(manager_ids: Collection[int]) -> Matched:
    """After managers registered or their tags or roles changed."""
    return _match(suite_ids=None, manager_ids=list(manager_ids))


def sweep_matches() -> Matched:
    """Everything that is live, for what the triggers above have missed: usually nothing."""
    drifted = find_drift()
    found = Matched()
    for start in range(0, len(drifted), SUITES_PER_SWEEP):
        with try_advisory_xact_lock(LOCK) as is_mine:
            if not is_mine:
                return found
            part = _match(suite_ids=drifted[start : start + SUITES_PER_SWEEP], manager_ids=None)
        found.added.extend(part.added)
        found.removed.extend(part.removed)
    return found


def find_drift() -> list[int]:
    """Live suites whose stored managers may not be those of the rule; one read."""
    with connection.cursor() as cursor:
        cursor.execute(_DRIFT)
        return [int(row[0]) for row in cursor.fetchall()]


def refresh_suite(*, actor: Actor, user: User | None, suite: TaskSuite) -> Matched:
    """Match now, also for `auto_match: false`, and put back what was taken off by hand."""
    matched = _match(
        suite_ids=[suite.pk],
        manager_ids=None,
        is_refresh=True,
        user_id=None if user is None else user.pk,
    )
    detail = {"added": len(matched.added), "removed": len(matched.removed)}
    record(actor=actor, action="suite.managers.refresh", target=str(suite.uuid), detail=detail)
    return matched


def add_managers(
    *, actor: Actor, user: User, suite: TaskSuite, manager_uuids: Collection[uuid.UUID]
) -> Added:
    """Choose managers by hand: all of them, or none if one may not be chosen.

    Tags do not matter, the group's Write role does. A manager the group has no role on is rejected
    exactly like one that does not exist.
    """
    wanted = sorted(set(manager_uuids))
    with advisory_xact_lock(LOCK):
        permitted = _writable(suite.group_id, wanted)
        rejected = [one for one in wanted if one not in permitted]
        if rejected:
            reason = (
                f"Group '{suite.group.name}' does not have Write role on manager '{rejected[0]}'"
            )
            return Added(added=[], rejected=rejected, reason=reason)
        rows = [
            SuiteManager(
                suite=suite,
                manager_id=permitted[one],
                selection_type=SelectionType.USER_SPECIFIED,
                added_at=Now(),
                added_by_user=user,
            )
            for one in wanted
        ]
        SuiteManager.objects.bulk_create(
            rows,
            update_conflicts=True,
            unique_fields=["suite", "manager"],
            update_fields=["selection_type", "added_at", "added_by_user", "removed_at"],
        )
        detail = {"managers": [str(one) for one in wanted]}
        record(actor=actor, action="suite.managers.add", target=str(suite.uuid), detail=detail)
    return Added(added=wanted, rejected=[], reason=None)


def remove_managers(*, actor: Actor, suite: TaskSuite, manager_uuids: Collection[uuid.UUID]) -> int:
    """Take managers off; answers how many were eligible. Matching does not put them back.

    A running engagement is given back by the scheduler at its next pass.
    """
    with advisory_xact_lock(LOCK):
        rows = SuiteManager.objects.filter(
            suite=suite, manager__runner__uuid__in=list(manager_uuids), removed_at__isnull=True
        )
        removed = SuiteManager.objects.filter(pk__in=list(rows.values_list("pk", flat=True)))
        count = removed.update(selection_type=SelectionType.TAG_MATCHED, removed_at=Now())
        detail = {"managers": sorted(str(one) for one in manager_uuids)}
        record(actor=actor, action="suite.managers.remove", target=str(suite.uuid), detail=detail)
    return count


def _writable(group_id: int, manager_uuids: Collection[uuid.UUID]) -> dict[uuid.UUID, int]:
    """Those the group may use, uuid to id."""
    rows = GroupRunner.objects.filter(
        group_id=group_id,
        role__in=[Role.WRITE, Role.ADMIN],
        consent=ConsentState.ACCEPTED,
        runner__kind=RunnerKind.MANAGER,
        runner__revoked_at__isnull=True,
        runner__uuid__in=list(manager_uuids),
    )
    ids = list(rows.values_list("runner_id", flat=True))
    return dict(Runner.objects.filter(pk__in=ids).values_list("uuid", "pk"))


def _match(
    *,
    suite_ids: list[int] | None,
    manager_ids: list[int] | None,
    is_refresh: bool = False,
    user_id: int | None = None,
) -> Matched:
    parameters = {
        "suite_ids": suite_ids,
        "manager_ids": manager_ids,
        "is_refresh": is_refresh,
        "user_id": user_id,
    }
    matched = Matched()
    with advisory_xact_lock(LOCK), connection.cursor() as cursor:
        cursor.execute(_MATCH, parameters)
        for verb, suite_id, manager_uuid in cursor.fetchall():
            pile = matched.added if verb == "added" else matched.removed
            pile.append((suite_id, manager_uuid))
    return matched
