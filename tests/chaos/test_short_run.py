"""The short, seeded fault run of `make test`: every kind of fault against a fleet at work."""

from itertools import islice
from pathlib import Path

import pytest

from tests.chaos.__main__ import report
from tests.chaos.campaign import Campaign
from tests.chaos.strikes import (
    AGENTS,
    PARTS,
    STORE_FAULTS,
    WEB,
    WEIGHTS,
    draw,
)
from tests.figures import Figure

SEED = 20_261
FAULTS = 300
# On a machine that does nothing else it takes two and a half minutes.
TIME_LIMIT_S = 600


@pytest.mark.e2e
@pytest.mark.timeout(TIME_LIMIT_S)
def test_nothing_is_lost_doubled_stuck_or_miscounted_under_300_faults(
    passable_dir: Path, open_dir: Path, capsys: pytest.CaptureFixture[str], figure: Figure
) -> None:
    with capsys.disabled():
        print(f"\nchaos with seed {SEED}", flush=True)
        campaign = Campaign(passable_dir, open_dir, seed=SEED)
        verdict = campaign.run(lambda faults, _seconds: faults >= FAULTS)
        report(verdict)
        print(verdict, flush=True)
    assert verdict.found == []
    assert verdict.unexpected == []
    figure("fleet run: faults", verdict.faults, "faults", at_least=FAULTS)
    figure("fleet run: tasks acknowledged", verdict.tasks, "tasks", at_least=500)
    figure("fleet run: lost, doubled, stuck, drift", len(verdict.found), "tasks", at_most=0)


def test_a_seed_draws_the_same_strikes_again_and_every_kind_and_part_is_hit() -> None:
    first = list(islice(draw(SEED), 2000))
    assert first == list(islice(draw(SEED), 2000))
    assert first != list(islice(draw(SEED + 1), 2000))
    assert {strike.kind for strike in first} == set(WEIGHTS)
    for kind in ("kill", "pause"):
        assert {strike.target for strike in first if strike.kind == kind} == set(PARTS)
    hit = {(strike.kind, strike.target) for strike in first}
    assert ("restart", "s3") in hit
    assert {strike.detail for strike in first if strike.kind == "store"} == set(STORE_FAULTS)
    assert {target for kind, target in hit if kind == "clock"} == {"coordinators", *AGENTS, *WEB}
