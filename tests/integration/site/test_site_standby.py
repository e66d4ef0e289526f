"""Who runs the periodic jobs when Celery beat does not."""

import pytest

from managers.models import SweepRun
from managers.services.sweeps import SWEEPS, note_run
from mitosis_site.standby import JOBS, run_silent_jobs

EVERYTHING = {*JOBS, *(sweep.name for sweep in SWEEPS)}


@pytest.fixture
def silent(db: None) -> None:
    """As after a start: nobody has run anything yet."""
    SweepRun.objects.all().delete()


@pytest.mark.usefixtures("silent")
def test_when_beat_is_silent_the_coordinator_runs_every_job() -> None:
    assert set(run_silent_jobs()) == EVERYTHING
    assert set(SweepRun.objects.values_list("name", flat=True)) == EVERYTHING


@pytest.mark.usefixtures("silent")
def test_while_beat_is_alive_the_coordinator_does_nothing() -> None:
    for name in EVERYTHING:
        note_run(name)
    assert run_silent_jobs() == []


@pytest.mark.usefixtures("silent")
def test_only_the_silent_job_is_taken_over() -> None:
    for name in EVERYTHING - {"tasks.reap"}:
        note_run(name)
    assert run_silent_jobs() == ["tasks.reap"]
