"""Taking tasks in: single, batch, array; numbers, counters, idempotency, limits."""

import threading
import time
import uuid

import pytest
from django.db import connection, transaction

from core.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from core.faults import FaultInjected, configure
from mitosis_protocol.enums import DependencyCondition, Outcome, ReportAnswer
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.specs import TaskSpec
from tasks.new_task import Dependency, NewTask, RetryPolicy, lane_of
from tasks.services.array import ArrayRow, submit_array
from tasks.services.change import change_task, relabel_task
from tasks.services.idempotency import Idempotency
from tasks.services.report import legacy_op_id, outcome_of, submit_downstream_sync
from tasks.services.submit import (
    BatchItem,
    Refused,
    Taken,
    Target,
    submit_batch,
    submit_task,
    submit_tasks,
)
from tests.property.lab import SPEC, Lab, lab_fixture, query

lab = pytest.fixture(name="lab")(lab_fixture)

TASK = NewTask(spec=SPEC, timeout_s=60)


def key_for(lab: Lab, key: str, body: bytes = b"body") -> Idempotency:
    return Idempotency.of(user_id=lab.creator_id, key=key, body=body)


def test_numbers_count_from_one_within_the_group(lab: Lab):
    first = submit_task(target=lab.target(), creator_id=lab.creator_id, task=TASK)
    more = lab.submit(3)
    assert [first.number, *(ref.number for ref in more)] == [1, 2, 3, 4]
    [group] = query("SELECT task_count FROM groups WHERE id = %s", lab.group_id)
    assert group["task_count"] == 4
    assert all(ref.uuid.version == 4 for ref in more)


def test_everything_a_task_carries_arrives_in_its_row(lab: Lab):
    task = NewTask(
        spec=TaskSpec(args=["a", "ünï"], envs={"A": 'q"uote'}),
        timeout_s=7,
        tags=["b", "a", "b"],
        labels=["z"],
        priority=-5,
        retry=RetryPolicy(max_failures=2, max_attempts=3, backoff_s=1.5, retry_on={"oom": True}),
        limits={"memory": 5},
        concurrency_key="k",
        affinity={"key": "x"},
        resource_refs=[{"resource_id": "r"}],
        middleware={"host_node_id": "h"},
        pinned_runner_id=lab.runner_ids[0],
    )
    ref = submit_task(target=lab.target(in_suite=True), creator_id=lab.creator_id, task=task)
    row = lab.task(ref.id)
    assert (row["tags"], row["labels"], row["priority"]) == (["a", "b"], ["z"], -5)
    assert (row["timeout_s"], row["suite_id"], row["state"]) == (7, lab.suite_id, 1)
    assert (row["max_failures"], row["max_attempts"], row["backoff_s"]) == (2, 3, 1.5)
    assert (row["concurrency_key"], row["pinned_runner_id"]) == ("k", lab.runner_ids[0])
    assert row["lane"] == lane_of(["a", "b"], lab.runner_ids[0])
    [stored] = query(
        "SELECT spec->'args'->>1 AS arg, spec->'envs'->>'A' AS env, limits->>'memory' AS memory,"
        " retry_on->>'oom' AS oom, affinity->>'key' AS key, resource_refs->0->>'resource_id' AS r,"
        " middleware->>'host_node_id' AS h FROM active_tasks WHERE id = %s",
        ref.id,
    )
    assert stored == {
        "arg": "ünï", "env": 'q"uote', "memory": "5", "oom": "true", "key": "x", "r": "r", "h": "h",
    }  # fmt: skip


def test_a_batch_answers_each_item_on_its_own(lab: Lab):
    other = Lab(runners=1)
    too_long = NewTask(spec=TaskSpec(args=["x" * 70_000]), timeout_s=1)
    items = [
        BatchItem(Target(lab.group_id), TASK),
        BatchItem(None, None, refusal="Group not found"),
        BatchItem(Target(other.group_id), TASK),
        BatchItem(Target(lab.group_id), too_long),
        BatchItem(Target(lab.group_id), NewTask(spec=SPEC, timeout_s=1, tags=["x" * 300])),
        BatchItem(Target(lab.group_id), TASK),
    ]
    answers = submit_batch(creator_id=lab.creator_id, items=items)
    assert [type(answer) for answer in answers] == [Taken, Refused, Taken, Refused, Refused, Taken]
    assert answers[1] == Refused("Group not found")
    assert [answers[n].number for n in (0, 2, 5)] == [1, 1, 2]
    assert "65536" in answers[3].msg


