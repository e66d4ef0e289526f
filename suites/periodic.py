"""Periodic jobs of suites; collected by mitosis_site.celery. Each is one idempotent sweep."""

from typing import Final

from celery import shared_task
from django.conf import settings

from managers.services.sweeps import note_run, run_sweep
from tasks.services.suite_hopeless import end_hopeless

CLOSE_IDLE: Final = "suites.close_idle"
COMPLETE_DRAINED: Final = "suites.complete_drained"
STOP_FAILING: Final = "suites.stop_failing"
END_HOPELESS: Final = "suites.end_hopeless_tasks"

SCHEDULE: Final = dict.fromkeys(
    (CLOSE_IDLE, COMPLETE_DRAINED, STOP_FAILING, END_HOPELESS), settings.MITOSIS.sweep_s
)


@shared_task(name=CLOSE_IDLE)
def close_idle_suites() -> int:
    """Open suites nobody submitted to for a while."""
    return run_sweep(CLOSE_IDLE)


@shared_task(name=COMPLETE_DRAINED)
def complete_drained_suites() -> int:
    """Suites whose last task ended."""
    return run_sweep(COMPLETE_DRAINED)


@shared_task(name=STOP_FAILING)
def stop_failing_suites() -> int:
    """Suites whose failures passed their limit."""
    return run_sweep(STOP_FAILING)


@shared_task(name=END_HOPELESS)
def end_hopeless_tasks() -> int:
    """Tasks that every eligible manager has given up."""
    ended = end_hopeless(max_tasks=settings.MITOSIS.sweep_batch)
    note_run(END_HOPELESS)
    return ended
