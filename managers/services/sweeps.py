"""The sweeps of suites and managers: which, how often, and who runs them when beat does not.

A periodic job calls `run_sweep`; a coordinator process calls `run_due_sweeps` every few seconds,
which runs only what has been silent for two periods. Both note the run in the database, under an
advisory lock per sweep, so two beats, or beat and coordinator, never do the same work twice.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import structlog
from django.conf import settings
from django.db import connection

from core.locks import try_advisory_xact_lock
from core.pg import load_sql
from managers.services import eligibility, expiry, metrics_history, quarantine, scheduler
from managers.services.announcements import tell_of_pass
from runners.services.presence import is_served
from suites.services import sweeps as suite_sweeps

log = structlog.get_logger(__name__)

_NOTE: Final = load_sql("managers", "note_sweep")
_RECENT: Final = (
    "SELECT name FROM sweep_runs WHERE name = ANY (%s)"
    " AND last_run_at > clock_timestamp() - make_interval(secs => %s)"
)
MATCHING_PERIODS: Final = 60  # matching has triggers; the sweep only finds what they missed
ROLL_UP_PERIODS: Final = 60  # an hour is summarised a few minutes after its end
PARTITION_PERIODS: Final = 720


@dataclass(frozen=True, slots=True)
class Sweep:
    """One idempotent statement with a name and a period; `call` answers how much it changed."""

    name: str
    call: Callable[[], int]
    periods: int = 1  # of the policy's sweep_s


def _close_idle() -> int:
    policy = settings.MITOSIS
    return len(suite_sweeps.close_idle(idle_s=policy.suite_idle_close_s, batch=policy.sweep_batch))


def _complete_drained() -> int:
    return len(suite_sweeps.complete_drained(batch=settings.MITOSIS.sweep_batch))


def _stop_failing() -> int:
    return len(suite_sweeps.stop_failing(batch=settings.MITOSIS.sweep_batch))


def _expire() -> int:
    policy = settings.MITOSIS
    if not is_served(lease_ttl_s=policy.lease_ttl_s):
        return 0
    gone = expiry.expire_managers(
        grace_s=policy.reaper_grace_s,
        lease_ttl_s=policy.lease_ttl_s,
        mass_expiry_ratio=policy.mass_expiry_ratio,
        batch=policy.sweep_batch,
    )
    return len(gone)


def _quarantine() -> int:
    return len(quarantine.quarantine_suspects()) + len(quarantine.probe_quarantined())


def _schedule() -> int:
    result = scheduler.run_pass()
    tell_of_pass(result)
    return result.count


def _roll_up_metrics() -> int:
    return metrics_history.roll_up_hours(sample_days=settings.MITOSIS.metrics_days)


def _keep_partitions() -> int:
    policy = settings.MITOSIS
    return metrics_history.keep_partitions(
        sample_days=policy.metrics_days, hourly_days=policy.metrics_hourly_days
    )


SWEEPS: Final[Sequence[Sweep]] = (
    Sweep("suites.close_idle", _close_idle),
    Sweep("suites.complete_drained", _complete_drained),
    Sweep("suites.stop_failing", _stop_failing),
    Sweep("managers.expire", _expire),
    Sweep("managers.quarantine", _quarantine),
    Sweep("managers.match", lambda: eligibility.sweep_matches().count, MATCHING_PERIODS),
    Sweep("managers.schedule", _schedule),
    Sweep("managers.roll_up_metrics", _roll_up_metrics, ROLL_UP_PERIODS),
    Sweep("managers.keep_partitions", _keep_partitions, PARTITION_PERIODS),
)


def run_sweep(name: str, sweeps: Iterable[Sweep] = SWEEPS) -> int:
    """Run one now, unless somebody else is at it; answers how much it changed."""
    [sweep] = [one for one in sweeps if one.name == name]
    with try_advisory_xact_lock(f"sweep.{name}") as is_mine:
        if not is_mine:
            return 0
        changed = sweep.call()
        note_run(name)
    return changed


def run_due_sweeps(sweeps: Sequence[Sweep] = SWEEPS) -> list[str]:
    """Run what has been silent for too long; answers the names. Beat alive: nothing is done."""
    policy = settings.MITOSIS
    by_patience: dict[float, list[Sweep]] = {}
    for sweep in sweeps:
        patience_s = sweep.periods * policy.sweep_s * policy.beat_silence_periods
        by_patience.setdefault(patience_s, []).append(sweep)
    due: list[str] = []
    for patience_s, group in by_patience.items():
        due += find_silent([one.name for one in group], patience_s=patience_s)
    if due:
        log.info("sweeps.fallback", names=due)
    for name in due:
        run_sweep(name, sweeps)
    return due


def find_silent(names: Collection[str], *, patience_s: float) -> list[str]:
    """Those of the names that nobody has noted for that long."""
    with connection.cursor() as cursor:
        cursor.execute(_RECENT, [list(names), patience_s])
        recent = {row[0] for row in cursor.fetchall()}
    return [name for name in names if name not in recent]


def note_run(name: str) -> None:
    """Say that a sweep ran just now."""
    with connection.cursor() as cursor:
        cursor.execute(_NOTE, {"name": name})