def test_batch_items_may_depend_on_tasks_that_exist(lab: Lab):
    [upstream] = lab.submit(1)
    unknown = uuid.uuid4()
    items = [
        BatchItem(
            Target(lab.group_id),
            NewTask(spec=SPEC, timeout_s=1, depends_on=(Dependency(named),)),
        )
        for named in (upstream.uuid, unknown, 0, upstream.uuid)
    ]
    answers = submit_batch(creator_id=lab.creator_id, items=items)
    assert [type(answer) for answer in answers] == [Taken, Refused, Refused, Taken]
    assert lab.task(upstream.id)["dependents"] == 2
    runner = lab.runner_ids[0]
    assert lab.commit(lab.claim_attempt(runner), runner).answer is ReportAnswer.OK
    assert len(lab.claim(runner, want=9).tasks) == 2


def test_too_many_or_no_tasks_are_refused(lab: Lab):
    with pytest.raises(LimitExceeded):
        submit_batch(creator_id=1, items=[BatchItem(None, None)] * 10_001)
    with pytest.raises(InvalidInput):
        submit_tasks(target=lab.target(), creator_id=lab.creator_id, tasks=[])


def test_the_same_key_and_request_give_the_same_answer(lab: Lab):
    once = [lab_submit(lab, 3, key_for(lab, "k")) for _ in range(2)]
    assert once[0] == once[1]
    assert len(query("SELECT id FROM active_tasks WHERE group_id = %s", lab.group_id)) == 3


def test_the_same_key_for_another_request_is_a_conflict(lab: Lab):
    lab_submit(lab, 1, key_for(lab, "k", b"one"))
    with pytest.raises(Conflict) as caught:
        lab_submit(lab, 1, key_for(lab, "k", b"two"))
    assert caught.value.code is ErrorCode.IDEMPOTENCY_MISMATCH
    other = Lab(runners=1)
    lab_submit(other, 1, key_for(other, "k", b"two"))


def test_batches_and_arrays_are_idempotent_too(lab: Lab):
    items = [BatchItem(Target(lab.group_id), TASK), BatchItem(None, None, "no")]
    answers = [
        submit_batch(creator_id=lab.creator_id, items=items, idempotency=key_for(lab, "b"))
        for _ in range(2)
    ]
    assert answers[0] == answers[1]
    arrays = [array_of(lab, 5, idempotency=key_for(lab, "a")) for _ in range(2)]
    assert arrays[0] == arrays[1]
    assert len(query("SELECT id FROM active_tasks WHERE group_id = %s", lab.group_id)) == 6


def test_two_equal_requests_at_once_submit_once(lab: Lab):
    is_inside, may_commit = threading.Event(), threading.Event()
    answers: list[object] = []

    def first() -> None:
        try:
            with transaction.atomic():
                answers.append(lab_submit(lab, 1, key_for(lab, "k")))
                is_inside.set()
                may_commit.wait(5)
        finally:
            connection.close()

    def second() -> None:
        try:
            answers.append(lab_submit(lab, 1, key_for(lab, "k")))
        finally:
            connection.close()

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert is_inside.wait(5)
    threads[1].start()
    threads[1].join(0.3)
    assert threads[1].is_alive()
    may_commit.set()
    for thread in threads:
        thread.join(5)
    assert answers[0] == answers[1]


def test_a_submission_that_fails_before_its_commit_leaves_nothing(lab: Lab):
    configure("submit.before_commit=exc")
    try:
        with pytest.raises(FaultInjected):
            lab_submit(lab, 2, key_for(lab, "k"))
    finally:
        configure(None)
    assert query("SELECT id FROM active_tasks WHERE group_id = %s", lab.group_id) == []
    assert len(lab_submit(lab, 2, key_for(lab, "k"))) == 2


def test_an_answer_lost_after_the_commit_is_found_by_its_key(lab: Lab):
    configure("submit.after_commit_before_reply=exc")
    try:
        with pytest.raises(FaultInjected):
            lab_submit(lab, 2, key_for(lab, "k"))
    finally:
        configure(None)
    refs = lab_submit(lab, 2, key_for(lab, "k"))
    stored = query("SELECT uuid FROM active_tasks WHERE group_id = %s ORDER BY id", lab.group_id)
    assert [ref.uuid for ref in refs] == [row["uuid"] for row in stored]


