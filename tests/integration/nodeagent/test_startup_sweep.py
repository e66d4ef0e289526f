"""The sweep at the start of an agent: orphans of an earlier life are gone within two seconds."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import uuid4

import pytest

from nodeagent.marker import MARKER, marker_value
from nodeagent.startup import SweepPlan, sweep
from nodeagent.strays import remove_cgroup
from tests.fakes.worker_process import living, wait_until

Start = Callable[..., "subprocess.Popen[bytes]"]
V1 = Path("/sys/fs/cgroup/pids")
V2 = next(
    (path for path in (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))
     if (path / "cgroup.controllers").exists()),
    None,
)  # fmt: skip


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    path = tmp_path / f"agent-{uuid4().hex}"
    path.mkdir()
    return path


@pytest.fixture
def start() -> Iterator[Start]:
    """Processes of "an earlier life"; whatever the sweep leaves is ended here."""
    with ExitStack() as stack:

        def run(script: str, **env: str) -> "subprocess.Popen[bytes]":
            process = subprocess.Popen(
                [sys.executable, "-S", "-c", script],
                env={"PATH": os.environ["PATH"], **env},
                stdout=subprocess.PIPE,
                start_new_session=True,
            )
            stack.callback(_end, process)
            assert process.stdout is not None
            assert process.stdout.read(1) == b"!"
            return process

        yield run


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.wait()
    if process.stdout is not None:
        process.stdout.close()


SLEEP = "import os, time; os.write(1, b'!'); time.sleep(300)"
# Deaf to everything that can be ignored, with a child in a session of its own.
STUBBORN = """
import os, signal, time
for signum in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(signum, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    os.write(1, b'!')
time.sleep(300)
"""


def test_orphans_with_our_mark_are_gone_within_two_seconds(data_dir: Path, start: Start) -> None:
    marker = marker_value("main", data_dir)
    for _ in range(3):
        start(STUBBORN, **{MARKER: marker})
    stopped = start(SLEEP, **{MARKER: marker})
    stopped.send_signal(signal.SIGSTOP)
    assert len(living(marker)) == 7
    started = time.monotonic()
    report = sweep(SweepPlan(data_dir=data_dir, marker=marker))
    assert not living(marker)
    assert time.monotonic() - started < 2.5
    assert (report.processes, report.survivors) == (7, 0)


def test_processes_of_other_agents_are_left_alone(data_dir: Path, start: Start) -> None:
    mine = marker_value("main", data_dir)
    others = [
        start(SLEEP, **{MARKER: marker_value("main", data_dir / "x")}),
        start(SLEEP, **{MARKER: f"{mine}x"}),
        start(SLEEP, **{f"X{MARKER}": mine}),
        start(SLEEP),
    ]
    assert sweep(SweepPlan(data_dir=data_dir, marker=mine)).processes == 0
    assert all(other.poll() is None for other in others)


def test_an_agent_inside_a_task_spares_itself_and_what_is_above_it(
    data_dir: Path, start: Start
) -> None:
    """A process that carries the mark sweeps for that very mark, and lives to tell."""
    marker = marker_value("main", data_dir)
    sibling = start(SLEEP, **{MARKER: marker})
    script = (
        "import sys; from pathlib import Path; from nodeagent.startup import SweepPlan, sweep;"
        "print(sweep(SweepPlan(data_dir=Path(sys.argv[1]), marker=sys.argv[2])).processes)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(data_dir), marker],
        env={**os.environ, MARKER: marker},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.splitlines()[-1] == "1"
    assert sibling.wait(timeout=20) == -signal.SIGKILL


def test_work_directories_ipc_files_and_segments_are_removed(
    data_dir: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").touch()
    (data_dir / "workers" / "0" / "result").mkdir(parents=True)
    (data_dir / "workers" / "link").symlink_to(outside)
    (data_dir / "ipc" / "payloads").mkdir(parents=True)
    (data_dir / "ipc" / "agent.sock").touch()
    (data_dir / "identity.json").write_text("{}")
    kept, gone = uuid4(), uuid4()
    for suite in (kept, gone):
        (data_dir / "suites" / str(suite) / "shared").mkdir(parents=True)
    prefix = f"mito_{uuid4().hex[:12]}_"
    segment = Path("/dev/shm", f"{prefix}segment")
    segment.touch()
    ipc_root = Path("/dev/shm", f"{prefix}root")
    (ipc_root / "nodes").mkdir(parents=True)
    plan = SweepPlan(
        data_dir=data_dir, marker="nobody@nowhere", ipc_prefix=prefix, owed_suites=[kept]
    )
    report = sweep(plan)
    assert (report.work_dirs, report.ipc_files, report.segments, report.suites) == (2, 2, 2, 1)
    assert not segment.exists()
    assert not ipc_root.exists()
    left = [path.name for name in ("workers", "ipc", "suites") for path in _in(data_dir / name)]
    assert left == [str(kept)]
    assert (data_dir / "identity.json").exists()
    assert (outside / "precious").exists()
    again = sweep(plan)
    assert (again.work_dirs, again.ipc_files, again.segments, again.suites) == (0, 0, 0, 0)


def test_a_short_prefix_removes_nothing_from_shared_memory(data_dir: Path) -> None:
    segment = Path("/dev/shm", f"m_{uuid4().hex}")
    segment.touch()
    try:
        plan = SweepPlan(data_dir=data_dir, marker="nobody@nowhere", ipc_prefix="m_")
        assert sweep(plan).segments == 0
        assert segment.exists()
    finally:
        segment.unlink()


def test_a_first_start_finds_nothing(data_dir: Path) -> None:
    report = sweep(SweepPlan(data_dir=data_dir, marker=marker_value("main", data_dir)))
    assert (report.processes, report.work_dirs, report.suites, report.survivors) == (0, 0, 0, 0)


@pytest.mark.cgroup
@pytest.mark.parametrize("hierarchy", [V1, V2], ids=["v1", "v2"])
def test_a_cgroup_of_an_earlier_life_is_killed_and_removed(
    data_dir: Path, start: Start, hierarchy: Path | None
) -> None:
    if hierarchy is None or not os.access(hierarchy, os.W_OK) or not _has_groups(hierarchy):
        pytest.skip("needs a writable cgroup tree")
    root = hierarchy / f"mitosis-test-{uuid4().hex[:8]}"
    inner = root / "slot-0"
    inner.mkdir(parents=True)
    # Without our mark: only the group knows them.
    process = start(STUBBORN)
    (inner / "cgroup.procs").write_text(str(process.pid))
    plain = start(SLEEP)
    (root / "cgroup.procs").write_text(str(plain.pid))
    report = sweep(SweepPlan(data_dir=data_dir, marker="nobody@nowhere", cgroups=[root]))
    assert not root.exists()
    assert (report.cgroups, report.survivors) == (2, 0)
    wait_until(lambda: process.poll() is not None and plain.poll() is not None)


def test_a_directory_that_is_no_group_of_ours_is_left_alone(tmp_path: Path) -> None:
    """As with a mount point, the root of all groups: there is no group above it."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "cgroup.procs").write_text(str(os.getpid()))
    assert remove_cgroup(tmp_path / "x", deadline=time.monotonic() + 1) == (0, 0)
    assert (tmp_path / "x" / "cgroup.procs").exists()


def _in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


def _has_groups(hierarchy: Path) -> bool:
    return (hierarchy / "cgroup.procs").exists()
