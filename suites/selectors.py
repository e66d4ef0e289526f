"""Reads of suites: one the caller may reach, lists with filters, exact counts.

A suite of a group the caller does not belong to is absent. Called by the APIs of every app above.
"""

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from django.db import connection
from django.db.models import QuerySet

from accounts.models import User
from accounts.permissions import at_least
from accounts.selectors import find_role
from core.errors import NotFound, PermissionDenied
from core.pg import load_sql
from mitosis_protocol.enums import Role, SuiteState
from suites.models import TaskSuite

_COUNTS: Final = load_sql("suites", "counts")


@dataclass(frozen=True, slots=True)
class SuiteAccess:
    """A suite and the caller's role in its group."""

    suite: TaskSuite
    role: Role


@dataclass(frozen=True, slots=True)
class SuiteCounts:
    """Tasks by fate; `pending` is everything that has not ended yet."""

    total: int = 0
    pending: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0


NO_COUNTS: Final = SuiteCounts()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteFilter:
    """All conditions hold together; None asks for nothing."""

    group_name: str | None = None
    tags: Collection[str] | None = None
    labels: Collection[str] | None = None
    states: Collection[SuiteState] | None = None
    name_contains: str | None = None


def find_suite(suite_uuid: uuid.UUID) -> TaskSuite | None:
    rows = TaskSuite.objects.select_related("group", "creator")
    return rows.filter(uuid=suite_uuid).first()


def access_suite(actor: User, suite_uuid: uuid.UUID, role: Role) -> SuiteAccess:
    """The suite, if `actor` holds `role` or more in its group; NotFound for strangers."""
    suite = find_suite(suite_uuid)
    held = None if suite is None else find_role(user_id=actor.pk, group_id=suite.group_id)
    if suite is None or held is None:
        raise NotFound(f"Suite {suite_uuid} not found")
    if not at_least(held, role):
        raise PermissionDenied
    return SuiteAccess(suite=suite, role=held)


def list_suites(actor: User, wanted: SuiteFilter) -> QuerySet[TaskSuite]:
    """Suites of the caller's groups, newest first; the caller pages."""
    rows = TaskSuite.objects.select_related("group", "creator").of_member(actor.pk)
    if wanted.group_name is not None:
        rows = rows.filter(group__name=wanted.group_name)
    if wanted.tags is not None:
        rows = rows.tagged(wanted.tags)
    if wanted.labels is not None:
        rows = rows.labelled(wanted.labels)
    if wanted.states is not None:
        rows = rows.filter(state__in=list(wanted.states))
    if wanted.name_contains is not None:
        rows = rows.named_like(wanted.name_contains)
    return rows.order_by("-pk")


def suite_counts(suite_ids: Collection[int]) -> dict[int, SuiteCounts]:
    """Exact counts of each suite, in one statement; a suite without tasks has zeros."""
    counts = dict.fromkeys(suite_ids, NO_COUNTS)
    if counts:
        with connection.cursor() as cursor:
            cursor.execute(_COUNTS, {"suite_ids": list(counts)})
            counts.update({row[0]: SuiteCounts(*row[1:]) for row in cursor.fetchall()})
    return counts
