"""Where the embedded stack runs, where it refuses to, and how it is stopped."""

import os
import pwd
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest

from tests.e2e.stack_client import MITOSIS, Stack, alive

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_a_very_long_data_dir_works(tmp_path: Path):
    deep = tmp_path.joinpath(*["a-directory-with-a-long-name" for _ in range(8)])
    stack = Stack(deep / "data")
    assert len(str(stack.data_dir)) > 220
    stack.up()
    assert stack.is_ready()
    stack.down()


def test_a_data_dir_that_is_a_file_is_refused(tmp_path: Path):
    path = tmp_path / "file"
    path.write_text("")
    done = Stack(path).run("up")
    assert done.returncode == 1
    assert "not a directory" in done.stderr.lower()
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_a_data_dir_without_permission_is_refused(tmp_path: Path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o755)
    tmp_path.chmod(0o755)
    stack = Stack(closed / "data", as_nobody=True)
    done = stack.run("up")
    assert done.returncode == 1
    assert "No permission" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user needs root")
def test_an_ordinary_user_can_run_it():
    nobody = pwd.getpwnam("nobody")
    home = Path("/tmp") / f"mitosis-test-{os.getpid()}"
    home.mkdir(mode=0o755)
    os.chown(home, nobody.pw_uid, nobody.pw_gid)
    stack = Stack(home / "data", environment={"HOME": str(home)}, as_nobody=True)
    try:
        stack.up()
        assert {p.uids().real for p in stack.processes()} == {nobody.pw_uid}
        assert stack.is_ready()
        stack.down()
    finally:
        subprocess.run(["rm", "-rf", str(home)], check=False)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
def test_a_full_disk_is_explained(tmp_path: Path):
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(mount)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("mounting a small file system is not allowed here")
    try:
        done = Stack(mount / "data").run("up")
    finally:
        subprocess.run(["umount", str(mount)], check=False)
    assert done.returncode == 1
    assert "MB free" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as another user")
def test_root_may_keep_its_data_below_a_private_directory(tmp_path: Path):
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    stack = Stack(private / "data")
    stack.up()
    assert psutil.Process(stack.child_pid("postgres")).uids().real != 0
    stack.down()


def test_down_leaves_nothing_and_is_repeatable(stack: Stack):
    stack.up()
    stack.create_group("kept")
    processes = stack.processes()
    stack.down()
    assert not alive(processes)
    again = stack.run("down")
    assert again.returncode == 0
    assert "No stack runs" in again.stdout
    assert stack.run("status").returncode == 3
    stack.up()
    assert stack.has_group("kept")


def test_ctrl_c_in_the_foreground_stops_everything(stack: Stack):
    process = subprocess.Popen(
        [*MITOSIS, "up", "--data-dir", str(stack.data_dir)],
        env=stack.clean_environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    with process.stdout as lines:
        shown = ""
        while "Ctrl-C" not in shown:
            line = lines.readline()
            assert line, shown
            shown += line
        assert stack.admin["password"] in shown
        children = stack.processes()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=40) == 0
    assert not alive(children)


def test_a_taken_port_is_named_in_one_line(stack: Stack):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = stack.run("up", "--port", str(port))
    assert done.returncode == 1
    assert done.stderr.strip() == (
        f"mitosis: Port {port} is taken by another program; choose another with --port."
    )
