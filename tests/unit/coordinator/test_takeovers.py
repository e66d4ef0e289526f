"""Who counts as somebody else when sessions of one runner replace each other."""

from uuid import uuid4

from websocket.takeovers import WINDOW_S, Takeovers

RUNNER, PROCESS, OTHER = uuid4(), uuid4(), uuid4()


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_the_process_that_spoke_before_is_no_stranger() -> None:
    takeovers = Takeovers(Clock())
    takeover = takeovers.note(RUNNER, PROCESS)
    assert takeovers.count(RUNNER) == 1, "nobody has spoken yet"
    takeover.heard(PROCESS)
    assert takeovers.count(RUNNER) == 0


def test_another_process_and_one_that_never_speaks_are_strangers() -> None:
    takeovers = Takeovers(Clock())
    takeovers.note(RUNNER, PROCESS).heard(OTHER)
    takeovers.note(RUNNER, None).heard(OTHER)
    takeovers.note(RUNNER, OTHER)
    assert takeovers.count(RUNNER) == 3
    takeovers.forget(RUNNER)
    assert takeovers.count(RUNNER) == 0


def test_only_the_last_minute_counts() -> None:
    clock = Clock()
    takeovers = Takeovers(clock)
    takeovers.note(RUNNER, None)
    clock.now += WINDOW_S - 1
    takeovers.note(RUNNER, None)
    assert takeovers.count(RUNNER) == 2
    clock.now += 2
    assert takeovers.count(RUNNER) == 1
    takeovers.forget_old()
    clock.now += WINDOW_S
    takeovers.forget_old()
    assert takeovers.count(RUNNER) == 0
