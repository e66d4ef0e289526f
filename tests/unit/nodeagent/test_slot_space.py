"""Directories that every attempt of a slot uses: what one left, the next must not see."""

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nodeagent.worker import slot_space
from nodeagent.worker.slot_space import SlotSpace


@pytest.fixture
def space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlotSpace:
    """One that was looked through, and whose directories are older than a file system's tick."""
    monkeypatch.setattr(slot_space, "_SETTLED_NS", 50_000_000)
    made = SlotSpace(tmp_path / "slot", None)
    made.make()
    time.sleep(0.06)
    assert made.is_spotless()
    assert made.is_untouched()
    return made


def _result(space: SlotSpace) -> None:
    (space.result_dir / "a").touch()


def _replaced(space: SlotSpace) -> None:
    space.exec_dir.rmdir()
    space.exec_dir.mkdir(mode=0o700)


def _opened(space: SlotSpace) -> None:
    space.resource_dir.chmod(0o755)


def _backdated(space: SlotSpace) -> None:
    before = space.result_dir.stat()
    (space.result_dir / "a").touch()
    os.utime(space.result_dir, ns=(before.st_atime_ns, before.st_mtime_ns))


def _follow_up(space: SlotSpace) -> None:
    space.new_task_file.write_text("{}")


def _spooled(space: SlotSpace) -> None:
    (space.spool_dir / "result.tar.gz").touch()


@pytest.mark.parametrize("change", [_result, _opened, _backdated, _follow_up, _spooled])
def test_whatever_a_command_changed_is_seen_and_removed(
    space: SlotSpace, change: Callable[[SlotSpace], None]
) -> None:
    change(space)
    assert not space.is_untouched()
    assert not space.is_spotless()
    space.reset()
    assert space.is_spotless()
    assert not any(space.result_dir.iterdir())
    assert not space.new_task_file.exists()
    assert space.resource_dir.stat().st_mode & 0o777 == 0o700


def test_a_directory_that_was_replaced_by_an_empty_one_is_looked_through(space: SlotSpace) -> None:
    _replaced(space)
    assert not space.is_untouched()
    assert space.is_spotless()


def test_what_was_made_and_removed_again_counts_as_touched(space: SlotSpace) -> None:
    _result(space)
    (space.result_dir / "a").unlink()
    assert not space.is_untouched()
    assert space.is_spotless()


def test_a_fresh_directory_is_not_trusted_for_its_times(tmp_path: Path) -> None:
    fresh = SlotSpace(tmp_path / "slot", None)
    fresh.make()
    assert fresh.is_spotless()
    # A change within the same tick of the file system would not show.
    assert not fresh.is_untouched()
    _result(fresh)
    assert not fresh.is_spotless()


def test_trust_is_given_again_once_the_directories_have_rested(space: SlotSpace) -> None:
    _result(space)
    space.reset()
    assert space.is_spotless()
    assert not space.is_untouched()
    time.sleep(0.06)
    assert space.is_spotless()
    assert space.is_untouched()
