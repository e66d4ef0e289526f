"""Every invariant can fail: a violation of each is planted in a world in which all hold."""

import dataclasses
import io
import os
import sqlite3
import subprocess
import tarfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from nodeagent.ipc.names import prefix_of
from nodeagent.marker import MARKER
from tests.chaos.history import Acknowledged, Evidence, Execution, History
from tests.chaos.invariants import ALWAYS, SETTLED, WATCH_OUTCOMES, World, violations
from tests.chaos.leftovers import Host, leftovers, zombies
from tests.property.lab import Lab, pool_dsn

ALL = (*ALWAYS, *SETTLED)


class Stage:
    """Two tasks that ended as they should, one of them with a result."""

    def __init__(self, world: World, lab: Lab) -> None:
        self.world = world
        self.lab = lab
        self.objects: dict[str, bytes] = {}
        self.assignment = lab.engage(lab.runner_ids[0])
        self.quick = self._ended("chaos-1", "quick")
        self.artifact = self._ended("chaos-2", "artifact")
        self.key = f"{self.artifact.uuid}/1/result.tar.gz"
        self.put(self.key, f"{self.artifact.uuid} 1")
        self.sql(
            "INSERT INTO artifacts (task_id, task_uuid, group_id, attempt, content_type, size, key)"
            " SELECT id, uuid, group_id, attempt, 0, 1, %s FROM archived_tasks WHERE uuid = %s",
            self.key,
            self.artifact.uuid,
        )
        world.read_object = self.objects.get
        self.attempt_id = int(
            world.rows(
                "SELECT attempt_id FROM archived_tasks WHERE uuid = %(u)s", u=self.quick.uuid
            )[0][0]
        )
        world.accepted_attempts = [self.attempt_id]

    def sql(self, statement: str, *params: Any) -> None:
        self.world.connection.execute(statement, params)

    def put(self, key: str, mark: str) -> None:
        file = io.BytesIO()
        with tarfile.open(fileobj=file, mode="w:gz") as archive:
            entry = tarfile.TarInfo("result/mark")
            entry.size = len(mark)
            archive.addfile(entry, io.BytesIO(mark.encode()))
        self.objects[key] = file.getvalue()

    def add(self, label: str, kind: str) -> Acknowledged:
        [ref] = self.lab.submit(in_suite=True, labels=[label])
        task = Acknowledged(str(ref.uuid), label, kind)
        self.world.tasks = {**self.world.tasks, task.uuid: task}
        return task

    def take(self) -> int:
        [task] = self.lab.claim_from_suite(self.lab.runner_ids[0]).tasks
        return task.attempt_id

    def _ended(self, label: str, kind: str) -> Acknowledged:
        task = self.add(label, kind)
        attempt_id = self.take()
        self.lab.commit(attempt_id, self.lab.runner_ids[0])
        self.world.executions.append(Execution(task.uuid, 1, 7, status=0))
        return task


@pytest.fixture
def stage(transactional_db: None) -> Iterator[Stage]:
    lab = Lab()
    with psycopg.connect(pool_dsn()) as connection:
        connection.execute(WATCH_OUTCOMES)
        # Readable by the lab's own connection only after a commit; dropped again below.
        connection.commit()
        try:
            yield Stage(World(connection), lab)
        finally:
            connection.rollback()
            connection.execute("DROP FUNCTION chaos_note CASCADE; DROP TABLE chaos_rewritten")


def _forget_a_task(s: Stage) -> None:
    s.sql("DELETE FROM archived_tasks WHERE uuid = %s", s.quick.uuid)


def _submit_twice(s: Stage) -> None:
    s.add("chaos-1", "quick")


def _archive_without_leaving(s: Stage) -> None:
    task = s.add("chaos-3", "quick")
    s.sql("UPDATE active_tasks SET uuid = %s WHERE uuid = %s", s.quick.uuid, task.uuid)


def _accept_twice(s: Stage) -> None:
    s.world.accepted_attempts = [*s.world.accepted_attempts] * 2


def _accept_another(s: Stage) -> None:
    s.sql("UPDATE archived_tasks SET attempt_id = attempt_id + 1000 WHERE uuid = %s", s.quick.uuid)


def _rewrite_an_outcome(s: Stage) -> None:
    s.sql("UPDATE archived_tasks SET outcome = 1 WHERE uuid = %s", s.quick.uuid)


def _miscount(s: Stage) -> None:
    s.sql("INSERT INTO suite_count_deltas (suite_id, pending) VALUES (%s, 1)", s.lab.suite_id)


def _leave_with_the_dead(s: Stage) -> None:
    s.add("chaos-3", "quick")
    s.take()
    s.lab.expire_lease(s.lab.runner_ids[0])


