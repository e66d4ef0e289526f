"""The outbox on a real disk, with a process that is killed in the middle of its work."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from mitosis_protocol.manager_reports import TaskReport
from nodeagent.errors import HostUnusable
from nodeagent.outbox import Outbox, OutboxEntry

# Adds lines one by one and says so after each; forgets every third one it has added.
WRITER = """
import sys
from pathlib import Path
from uuid import UUID
from mitosis_protocol.manager_reports import TaskReport
from nodeagent.outbox import Outbox, OutboxEntry
outbox = Outbox(Path(sys.argv[1]))
for n in range(1, 1_000_000):
    op_id = UUID(int=n)
    outbox.add([OutboxEntry(op_id, TaskReport(task_id=n, op="commit", op_id=op_id))])
    print("added", n, flush=True)
    if n % 3 == 0:
        outbox.forget([op_id])
        print("forgot", n, flush=True)
    if n % 7 == 0:
        outbox.sync()
"""


def entry(task_id: int = 1, **members: object) -> OutboxEntry:
    op_id = uuid4()
    return OutboxEntry(op_id, TaskReport(task_id=task_id, op="commit", op_id=op_id, **members))


def test_lines_come_back_in_order_after_a_restart_until_they_are_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "outbox.sqlite"
    lines = [entry(n, exit_status=n, reason="é" * n, result={"cpu_s": 0.5}) for n in range(5)]
    outbox = Outbox(path)
    outbox.add(lines[:3])
    outbox.add(lines[3:])
    outbox.sync()
    outbox.forget([lines[1].op_id, lines[3].op_id, uuid4()])
    outbox.close()
    again = Outbox(path)
    assert again.pending() == [lines[0], lines[2], lines[4]]
    again.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_the_same_line_twice_is_one_line(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox.sqlite")
    line = entry()
    outbox.add([line])
    later = entry(2)
    outbox.add([later])
    changed = OutboxEntry(line.op_id, TaskReport(task_id=9, op="abort", op_id=line.op_id))
    outbox.add([line, changed])
    # The first word on it counts, in its place: the coordinator may have heard it already.
    assert outbox.pending() == [line, later]
    outbox.close()


@pytest.mark.parametrize("lines_before", [1, 40, 300])
def test_a_killed_agent_loses_nothing_it_had_stored(tmp_path: Path, lines_before: int) -> None:
    path = tmp_path / "outbox.sqlite"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path)], stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        said = [writer.stdout.readline() for _ in range(lines_before)]
        writer.send_signal(signal.SIGKILL)
        said += writer.stdout.readlines()
    words = [line.split() for line in said if line.endswith("\n")]
    added = {int(n) for word, n in words if word == "added"}
    forgotten = {int(n) for word, n in words if word == "forgot"}
    outbox = Outbox(path)
    found = {line.op_id.int for line in outbox.pending()}
    outbox.close()
    # It may have been one step further than it could say.
    assert added - forgotten - found <= {max(added)}
    assert found - (added - forgotten) <= {max(added) + 1}
    assert forgotten.isdisjoint(found)


def test_the_log_starts_over_beside_a_writer_that_never_pauses(tmp_path: Path) -> None:
    path = tmp_path / "outbox.sqlite"
    log = path.with_name(f"{path.name}-wal")
    outbox = Outbox(path)
    stop = threading.Event()

    def sync_all_the_time() -> None:
        while not stop.is_set():
            outbox.sync()

    def write_a_group() -> None:
        lines = [entry(reason="x" * 400) for _ in range(20)]
        outbox.add(lines)
        outbox.forget([line.op_id for line in lines])

    syncing = threading.Thread(target=sync_all_the_time)
    syncing.start()
    # How long a sync takes and how far the log grows meanwhile is the disk's affair; that it starts
    # over although the writer never pauses is ours.
    last = starts = 0
    give_up = time.monotonic() + 60
    try:
        while starts < 3 and time.monotonic() < give_up:
            write_a_group()
            size = log.stat().st_size
            starts += size < last
            last = size
    finally:
        stop.set()
        syncing.join()
    assert starts == 3
    # Without a writer in its way a sync leaves a log that starts over with the next line.
    outbox.sync()
    write_a_group()
    assert log.stat().st_size < 9 << 20
    assert outbox.pending() == []
    outbox.close()
    assert path.stat().st_size < 4 << 20


def test_moving_the_log_costs_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nodeagent.outbox._CHECKPOINT_BYTES", 0)

    def held() -> int:
        links = [one.readlink() for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        return sum(link.name.startswith("outbox") for link in links)

    outbox = Outbox(tmp_path / "outbox.sqlite")
    outbox.add([entry()])
    before = held()
    for insist in (1 << 30, 0):
        monkeypatch.setattr("nodeagent.outbox._INSIST_BYTES", insist)
        outbox.add([entry()])
        outbox.sync()
    assert held() == before
    outbox.close()
    assert held() == 0


def test_a_file_that_is_no_outbox_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "outbox.sqlite"
    path.write_bytes(b"not a database at all, whatever its name says" * 100)
    with pytest.raises(HostUnusable, match=r"outbox\.sqlite"):
        Outbox(path)


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of a few kilobytes needs a mount")
def test_a_full_disk_refuses_the_line_and_keeps_the_others(tmp_path: Path) -> None:
    mount = tmp_path / "small"
    mount.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(mount)], check=False
    )
    if done.returncode:
        pytest.skip("mounting is not allowed here")
    try:
        outbox = Outbox(mount / "outbox.sqlite")
        kept: list[UUID] = []
        with pytest.raises(HostUnusable):
            _fill(outbox, kept)
        assert [line.op_id for line in outbox.pending()] == kept
        outbox.close()
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def _fill(outbox: Outbox, kept: list[UUID]) -> None:
    for n in range(100_000):
        line = entry(n, reason="x" * 300)
        outbox.add([line])
        kept.append(line.op_id)


def test_reading_what_another_program_wrote_uses_the_same_table(tmp_path: Path) -> None:
    """Operators look into it with sqlite3."""
    path = tmp_path / "outbox.sqlite"
    outbox = Outbox(path)
    outbox.add([entry(5)])
    with sqlite3.connect(path) as other:
        [(line,)] = other.execute("SELECT line FROM lines").fetchall()
    other.close()
    assert b'"task_id":5' in line
    outbox.close()
