"""Environments of commands: one part is told to a launcher once, and every launcher knows it."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nodeagent.worker.launcher import Command, Launcher

SHARED = {"PATH": os.defpath, "WHO": "everybody", "LONE": "a\udcffb"}


@pytest.fixture
async def launcher() -> AsyncIterator[Launcher]:
    # Below a keeper: without one its end would end every child of this process, stores included.
    made = Launcher(is_kept=True)
    yield made
    await made.close()


async def _seen(launcher: Launcher, out: Path, command: Command) -> dict[bytes, bytes]:
    await launcher.start(command)
    assert (await launcher.wait()).status == 0
    return _taken(out)


def _taken(out: Path) -> dict[bytes, bytes]:
    lines = out.read_bytes().splitlines()
    out.unlink()
    return {name: value for name, _, value in (line.partition(b"=") for line in lines)}


async def test_what_is_shared_reaches_every_command_and_what_is_its_own_wins(
    launcher: Launcher, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    for own in ({"WHO": "me"}, {}, {"N": "3"}):
        command = Command(argv=["env"], env=own, stdout=out, shared_env=SHARED)
        expected = {os.fsencode(k): os.fsencode(v) for k, v in {**SHARED, **own}.items()}
        assert await _seen(launcher, out, command) == expected


async def test_another_shared_part_replaces_the_first(launcher: Launcher, tmp_path: Path) -> None:
    out = tmp_path / "out"
    for shared in (SHARED, {"PATH": os.defpath, "OTHER": "x"}, SHARED):
        command = Command(argv=["env"], env={}, stdout=out, shared_env=shared)
        assert set(await _seen(launcher, out, command)) == {os.fsencode(k) for k in shared}


async def test_a_new_launcher_is_told_again(launcher: Launcher, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = Command(argv=["env"], env={}, stdout=out, shared_env=SHARED)
    await _seen(launcher, out, command)
    os.kill(launcher.pid, signal.SIGKILL)
    async with asyncio.timeout(10):
        while launcher._channel is not None and not launcher._channel.is_over:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert (await _seen(launcher, out, command))[b"WHO"] == b"everybody"
