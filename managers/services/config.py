"""The one versioned row of numbers an operator may change while the fleet runs."""

from collections.abc import Mapping

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.services.audit import record
from core.errors import Conflict, InvalidInput
from managers.models import SchedulerConfig
from managers.services.session_suites import tell_config
from mitosis_protocol.errors import ErrorCode

CHANGEABLE = (
    "suites_enabled",
    "lease_duration_s",
    "idle_threshold_s",
    "heartbeat_s",
    "quarantine_failures",
    "quarantine_window_s",
    "probe_after_s",
)


def read_config() -> SchedulerConfig:
    """The row; made with its defaults if somebody has emptied the table."""
    row, _ = SchedulerConfig.objects.get_or_create(pk=1)
    return row


def change_config(
    *, actor: Actor, changes: Mapping[str, int | bool], lease_ttl_s: float
) -> SchedulerConfig:
    """Set numbers and move the version on; raises InvalidInput naming the field.

    A heartbeat interval that the liveness lease cannot bear is refused: four beats must fit.
    """
    unknown = sorted(set(changes) - set(CHANGEABLE))
    if unknown or not changes:
        raise InvalidInput(f"{', '.join(unknown) or 'changes'}: not a setting of the scheduler")
    for name, value in changes.items():
        least = 0 if name in {"suites_enabled", "idle_threshold_s"} else 1
        if int(value) < least or int(value) > 2**31 - 1:
            raise InvalidInput(f"{name}: {value} is out of range")
    if 4 * int(changes.get("heartbeat_s", 0)) > lease_ttl_s:
        raise InvalidInput(f"heartbeat_s: four beats must fit the lease of {lease_ttl_s:g} s")
    with transaction.atomic():
        read_config()
        SchedulerConfig.objects.filter(pk=1).update(
            **changes, version=F("version") + 1, updated_at=Now()
        )
        record(actor=actor, action="config.change", target="scheduler", detail=dict(changes))
        config = read_config()
        tell_config(config)
    return config


def require_suites_enabled() -> None:
    """The roll-out switch: new suites are refused while it is off, running ones drain."""
    if not read_config().suites_enabled:
        raise Conflict(
            "Suites are switched off on this installation; running ones go on",
            code=ErrorCode.SUITES_DISABLED,
        )