def _engage_twice(s: Stage) -> None:
    s.sql("DROP INDEX suite_assignments_one_live")
    s.sql(
        "INSERT INTO suite_assignments (suite_id, manager_id, state, lease_expires_at)"
        " SELECT suite_id, manager_id, state, lease_expires_at FROM suite_assignments"
        " WHERE id = %s",
        s.assignment,
    )


def _reopen_an_attempt(s: Stage) -> None:
    s.sql("UPDATE task_attempts SET ending = NULL, ended_at = NULL WHERE id = %s", s.attempt_id)


def _complete_too_early(s: Stage) -> None:
    s.add("chaos-3", "quick")
    s.sql(
        "UPDATE task_suites SET state = 2, completed_at = now(), submit_count = 1 WHERE id = %s",
        s.lab.suite_id,
    )


def _never_complete(s: Stage) -> None:
    s.sql("UPDATE archived_tasks SET ended_at = now() - interval '1 hour'")
    s.sql(
        "UPDATE task_suites SET submit_count = 1,"
        " last_task_submitted_at = now() - interval '1 hour' WHERE id = %s",
        s.lab.suite_id,
    )


def _keep_a_task(s: Stage) -> None:
    s.add("chaos-3", "quick")


def _succeed_without_running(s: Stage) -> None:
    s.world.executions = [run for run in s.world.executions if run.uuid != s.quick.uuid]


def _succeed_with_a_failure(s: Stage) -> None:
    s.world.executions[0].status = 3


def _fail_what_succeeded(s: Stage) -> None:
    s.sql("UPDATE archived_tasks SET outcome = 1, failures = 0 WHERE uuid = %s", s.quick.uuid)


def _ignore_a_cancel(s: Stage) -> None:
    s.world.cancelled = {s.quick.uuid}


def _overlap(s: Stage) -> None:
    suite = str(uuid.uuid4())
    s.world.suites = {suite: "stop"}
    task = dataclasses.replace(s.quick, suite=suite)
    s.world.tasks = {**s.world.tasks, task.uuid: task}
    s.world.executions += [
        Execution(task.uuid, 1, 10, began=100.0, seen=103.0),
        Execution(task.uuid, 2, 11, began=101.0, seen=104.0, status=0),
    ]


def _late_put(s: Stage) -> None:
    s.put(s.key, f"{s.artifact.uuid} 2")


def _lose_the_object(s: Stage) -> None:
    s.objects.clear()


def _foreign_key(s: Stage) -> None:
    s.sql("UPDATE artifacts SET key = 'elsewhere' WHERE key = %s", s.key)


PLANTED: tuple[tuple[str, Callable[[Stage], None]], ...] = (
    ("nothing_acknowledged_is_missing", _forget_a_task),
    ("nothing_is_there_twice", _submit_twice),
    ("nothing_is_there_twice", _archive_without_leaving),
    ("one_end_was_accepted_per_task", _accept_twice),
    ("one_end_was_accepted_per_task", _accept_another),
    ("no_outcome_was_rewritten", _rewrite_an_outcome),
    ("counters_equal_reality", _miscount),
    ("no_dead_runner_holds_anything", _leave_with_the_dead),
    ("one_engagement_per_manager", _engage_twice),
    ("no_attempt_is_left_open", _reopen_an_attempt),
    ("complete_means_nothing_is_active", _complete_too_early),
    ("done_suites_are_complete", _never_complete),
    ("every_task_has_ended", _keep_a_task),
    ("success_was_executed", _succeed_without_running),
    ("success_was_executed", _succeed_with_a_failure),
    ("outcomes_are_what_commands_did", _fail_what_succeeded),
    ("outcomes_are_what_commands_did", _ignore_a_cancel),
    ("stopped_suites_never_overlap", _overlap),
    ("results_belong_to_the_committed_attempt", _late_put),
    ("results_belong_to_the_committed_attempt", _lose_the_object),
    ("results_belong_to_the_committed_attempt", _foreign_key),
)


def test_each_planted_violation_is_found_and_a_good_world_has_none(stage: Stage) -> None:
    """One world for all: each violation is taken back before the next one."""
    stage.world.connection.commit()
    assert violations(stage.world, ALL) == []
    checks = {check.__name__: check for _, _, check in ALL}
    missed = []
    for name, plant in PLANTED:
        kept = dataclasses.replace(
            stage.world, executions=[dataclasses.replace(run) for run in stage.world.executions]
        )
        objects = dict(stage.objects)
        plant(stage)
        if not checks[name](stage.world):
            missed.append(f"{plant.__name__} by {name}")
        stage.world.connection.rollback()
        stage.world.__dict__.update(kept.__dict__)
        stage.objects.clear()
        stage.objects.update(objects)
        # What the lab committed is taken back the hard way, with its counts.
        _take_back(stage)
    assert missed == []
    assert violations(stage.world, ALL) == []


