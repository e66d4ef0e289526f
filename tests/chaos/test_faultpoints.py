"""Every faultpoint a run may arm exists, in the program the plan says, and the plan can be read."""

from pathlib import Path

import pytest

from mitosis_protocol import faults
from tests.chaos.directed import plan
from tests.chaos.faultpoints import AGENT, COORDINATOR, ELSEWHERE, POINTS, WORKER
from tests.chaos.firings import Firings

ROOT = Path(__file__).parents[2]
SERVER = ("accounts", "managers", "runners", "suites", "tasks", "websocket", "workers")


def _source(*packages: str) -> str:
    files = (path for package in packages for path in (ROOT / package).rglob("*.py"))
    return "\n".join(path.read_text() for path in files)


def _occurs(name: str, source: str) -> bool:
    group, _, phase = name.partition(".mid_")
    built = f'"{group}.mid_{{' in source and phase in ("preparation", "cleanup")
    return f'"{name}"' in source or built


@pytest.mark.parametrize(
    ("points", "packages"),
    [
        ((*COORDINATOR, *ELSEWHERE), SERVER),
        (tuple(AGENT), ("nodeagent",)),
        (tuple(WORKER), ("nodeagent/worker",)),
    ],
)
def test_every_point_of_the_plan_is_in_the_code(
    points: tuple[str, ...], packages: tuple[str, ...]
) -> None:
    source = _source(*packages)
    assert [name for name in points if not _occurs(name, source)] == []


def test_every_point_can_be_armed() -> None:
    try:
        for name, hit in POINTS.items():
            faults.configure(f"{name}=kill9#{hit}")
            assert faults.is_armed()
    finally:
        faults.configure("")


def test_what_fired_is_read_from_logs_once_also_when_a_log_was_set_aside(tmp_path: Path) -> None:
    log, other = tmp_path / "a.log", tmp_path / "none.log"
    said = '{"event": "fault.injected", "point": "commit.in_txn", "action": "stop"}\n'
    log.write_text('{"event": "site.started"}\n' + said + said[:30])
    firings = Firings()
    assert firings.read([log, other]) == {"commit.in_txn stop": 1}
    with log.open("a") as out:
        out.write(said[30:])
    assert firings.read([log, other]) == {"commit.in_txn stop": 2}
    log.write_text(said)
    assert firings.read([log, other]) == {"commit.in_txn stop": 3}
    assert firings.points() == {"commit.in_txn"}


@pytest.mark.parametrize("point", POINTS)
def test_the_plan_of_every_point_ends_with_its_death(point: str) -> None:
    rules = [rule.strip() for rule in plan(point, 3).split(";")]
    assert all(rule.startswith(f"{point}=") for rule in rules)
    assert rules[-1] == f"{point}=kill9#3"
    try:
        faults.configure(plan(point, 3))
    finally:
        faults.configure("")
