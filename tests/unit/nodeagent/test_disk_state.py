"""When a disk is low or full."""

import os
from pathlib import Path

import pytest

from nodeagent.disk import DiskState, disk_room, disk_state
from nodeagent.errors import HostUnusable

GIB = 1 << 30


def answer(monkeypatch: pytest.MonkeyPatch, free: int, **more: int) -> None:
    """A file system of 100 GiB with `free` bytes for us."""
    values = {"f_flag": 0, "f_files": 100, "f_favail": 50, **more}
    fields = (
        *(4096, 4096, 100 * GIB // 4096, free // 4096, free // 4096),
        *(values["f_files"], values["f_favail"], values["f_favail"], values["f_flag"], 255),
    )
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))


@pytest.mark.parametrize(
    ("free", "state"),
    [
        (50 * GIB, DiskState.OK),
        (GIB, DiskState.OK),
        (GIB - 4096, DiskState.LOW),
        (16 << 20, DiskState.LOW),
        ((16 << 20) - 4096, DiskState.FULL),
        (0, DiskState.FULL),
    ],
)
def test_room_decides_the_state(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, free: int, state: DiskState
) -> None:
    answer(monkeypatch, free)
    assert disk_state(tmp_path) is state
    assert bool(disk_room(tmp_path).reason) == (state is not DiskState.OK)


def test_no_inodes_and_no_writing_are_full_too(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer(monkeypatch, 50 * GIB, f_favail=0)
    assert "inode" in disk_room(tmp_path).reason
    answer(monkeypatch, 50 * GIB, f_flag=os.ST_RDONLY)
    assert "read-only" in disk_room(tmp_path).reason
    # Some file systems (btrfs) count no inodes at all.
    answer(monkeypatch, 50 * GIB, f_files=0, f_favail=0)
    assert disk_state(tmp_path) is DiskState.OK


def test_a_directory_not_made_yet_is_judged_by_its_parent(tmp_path: Path) -> None:
    expected = os.statvfs(tmp_path)
    room = disk_room(tmp_path / "a" / "b")
    assert room.total_bytes == expected.f_blocks * expected.f_frsize


def test_a_disk_that_cannot_be_asked_is_no_disk_to_work_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def fail(_: object) -> os.statvfs_result:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "statvfs", fail)
    with pytest.raises(HostUnusable, match="Input/output"):
        disk_room(tmp_path)
