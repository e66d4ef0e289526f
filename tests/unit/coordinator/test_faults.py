"""Faultpoints: free when unset, exact when set. The lethal actions are tested with processes."""

import time
import timeit

import pytest

from core import faults
from core.errors import ChannelLayerUnavailable, DatabaseUnavailable, StorageUnavailable
from mitosis_protocol.errors import InvalidValue


@pytest.fixture(autouse=True)
def _disarmed():
    faults.configure(None)
    yield
    faults.configure(None)


def hits(name: str, times: int) -> list[bool]:
    def hit() -> bool:
        try:
            faults.fault(name)
        except faults.FaultInjected:
            return True
        return False

    return [hit() for _ in range(times)]


async def test_nothing_happens_without_a_plan():
    assert not faults.is_armed()
    faults.fault("commit.in_txn")
    await faults.afault("commit.in_txn")
    assert faults.deliveries("claim.sent") == 1


def test_an_unset_faultpoint_costs_about_a_function_call():
    # The best of several runs: a busy machine makes single ones slow, but none of them fast.
    runs = timeit.repeat(lambda: faults.fault("commit.in_txn"), number=10_000, repeat=10)
    assert min(runs) / 10_000 < 2e-6


def test_what_is_done_is_said_first(capfd: pytest.CaptureFixture[str]):
    faults.configure("commit.*=exc#2")
    assert hits("commit.in_txn", 3) == [False, True, False]
    said = '{"event": "fault.injected", "point": "commit.in_txn", "action": "exc"}\n'
    assert capfd.readouterr().err == said


async def test_exc_raises_at_the_named_point_only():
    faults.configure("commit.in_txn=exc")
    assert faults.is_armed()
    with pytest.raises(faults.FaultInjected, match=r"commit\.in_txn"):
        faults.fault("commit.in_txn")
    with pytest.raises(faults.FaultInjected):
        await faults.afault("commit.in_txn")
    faults.fault("commit.in_txn_too")
    faults.fault("claim.before_commit")


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("database", DatabaseUnavailable),
        ("storage", StorageUnavailable),
        ("channel_layer", ChannelLayerUnavailable),
    ],
)
def test_exc_may_raise_one_of_our_own_errors(name, kind):
    faults.configure(f"x=exc:{name}")
    with pytest.raises(kind):
        faults.fault("x")


def test_a_star_covers_a_family():
    faults.configure("commit.*=exc")
    assert hits("commit.in_txn", 1) == [True]
    assert hits("committed", 1) == [False]


def test_a_hit_number_acts_once_and_with_plus_from_there_on():
    faults.configure("x=exc#3")
    assert hits("x", 5) == [False, False, True, False, False]
    faults.configure("x=exc#3+")
    assert hits("x", 5) == [False, False, True, True, True]


def test_probability_follows_the_seeded_dice():
    faults.configure("seed=7; x=exc@0.3")
    first = hits("x", 1000)
    assert 200 < sum(first) < 400
    faults.configure("seed=7; x=exc@0.3")
    assert hits("x", 1000) == first
    faults.configure("x=exc@0")
    assert not any(hits("x", 100))


def test_later_rules_get_their_turn_when_earlier_ones_do_not_fire():
    faults.configure("x=delay:0#1; x=exc")
    assert hits("x", 2) == [False, True]


async def test_delay_waits():
    faults.configure("x=delay:0.05")
    for call in (lambda: faults.fault("x"), lambda: faults.deliveries("x")):
        started = time.monotonic()
        call()
        assert time.monotonic() - started >= 0.05
    started = time.monotonic()
    await faults.afault("x")
    assert time.monotonic() - started >= 0.04


def test_delivery_points_drop_and_duplicate():
    faults.configure("a=drop; b=dup#2")
    assert [faults.deliveries("a"), faults.deliveries("a")] == [0, 0]
    assert [faults.deliveries("b") for _ in range(3)] == [1, 2, 1]
    assert faults.deliveries("c") == 1


def test_other_actions_work_at_delivery_points_too():
    faults.configure("a=exc")
    with pytest.raises(faults.FaultInjected):
        faults.deliveries("a")


async def test_drop_at_a_point_that_sends_nothing_is_an_error():
    faults.configure("a=drop; b=dup")
    with pytest.raises(faults.FaultMisused):
        faults.fault("a")
    with pytest.raises(faults.FaultMisused):
        await faults.afault("b")


@pytest.mark.parametrize(
    "spec",
    [
        "x",
        "x=",
        "x=explode",
        "x=delay",
        "x=delay:soon",
        "x=stop:soon",
        "x=exc:unheard_of",
        "x=exc@2",
        "x=exc@1.2.3",
        "x=exc#",
        "X Y=exc",
        "a=exc, b=exc",
    ],
)
def test_a_rule_that_cannot_be_read_is_refused(spec):
    with pytest.raises(InvalidValue):
        faults.configure(spec)
    assert not faults.is_armed()


@pytest.mark.parametrize("spec", [None, "", " ; ", "seed=3"])
def test_a_spec_without_rules_disarms(spec):
    faults.configure("x=exc")
    faults.configure(spec)
    assert not faults.is_armed()