def test_every_invariant_has_a_planted_violation() -> None:
    assert {check.__name__ for _, _, check in ALL} == {name for name, _ in PLANTED}
    numbers = {number for number, _, _ in ALL if number.startswith("I")}
    assert numbers == {f"I{n}" for n in range(1, 13)}


def _take_back(stage: Stage) -> None:
    connection = stage.world.connection
    connection.execute(
        "DELETE FROM task_attempts WHERE task_id IN (SELECT id FROM active_tasks);"
        "DELETE FROM suite_count_deltas WHERE suite_id IN (SELECT suite_id FROM active_tasks);"
    )
    gone = connection.execute("DELETE FROM active_tasks RETURNING suite_id").fetchall()
    if gone:
        connection.execute(
            "INSERT INTO suite_count_deltas (suite_id, total, succeeded)"
            " SELECT suite_id, count(*), count(*) FROM archived_tasks GROUP BY suite_id"
        )
    connection.commit()
    stage.lab.renew_lease(stage.lab.runner_ids[0])


# The operating system


@pytest.fixture
def host(tmp_path: Path) -> Host:
    manager = uuid.uuid4()
    (tmp_path / "identity.json").write_text(f'{{"manager_uuid": "{manager}"}}')
    return Host(marker=f"chaos@{tmp_path}", instance=f"chaos-{uuid.uuid4().hex[:8]}",
                data_dir=tmp_path)  # fmt: skip


def test_a_process_that_outlived_its_agent_is_found(host: Host) -> None:
    assert leftovers([host]) == []
    env = {MARKER: host.marker, "PATH": os.environ["PATH"]}
    with subprocess.Popen(["sleep", "600"], env=env) as stray:
        try:
            _await_environment(stray.pid)
            [found] = leftovers([host])
            assert f"process {stray.pid} is left" in found
        finally:
            stray.kill()
    assert leftovers([host]) == []


def _await_environment(pid: int) -> None:
    """Popen returns when the program is being loaded, a moment before its environment stands."""
    give_up = time.monotonic() + 10
    while not Path(f"/proc/{pid}/environ").read_bytes():
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_files_segments_results_and_debts_are_found(host: Host) -> None:
    manager = uuid.UUID((host.data_dir / "identity.json").read_text().split('"')[3])
    segment = Path("/dev/shm") / f"{prefix_of(manager)}left"
    for place in ("workers/1/exec", "ipc", "suites", "debts"):
        (host.data_dir / place).mkdir(parents=True)
        (host.data_dir / place / "file").touch()
    with closing(sqlite3.connect(host.data_dir / "outbox.sqlite")) as outbox:
        outbox.execute("CREATE TABLE lines (op_id BLOB)")
        outbox.execute("INSERT INTO lines VALUES ('x')")
        outbox.commit()
    segment.touch()
    try:
        assert len(leftovers([host])) == 6
    finally:
        segment.unlink()


@pytest.mark.cgroup
def test_a_control_group_that_stayed_is_found(host: Host) -> None:
    base = next((p for p in Path("/sys/fs/cgroup").glob("*/cgroup.procs")), None)
    if base is None or not os.access(base.parent, os.W_OK):
        pytest.skip("no right to make control groups here")
    group = base.parent / f"mitosis-{host.instance}"
    group.mkdir()
    try:
        assert leftovers([host]) == [f"control group {group} is left"]
    finally:
        group.rmdir()


def test_a_child_nobody_waited_for_is_found() -> None:
    child = subprocess.Popen(["true"])
    deadline = time.monotonic() + 20
    while not (found := zombies(os.getpid())) and time.monotonic() < deadline:
        time.sleep(0.01)
    child.wait()
    assert any(f"process {child.pid} " in text for text in found)


def test_lines_of_commands_become_executions_and_a_torn_one_waits_for_its_rest(
    tmp_path: Path,
) -> None:
    file = tmp_path / "lines"
    file.write_text("S a 1 10 -\nE a 1 10 - 0\nS b 2 11 5.5\nT b 2 11 6.0\nS c 1")
    evidence = Evidence(file)
    ended, ticking = Execution("a", 1, 10, status=0), Execution("b", 2, 11, began=5.5, seen=6.0)
    assert evidence.read() == [ended, ticking]
    with file.open("a") as out:
        out.write(" 12 -\nE b 2 11 7.0 0\n")
    ticking = Execution("b", 2, 11, began=5.5, seen=7.0, status=0)
    assert evidence.read() == [ended, ticking, Execution("c", 1, 12)]
    assert evidence.read() == Evidence(file).read()


def test_the_history_is_on_disk_before_anything_else_happens(tmp_path: Path) -> None:
    history = History(tmp_path / "history.jsonl")
    history.acknowledge([Acknowledged("u", "chaos-1", "quick")])
    assert '"chaos-1"' in history.file.read_text()
    assert history.snapshot().keys() == {"u"}