def test_an_array_fills_in_its_parameters(lab: Lab):
    template = NewTask(
        spec=TaskSpec(
            args=["train", "--seed={seed}", "awk '{print $1}' {missing}", "{name}{name}"],
            envs={"SEED": "{seed}", "{seed}": "key"},
        ),
        timeout_s=5,
        labels=["run-{seed}", "all"],
        tags=["gpu"],
    )
    rows = [ArrayRow({"seed": str(n), "name": 'q"\\é\n'}, priority=n) for n in range(3)]
    given = submit_array(
        target=lab.target(in_suite=True), creator_id=lab.creator_id, template=template, rows=rows
    )
    stored = query(
        "SELECT number, uuid, priority, labels, tags, lane, state, spec->'args'->>1 AS seed,"
        " spec->'args'->>2 AS awk, spec->'args'->>3 AS odd, spec->'envs'->>'SEED' AS env,"
        " spec->'envs'->>'{seed}' AS key FROM active_tasks WHERE group_id = %s ORDER BY id",
        lab.group_id,
    )
    assert [row["uuid"] for row in stored] == given.uuids
    assert [row["number"] for row in stored] == [1, 2, 3]
    last = stored[2]
    assert (last["seed"], last["env"], last["key"]) == ("--seed=2", "2", "key")
    assert last["awk"] == "awk '{print $1}' {missing}"
    assert last["odd"] == 'q"\\é\n' * 2
    assert (last["priority"], last["labels"], last["tags"]) == (2, ["all", "run-2"], ["gpu"])
    assert (last["lane"], last["state"]) == (lane_of(["gpu"]), 1)
    assert lab.counts() == lab.real_counts()
    assert lab.counts()["pending"] == 3
    events = query("SELECT kind, seq FROM task_events WHERE group_id = %s", lab.group_id)
    assert events == [{"kind": 0, "seq": 1}] * 3


def test_array_rows_may_depend_on_each_other(lab: Lab):
    rows = [ArrayRow(depends_on=(Dependency(2, DependencyCondition.ANY),)), ArrayRow(), ArrayRow()]
    submit_array(target=lab.target(), creator_id=lab.creator_id, template=TASK, rows=rows)
    runner = lab.runner_ids[0]
    numbers = [lab.task(task.task_id)["number"] for task in lab.claim(runner, want=9).tasks]
    assert numbers == [2, 3]


def test_an_array_with_a_bad_row_leaves_nothing(lab: Lab):
    template = NewTask(spec=TaskSpec(args=["{a}"]), timeout_s=5)
    for rows, words in (
        ([ArrayRow({"a": "1"}), ArrayRow({})], "row 1: the parameter 'a' has no value"),
        ([ArrayRow({"a": "1"}), ArrayRow({"a": "x\x00"})], "row 1: .* holds a NUL"),
        ([ArrayRow({"a": "x" * 70_000})], "row 0: the task spec has"),
        ([ArrayRow({"a b": "1"})], "cannot name a parameter"),
        ([], "at least one row"),
    ):
        with pytest.raises(InvalidInput, match=words):
            submit_array(
                target=lab.target(), creator_id=lab.creator_id, template=template, rows=rows
            )
    assert query("SELECT id FROM active_tasks WHERE group_id = %s", lab.group_id) == []


def test_an_array_larger_than_one_copy_arrives_whole(lab: Lab):
    given = array_of(lab, 20_001)
    [row] = query(
        "SELECT count(*) AS n, max(number) AS last FROM active_tasks WHERE group_id = %s",
        lab.group_id,
    )
    assert (row["n"], row["last"], len(given.uuids)) == (20_001, 20_001, 20_001)


@pytest.mark.alone
def test_a_long_array_does_not_make_others_wait(lab: Lab):
    def submit_slowly() -> None:
        try:
            array_of(lab, 10)
        finally:
            connection.close()

    configure("submit.before_commit=delay:4#1")
    thread = threading.Thread(target=submit_slowly)
    try:
        thread.start()
        deadline = time.monotonic() + 30
        while not query("SELECT FROM groups WHERE id = %s AND task_count = 10", lab.group_id):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        before = time.monotonic()
        [ref] = lab.submit(1)
        assert time.monotonic() - before < 3
        assert ref.number == 11
    finally:
        thread.join(10)
        configure(None)


def test_what_is_prepared_shares_the_transaction_and_is_not_repeated(lab: Lab):
    calls: list[bool] = []

    def prepare() -> None:
        calls.append(connection.in_atomic_block)

    for _ in range(2):
        submit_tasks(
            target=lab.target(),
            creator_id=lab.creator_id,
            tasks=[TASK],
            idempotency=key_for(lab, "k"),
            prepare=prepare,
        )
    assert calls == [True]


