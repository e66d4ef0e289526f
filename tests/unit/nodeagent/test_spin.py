"""Busy waiting: as long as it pays, and only while the agent says that there is room."""

import os
from pathlib import Path

import pytest

from nodeagent.ipc.crowd import Crowd, CrowdView
from nodeagent.ipc.spin import Spin

US = 1e-6


class Waits:
    """A clock that moves by a microsecond with every look, and answers that take their time."""

    def __init__(self, *, has_room: bool = True) -> None:
        self.now = 0.0
        self.has_room = has_room
        self.gave_way = 0
        self.spin = Spin(lambda: self.has_room, lambda: self.now, self._give_way)

    def _give_way(self) -> None:
        self.gave_way += 1

    def wait(self, answer_us: float) -> tuple[bool, float]:
        """Whether the spin saw the answer, and for how many microseconds it looked."""
        began = self.now

        def is_there() -> bool:
            self.now += US
            return self.now - began > (answer_us - 0.5) * US

        found = self.spin.until(is_there)
        return found, float(round((self.now - began) / US))


def test_an_answer_that_needs_the_agent_to_wake_up_is_still_seen() -> None:
    waits = Waits()
    assert [waits.wait(120) for _ in range(3)] == [(True, 120.0)] * 3


def test_an_agent_on_the_same_core_gets_its_turn_between_two_looks() -> None:
    waits = Waits()
    assert waits.wait(30) == (True, 30.0)
    assert waits.gave_way == 29


def test_without_room_nobody_looks() -> None:
    waits = Waits(has_room=False)
    assert waits.wait(5) == (False, 0.0)
    waits.has_room = True
    assert waits.wait(5)[0]


def test_a_worker_that_waits_for_work_soon_sleeps_at_once() -> None:
    waits = Waits()
    looked = [waits.wait(1e6)[1] for _ in range(600)]
    assert sum(us > 0 for us in looked) < 12
    assert max(looked) < 260


def test_after_misses_it_comes_back_when_answers_do() -> None:
    waits = Waits()
    for _ in range(3):
        waits.wait(1e6)
    assert any(waits.wait(40)[0] for _ in range(20))
    assert waits.wait(40)[0]


def test_the_time_follows_what_answers_take() -> None:
    waits = Waits()
    for _ in range(60):
        assert waits.wait(20)[0]
    found, looked = waits.wait(1e6)
    assert not found
    assert looked < 60
    for _ in range(4):  # the pause after a miss
        waits.wait(200)
    assert waits.wait(200)[0], "and it does not stay short when answers take longer"


def test_there_is_room_while_agent_and_workers_have_a_core_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: {0, 1, 2})
    crowd = Crowd(tmp_path)
    crowd.count(1)
    assert not CrowdView(tmp_path).has_room(), "nobody has said so"
    crowd.open()
    view = CrowdView(tmp_path)
    seen = []
    for workers in (1, 2, 3, 2):
        crowd.count(workers)
        seen.append(view.has_room())
    assert seen == [True, True, False, True]
    crowd.close()
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_worker_that_is_no_crowd_means_no_room(tmp_path: Path) -> None:
    (tmp_path / "crowd").touch()
    assert not CrowdView(tmp_path).has_room()
