"""Which cores a suite's workers get, and which GPUs."""

from pathlib import Path

import pytest

from mitosis_protocol.enums import CpuStrategy
from nodeagent.errors import LimitsUnenforceable
from nodeagent.pool import gpu
from nodeagent.pool.cpu import format_cores, parse_cores, plan

ROUND_ROBIN, EXCLUSIVE, SHARED = (
    CpuStrategy.ROUND_ROBIN,
    CpuStrategy.EXCLUSIVE,
    CpuStrategy.SHARED,
)
HOST = list(range(8))


def test_round_robin_deals_the_named_cores_out_in_turn() -> None:
    assert plan(ROUND_ROBIN, [4, 2, 6], None, 5, HOST) == [(4,), (2,), (6,), (4,), (2,)]


def test_round_robin_with_several_cores_each_wraps_around() -> None:
    assert plan(ROUND_ROBIN, [0, 1, 2], 2, 3, HOST) == [(0, 1), (0, 2), (1, 2)]


def test_exclusive_gives_every_worker_cores_of_its_own() -> None:
    planned = plan(EXCLUSIVE, [], 2, 4, HOST)
    assert planned == [(0, 1), (2, 3), (4, 5), (6, 7)]
    assert len({core for cores in planned for core in cores}) == 8


def test_exclusive_refuses_when_the_cores_do_not_suffice() -> None:
    with pytest.raises(LimitsUnenforceable, match=r"3 workers .* need 9 cores, .* are 8"):
        plan(EXCLUSIVE, [], 3, 3, HOST)


def test_shared_lets_everybody_use_all_of_them() -> None:
    assert plan(SHARED, [5, 1], None, 3, HOST) == [(1, 5)] * 3


def test_shared_with_a_number_takes_the_first_so_many() -> None:
    assert plan(SHARED, [], 3, 2, HOST) == [(0, 1, 2)] * 2


@pytest.mark.parametrize("strategy", list(CpuStrategy))
def test_no_named_cores_means_those_that_the_host_allows(strategy: CpuStrategy) -> None:
    planned = plan(strategy, [], None, 2, [3, 7])
    assert {core for cores in planned for core in cores} == {3, 7}


@pytest.mark.parametrize("strategy", list(CpuStrategy))
def test_a_core_that_the_host_does_not_have_is_refused_by_name(strategy: CpuStrategy) -> None:
    with pytest.raises(LimitsUnenforceable, match=r"no core 8, 99 .* has 0-7"):
        plan(strategy, [1, 99, 8], None, 2, HOST)


@pytest.mark.parametrize("strategy", list(CpuStrategy))
def test_more_cores_for_one_worker_than_there_are_is_refused(strategy: CpuStrategy) -> None:
    with pytest.raises(LimitsUnenforceable, match="9"):
        plan(strategy, [], 9, 1, HOST)


@pytest.mark.parametrize(
    ("cores", "text"),
    [([], ""), ([3], "3"), ([0, 1, 2, 5], "0-2,5"), ([7, 1, 6], "1,6-7")],
)
def test_lists_of_cores_are_written_and_read_as_the_kernel_does(
    cores: list[int], text: str
) -> None:
    assert format_cores(cores) == text
    assert parse_cores(text + "\n") == sorted(cores)


def test_gpus_are_split_over_workers() -> None:
    assert gpu.split(["0", "1", "2", "3"], 2) == [("0", "2"), ("1", "3")]
    assert gpu.split(["0", "1"], 2) == [("0",), ("1",)]


def test_more_workers_than_gpus_take_turns() -> None:
    assert gpu.split(["0", "1"], 5) == [("0",), ("1",), ("0",), ("1",), ("0",)]


def test_without_gpus_nothing_is_said_about_them() -> None:
    assert gpu.split([], 2) == [(), ()]
    assert gpu.visible((), has_gpus=False) == {}
    assert gpu.visible((), has_gpus=True) == {"CUDA_VISIBLE_DEVICES": ""}
    assert gpu.visible(("1", "3"), has_gpus=True) == {"CUDA_VISIBLE_DEVICES": "1,3"}


def test_devices_are_counted_by_number_and_nothing_else_is_taken_for_one(tmp_path: Path) -> None:
    for name in ("nvidia10", "nvidia2", "nvidia0", "nvidiactl", "nvidia-uvm", "nvidia0x"):
        (tmp_path / name).touch()
    assert gpu.find_devices(tmp_path) == ("0", "2", "10")
