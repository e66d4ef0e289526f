"""Managers made through the services, connected and at work, and the time that passes for them."""

from typing import Any

from django.conf import settings
from django.db import connection

from accounts.actors import SYSTEM
from accounts.models import User
from managers.models import NodeManager, SuiteAssignment
from managers.services.engagement import begin_preparation, finish_preparation
from managers.services.registration import NewManager, RegisteredManager, register_manager
from mitosis_protocol.enums import ConnState, ManagerState
from runners.models import Runner


def register(owner: User, *tags: str, groups: list[str] | None = None, **more: Any) -> Runner:
    return registered(owner, *tags, groups=groups, **more).runner


def registered(
    owner: User, *tags: str, groups: list[str] | None = None, **more: Any
) -> RegisteredManager:
    policy = settings.MITOSIS
    new = NewManager(
        tags=tags,
        labels=[],
        groups=groups or [],
        lease_ttl_s=policy.lease_ttl_s,
        access_s=policy.manager_access_s,
        lifetime_s=more.get("lifetime_s", policy.token_lifetime_max_s),
    )
    return register_manager(actor=SYSTEM, owner=owner, new=new)


def connect(*runners: Runner) -> None:
    """As if each had opened its socket."""
    Runner.objects.filter(pk__in=[one.pk for one in runners]).update(conn_state=ConnState.CONNECTED)


def engagement_of(runner: Runner) -> SuiteAssignment | None:
    return SuiteAssignment.objects.filter(manager_id=runner.pk, released_at__isnull=True).first()


def start_work(runner: Runner) -> SuiteAssignment:
    """The manager takes up what it was assigned and prepares without trouble."""
    row = engagement_of(runner)
    assert row is not None
    begin_preparation(manager_id=runner.pk, assignment_id=row.pk)
    finish_preparation(manager_id=runner.pk, assignment_id=row.pk)
    NodeManager.objects.filter(pk=runner.pk).update(state=ManagerState.EXECUTING)
    row.refresh_from_db()
    return row


def age(table: str, where: str, **seconds: float) -> None:
    """Move columns of rows into the past."""
    changes = ", ".join(
        f"{name} = {name} - make_interval(secs => {s})" for name, s in seconds.items()
    )
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {table} SET {changes} WHERE {where}")
