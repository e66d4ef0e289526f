"""What the embedded stack survives: killed parts, stale files, crashes while starting."""

import os
import signal

import pytest

from tests.e2e.stack_client import Stack, alive, eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


def test_kill_9_of_the_supervisor_ends_all_children_and_loses_nothing(stack: Stack):
    stack.up()
    stack.create_group("survivor")
    stack.s3().put_object(Bucket="mitosis-artifacts", Key="survivor", Body=b"bytes")
    processes = stack.processes()
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    eventually(lambda: not alive(processes), within_s=5, what="all children gone")
    stack.up()
    assert stack.has_group("survivor")
    body = stack.s3().get_object(Bucket="mitosis-artifacts", Key="survivor")["Body"]
    assert body.read() == b"bytes"


def test_kill_9_of_supervisor_and_guardian_together_still_ends_all_children(stack: Stack):
    stack.up()
    processes = stack.processes()
    guardians = stack.guardians()
    assert len(guardians) == 1
    # One that hangs: nobody is left who could ask a second time, or insist.
    os.kill(stack.child_pid("celery-worker"), signal.SIGSTOP)
    os.kill(guardians[0].pid, signal.SIGKILL)
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    eventually(lambda: not alive(processes), within_s=10, what="all children gone")


def test_a_killed_guardian_is_replaced(stack: Stack):
    stack.up()
    old = stack.guardians()[0].pid
    os.kill(old, signal.SIGKILL)
    eventually(
        lambda: any(g.pid != old for g in stack.guardians()), within_s=5, what="a new guardian"
    )
    processes = stack.processes()
    os.kill(stack.supervisor_pid, signal.SIGKILL)
    eventually(lambda: not alive(processes), within_s=5, what="all children gone")


def test_a_recycled_pid_in_postmaster_pid_does_not_stop_the_start(stack: Stack):
    stack.up()
    stack.create_group("kept")
    pid_file = stack.data_dir / "postgres" / "postmaster.pid"
    content = pid_file.read_text()
    stack.down()
    # As after a crash: the file is there and its pid now belongs to a stranger.
    pid_file.write_text(content.replace(content.split("\n")[0], str(os.getpid()), 1))
    if os.geteuid() == 0:
        owner = (stack.data_dir / "postgres").stat()
        os.chown(pid_file, owner.st_uid, owner.st_gid)
    stack.up()
    assert stack.has_group("kept")


def test_a_crash_during_the_first_initdb_does_not_spoil_the_next_start(stack: Stack):
    half = stack.data_dir / "postgres.new"
    half.mkdir(parents=True)
    (half / "PG_VERSION").write_text("18\n")
    stack.up()
    assert stack.is_ready()
    assert not half.exists()


def test_a_broken_part_is_explained_and_nothing_is_left(stack: Stack):
    stack.up()
    stack.down()
    control = stack.data_dir / "postgres" / "global" / "pg_control"
    control.rename(control.with_name("pg_control.away"))
    done = stack.run("up", "--detach")
    assert done.returncode == 1
    assert "postgres" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert stack.run("status").returncode == 3
    control.with_name("pg_control.away").rename(control)
    stack.up()
    assert stack.is_ready()
