"""Which of what a manager sends becomes history."""

import pytest

from managers.metrics import MAX_NUMBERS, numbers_of, split_name
from managers.selectors_metrics import History


def test_numbers_are_named_by_family() -> None:
    sent = {
        "active_workers": 16,
        "cpu_usage_percent": 12.5,
        "families": {"system": {"load_avg_1min": 0.5, "host": "n1"}, "ipc": {"errors_total": 3}},
    }
    assert numbers_of(sent) == {
        "manager.active_workers": 16,
        "manager.cpu_usage_percent": 12.5,
        "system.load_avg_1min": 0.5,
        "ipc.errors_total": 3,
    }


def test_families_may_stand_beside_the_numbers_under_their_long_names() -> None:
    sent = {"system_metrics": {"cpu_usage_percent": 1}, "lease_metrics": {"lease_renewals": 2}}
    assert numbers_of(sent) == {"system.cpu_usage_percent": 1, "lease.lease_renewals": 2}


@pytest.mark.parametrize(
    "value", [True, None, "7", [1, 2], {"deep": 1}, float("nan"), float("inf"), 10**400]
)
def test_what_is_no_finite_number_has_no_history(value: object) -> None:
    assert numbers_of({"odd": value, "families": {"system": {"odd": value}}}) in (
        {},
        {"odd.deep": 1},
    )


@pytest.mark.parametrize("name", ["", "a.b", "a\x00b", "x" * 65])
def test_names_that_could_be_mistaken_are_left_out(name: str) -> None:
    assert numbers_of({name: 1, "families": {name: {"fine": 1}}}) == {}


def test_a_sample_is_bounded() -> None:
    assert len(numbers_of({f"n{number}": number for number in range(1000)})) == MAX_NUMBERS


def test_a_name_can_be_taken_apart() -> None:
    assert split_name("system.load_avg_1min") == ("system", "load_avg_1min")


def test_a_counter_that_begins_again_counts_from_zero() -> None:
    history = History(30, peaks={"manager.n": [None, 5.0, 9.0, None, 2.0, 4.0]})
    assert history.growth("manager.n") == 4 + 2 + 2
    assert history.growth("manager.unknown") == 0
