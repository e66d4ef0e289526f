"""Writes what `source` reads, in one transaction of this database: all of it, or nothing.

Every step adds what is not here yet and leaves what is, so that a repetition adds what is new in
the source and nothing else. A dry run is the same run, rolled back at the end.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import connection, transaction

from accounts.actors import SYSTEM
from accounts.models import Group, User
from accounts.services.audit import record
from core.errors import Conflict
from core.locks import advisory_xact_lock
from core.pg import load_sql
from mitosis_protocol.enums import ConnState, ConsentState, DesiredState, RunnerKind
from mitosis_site.importing import rows
from mitosis_site.importing.rows import Row, Unusable
from mitosis_site.importing.source import Source

LOCK_KEY: Final = "site.import"
MAX_NAMED: Final = 20  # refused rows told one by one; more of the same help nobody


@dataclass
class Count:
    """What became of the rows of one kind."""

    found: int = 0
    added: int = 0
    refused: int = 0

    @property
    def known(self) -> int:
        """Were here already, or belong to something that was refused."""
        return self.found - self.added - self.refused


@dataclass
class Report:
    """What an import did, or in a dry run would have done."""

    counts: dict[str, Count] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)

    @property
    def refused(self) -> int:
        return sum(count.refused for count in self.counts.values())


class RowsRefused(Exception):
    """Some rows cannot be taken over and nobody said to go on without them."""

    def __init__(self, report: Report) -> None:
        super().__init__(f"{report.refused} rows cannot be taken over")
        self.report = report


@dataclass(frozen=True)
class Step:
    """One kind of rows: how one is turned, what names it in a refusal, what the SQL needs."""

    name: str
    turn: Callable[[Row], Row]
    label: str
    parameters: dict[str, Any] = field(default_factory=dict)


def import_all(source: Source, *, dry_run: bool, skip_unusable: bool) -> Report:
    """Raises Conflict for names that mean different things, RowsRefused for unusable rows."""
    report = Report()
    with transaction.atomic(), advisory_xact_lock(LOCK_KEY):
        with connection.cursor() as cursor:
            # A large archive takes as long as it takes, and the source may be slow to answer.
            cursor.execute("SET LOCAL statement_timeout = 0")
            cursor.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        _refuse_other_names(source)
        for step in _steps():
            report.counts[step.name] = _run(step, source, report)
        _join_waiting(source)
        for batch in source.batches("groups"):
            _execute("totals", {"rows": _encode(batch)})
        if report.refused and not skip_unusable:
            raise RowsRefused(report)
        if dry_run:
            transaction.set_rollback(True)
        else:
            added = {name: count.added for name, count in report.counts.items()}
            record(actor=SYSTEM, action="site.import", detail=added)
    return report


def _steps() -> Sequence[Step]:
    """In the order in which rows need each other; ended tasks first, so that ids grow with age."""
    worker_codes = {
        "independent": RunnerKind.INDEPENDENT.code,
        "lost": ConnState.LOST.code,
        "shutdown": DesiredState.SHUTDOWN.code,
        "lease_ttl_s": settings.MITOSIS.existing_worker_lease_s,
    }
    accepted = {"accepted": ConsentState.ACCEPTED.code}
    return (
        Step("users", rows.user_row, "username"),
        Step("groups", dict, "name"),
        Step("memberships", dict, "username"),
        Step("workers", rows.worker_row, "uuid", worker_codes),
        Step("worker_roles", dict, "uuid", accepted),
        Step("archived_tasks", rows.archived_row, "uuid"),
        Step("active_tasks", rows.active_row, "uuid"),
        Step("artifacts", rows.artifact_row, "task_uuid"),
        Step("attachments", rows.attachment_row, "key"),
    )


def _run(step: Step, source: Source, report: Report) -> Count:
    count = Count()
    for batch in source.batches(step.name):
        usable = list(_usable(step, batch, report))
        count.found += len(batch)
        count.refused += len(batch) - len(usable)
        [(added,)] = _fetch(step.name, {"rows": _encode(usable), **step.parameters})
        count.added += added
    return count


def _usable(step: Step, batch: Sequence[Row], report: Report) -> Iterator[Row]:
    for row in batch:
        try:
            yield step.turn(row)
        except Unusable as reason:
            if len(report.refusals) < MAX_NAMED:
                report.refusals.append(f"{step.name} {row[step.label]}: {reason}")


def _join_waiting(source: Source) -> None:
    for batch in source.batches("active_tasks"):
        uuids = [row["uuid"] for row in batch if row["has_active_upstream"]]
        [(_, ids, counts)] = _fetch("edges", {"uuids": uuids})
        if ids:
            _execute("dependents", {"ids": ids, "counts": counts})
        # What it waited for has ended here, or was refused.
        _execute("release", {"uuids": uuids})


def _refuse_other_names(source: Source) -> None:
    """Users and groups share one namespace; a name must not be a user there and a group here."""
    users = {row["username"] for batch in source.batches("users") for row in batch}
    groups = {row["name"]: row["creator"] for batch in source.batches("groups") for row in batch}
    our_users = set(
        User.objects.filter(username__in={*users, *groups}).values_list("username", flat=True)
    )
    our_groups = set(Group.objects.filter(name__in=users).values_list("name", flat=True))
    differ = our_groups - our_users
    differ |= {name for name in our_users if groups.get(name, name) != name}
    if differ:
        raise Conflict(
            "source: these names are users on one server and groups on the other: "
            f"{', '.join(sorted(differ))}"
        )


def _encode(batch: Sequence[Row]) -> str:
    return msgspec.json.encode(batch).decode()


def _fetch(name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(load_sql("mitosis_site", f"import/{name}"), parameters)
        return list(cursor.fetchall())


def _execute(name: str, parameters: dict[str, Any]) -> None:
    with connection.cursor() as cursor:
        cursor.execute(load_sql("mitosis_site", f"import/{name}"), parameters)