def test_a_waiting_task_can_be_changed_and_any_task_relabelled(lab: Lab):
    [ref] = lab.submit(1)
    gpu = lab.add_runner(tags=["gpu"])
    change_task(ref.uuid, tags=["gpu"], timeout_s=9, priority=4, spec=TaskSpec(args=["other"]))
    relabel_task(ref.uuid, ["b", "a"])
    row = lab.task(ref.id)
    assert (row["tags"], row["timeout_s"], row["priority"]) == (["gpu"], 9, 4)
    assert row["labels"] == ["a", "b"]
    assert lab.claim(lab.runner_ids[0]).tasks == ()
    attempt = lab.claim_attempt(gpu)
    with pytest.raises(NotFound):
        change_task(ref.uuid, priority=1)
    relabel_task(ref.uuid, [])
    lab.commit(attempt, gpu)
    relabel_task(ref.uuid, ["late"])
    assert lab.task(ref.id)["labels"] == ["late"]
    assert [kind for _, kind in lab.events(ref.id)] == [0, 10, 10, 2, 10, 8, 10]
    with pytest.raises(NotFound):
        relabel_task(uuid.uuid4(), ["x"])
    with pytest.raises(InvalidInput):
        change_task(ref.uuid)


def test_changing_a_lost_task_fences_the_old_attempt(lab: Lab):
    [ref] = lab.submit(1)
    runner = lab.runner_ids[0]
    attempt = lab.claim_attempt(runner)
    lab.expire_lease(runner)
    lab.reap()
    change_task(ref.uuid, spec=TaskSpec(args=["new"]))
    assert lab.commit(attempt, runner).answer is ReportAnswer.STALE_ATTEMPT


def test_a_runner_submits_a_task_that_waits_for_the_one_it_finishes(lab: Lab):
    [ref] = lab.submit(1, in_suite=True)
    runner, other = lab.runner_ids[:2]
    [task] = lab.claim_from_suite(runner).tasks
    op_id = uuid.uuid4()

    def send(by: int = runner, group_id: int = lab.group_id) -> ReportAnswer:
        return submit_downstream_sync(
            attempt_id=task.attempt_id, runner_id=by, group_id=group_id, task=TASK, op_id=op_id
        ).answer

    assert send() is ReportAnswer.INVALID  # not finishing yet
    lab.finish(task.attempt_id, runner)
    assert send(by=other) is ReportAnswer.FORBIDDEN
    assert send(group_id=lab.group_id + 1) is ReportAnswer.INVALID
    assert send() is ReportAnswer.OK
    assert send() is ReportAnswer.OK_DUPLICATE
    [child] = query("SELECT * FROM active_tasks WHERE uuid = %s", op_id)
    assert (child["state"], child["upstream_task_uuid"]) == (0, ref.uuid)
    assert (child["suite_id"], child["creator_id"]) == (lab.suite_id, lab.creator_id)
    assert lab.task(ref.id)["downstream_task_uuid"] == op_id
    lab.commit(task.attempt_id, runner, Outcome.FAILED)
    assert lab.task(child["id"])["state"] == 1
    assert lab.counts() == lab.real_counts()
    assert send() is ReportAnswer.OK_DUPLICATE


def test_what_a_status_means_is_one_table():
    from mitosis_protocol.enums import TaskResultMessage as Msg

    assert outcome_of(0, None) is Outcome.SUCCEEDED
    assert outcome_of(256, None) is Outcome.FAILED
    assert outcome_of(0, Msg.EXEC_TIMEOUT) is Outcome.TIMEOUT
    assert outcome_of(0, Msg.USER_CANCELLATION) is Outcome.CANCELLED
    assert outcome_of(0, Msg.UPLOAD_RESULT_TIMEOUT) is Outcome.FAILED
    assert legacy_op_id(5, "commit") == legacy_op_id(5, "commit") != legacy_op_id(6, "commit")


def test_lanes_differ_by_what_a_runner_needs():
    assert lane_of([]) == 0
    assert lane_of(["a", "b"]) == lane_of(["b", "a", "a"])
    assert len({lane_of(["a"]), lane_of(["b"]), lane_of(["a"], 1), lane_of([], 1)}) == 4


def lab_submit(lab: Lab, count: int, idempotency: Idempotency):
    return submit_tasks(
        target=lab.target(),
        creator_id=lab.creator_id,
        tasks=[TASK] * count,
        idempotency=idempotency,
    )


def array_of(lab: Lab, count: int, **more):
    rows = [ArrayRow({"n": str(n)}) for n in range(count)]
    template = NewTask(spec=TaskSpec(args=["{n}"]), timeout_s=5)
    return submit_array(
        target=lab.target(), creator_id=lab.creator_id, template=template, rows=rows, **more
    )
