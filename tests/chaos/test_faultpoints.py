"""Every faultpoint a run may arm exists, in the program the plan says, and the plan can be read."""

from pathlib import Path

import pytest

from mitosis_protocol import faults
from tests.chaos.faultpoints import AGENT, COORDINATOR, ELSEWHERE, WORKER

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
        for name, hit in {**COORDINATOR, **AGENT, **WORKER}.items():
            faults.configure(f"{name}=kill9#{hit}")
            assert faults.is_armed()
    finally:
        faults.configure("")
