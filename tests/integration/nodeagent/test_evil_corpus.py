"""Programs of bad will (tests/evil): only their attempt dies, as what it was, and nothing stays.

Each runs in a slot of its own limits, beside an honest neighbour, and is followed by an honest
command in the same slot.
"""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.fakes.pool_lab import PYTHON, LabWorker, PoolLab, running_pool
from tests.figures import Figure

pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.cgroup,
    pytest.mark.timeout(240),
]

CORPUS = Path(__file__).parents[2] / "evil"
PIDS = 40
LIMITS = {"memory": 64 << 20, "pids": PIDS}
AT_ONCE = 3
TIME_S = 1.5
GRACE_S = 0.2
# Before each program: where the sandbox fails, the test has to fail and not the machine.
CAUTION = "import os; os.getuid() >= 60_000 or os._exit(99)\n"


@dataclass(frozen=True)
class End:
    """What its attempt has to be called: why it ended, by which signal or with which code."""

    cause: str = "exited"
    signal: int = 0
    code: int = 0
    is_oom: bool = False

    def __str__(self) -> str:
        said = [self.cause]
        said += [f"signal {self.signal}"] if self.signal else []
        said += [f"code {self.code}"] if self.code else []
        return " ".join([*said, *["oom"] * self.is_oom])


FINE = End()
TIMED_OUT = End("timed_out")
KILLED = End(signal=signal.SIGKILL)
OOM = End(signal=signal.SIGKILL, is_oom=True)
EXPECTED = {
    "becomes_root": FINE,
    "busy": TIMED_OUT,
    "changes_the_machine": FINE,
    "closes_everything": TIMED_OUT,
    "crash": End(signal=signal.SIGABRT),
    "daemon": FINE,
    "deaf": TIMED_OUT,
    "descriptors": End(code=24),
    "disguise": FINE,
    "exec_loop": TIMED_OUT,
    "fork_bomb": TIMED_OUT,
    "goes_first": FINE,
    "kills_everybody": KILLED,
    "kills_its_group": KILLED,
    "kills_its_parent": KILLED,
    "leaves_its_group": FINE,
    "memory_hog": OOM,
    "memory_of_children": End(is_oom=True),
    "mounts": FINE,
    "runaway": FINE,
    "shared_memory_hog": OOM,
    "stops_its_parent": TIMED_OUT,
    "stops_itself": TIMED_OUT,
    "thread_bomb": TIMED_OUT,
    "zombies": TIMED_OUT,
}
# They take every process there may be. The kernel tells a slot's highest number of all times, so
# only the first of them in a slot is seen to reach it.
GREEDY = {"fork_bomb", "thread_bomb", "zombies"}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def lab() -> AsyncIterator[PoolLab]:
    if os.getuid() != 0:
        pytest.skip("a user of its own for each slot needs root")
    async with running_pool() as lab:
        reason = lab.lacks("memory", "pids")
        if reason:
            pytest.skip(reason)
        yield lab
        assert lab.trouble == []


def end_of(said: dict[str, Any]) -> End:
    status = said["status"]
    # The status of what we ended ourselves says nothing about the program.
    is_own = said["cause"] == "exited"
    return End(
        said["cause"],
        signal=status & 0x7F if is_own else 0,
        code=status >> 8 if is_own else 0,
        is_oom=bool(said["was_oom"]),
    )


async def suffer(lab: PoolLab, worker: LabWorker, name: str) -> tuple[list[str], float, int]:
    """What was wrong with the end of one program, how long the next command then took, and how
    many processes the program had, where that was more than any before it in the slot."""
    text = CAUTION + await asyncio.to_thread((CORPUS / f"{name}.py").read_text)
    argv = (PYTHON, "-S", "-c", text, *([text] if name == "exec_loop" else []))
    said = await worker.run(*argv, limits=LIMITS, timeout_s=TIME_S, grace_s=GRACE_S)
    wrong = []
    if "error" in said or str(end_of(said)) != str(EXPECTED[name]):
        wrong.append(f"{name}: expected {EXPECTED[name]}, was {said}")
    peak = said.get("peak_pids") or 0
    if peak > PIDS or (peak == PIDS and name not in GREEDY):
        wrong.append(f"{name}: had {peak} processes")
    if said.get("survivors"):
        wrong.append(f"{name}: {said['survivors']} survivors")
    began = time.monotonic()
    after = await worker.run("true")
    took_s = time.monotonic() - began
    if after["status"] != 0:
        wrong.append(f"{name}: the next command of the slot suffered: {after}")
    members = lab.members(worker)
    if len(members) != 1:  # the launcher
        wrong.append(f"{name}: {members} are still in the slot")
    return wrong, took_s, peak


async def test_every_program_of_the_corpus_has_an_end_it_must_come_to() -> None:
    assert {path.stem for path in CORPUS.glob("*.py")} == set(EXPECTED)
    assert len(EXPECTED) >= 20


async def test_programs_of_bad_will_hurt_nobody_but_themselves(
    lab: PoolLab, figure: Figure
) -> None:
    names = iter(sorted(EXPECTED))
    wrong: list[str] = []
    pauses: list[float] = []
    peaks: list[int] = []
    neighbour = await lab.spawn()

    async def one_after_the_other(worker: LabWorker) -> None:
        for name in names:
            found, took_s, peak = await suffer(lab, worker, name)
            wrong.extend(found)
            pauses.append(took_s)
            peaks.append(peak)

    quiet = asyncio.create_task(neighbour.shell("sleep 3; exit 7"))
    slots = [await lab.spawn() for _ in range(AT_ONCE)]
    await asyncio.gather(*(one_after_the_other(worker) for worker in slots))
    assert (await quiet)["status"] == 7 << 8
    assert wrong == []
    assert max(peaks) == PIDS, "the greedy ones reach their limit"
    assert lab.exits == [], "no worker ended"
    figure("evil programs survived", len(pauses), "programs", at_least=20)
    figure("evil programs: the next command of the slot", max(pauses), "s", at_most=10)
