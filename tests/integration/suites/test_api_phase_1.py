"""The checklist of the first phase that no other file covers: keys, codes, downstream tasks."""

from uuid import uuid4

import pytest
from django.db import IntegrityError, connection, transaction

from mitosis_protocol.enums import ManagerState, SelectionType, SuiteState
from mitosis_protocol.specs import TaskSpec
from suites.selectors import suite_counts
from tasks.dispatcher import Held
from tasks.models import ActiveTask
from tasks.new_task import NewTask
from tasks.services.report import finish_sync, submit_downstream_sync
from tests.integration.suites.campaign import counted, make_suite, make_user, submit
from tests.integration.suites.hosts import Host

pytestmark = pytest.mark.django_db(transaction=True)

TABLES = {
    "task_suites",
    "node_managers",
    "group_runners",  # the RFC's group_node_manager, for every kind of runner
    "task_suite_managers",
    "suite_assignments",
    "task_execution_failures",
}


def rows(sql: str) -> list[tuple[object, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(sql)
        return cursor.fetchall()


def test_phase_1_migrations_made_the_tables() -> None:
    assert set(connection.introspection.table_names()) >= TABLES


@pytest.mark.parametrize("table", ["active_tasks", "archived_tasks", "suite_count_deltas"])
def test_phase_1_foreign_keys_to_suites_are_immediate_and_restrict(table: str) -> None:
    found = rows(
        "SELECT confdeltype, condeferrable FROM pg_constraint"
        f" WHERE contype = 'f' AND conrelid = '{table}'::regclass"
        " AND confrelid = 'task_suites'::regclass"
    )
    assert found == [("r", False)]


def test_phase_1_foreign_key_constraints_keep_a_suite_with_tasks() -> None:
    suite = make_suite(make_user())
    submit(suite)
    with pytest.raises(IntegrityError), transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("DELETE FROM task_suites WHERE id = %s", [suite.pk])
    assert counted(suite) == (1, 1)


def test_phase_1_foreign_key_constraints_refuse_tasks_of_no_suite() -> None:
    suite = make_suite(make_user())
    [task_id] = submit(suite)
    with pytest.raises(IntegrityError), transaction.atomic():
        ActiveTask.objects.filter(pk=task_id).update(suite_id=suite.pk + 1000)


def test_phase_1_enums_have_the_numbers_of_the_rfc() -> None:
    assert [(one.value, one.code) for one in SuiteState] == [
        ("Open", 0),
        ("Closed", 1),
        ("Complete", 2),
        ("Cancelled", 3),
    ]
    assert [one.code for one in ManagerState] == [0, 1, 2, 3, 4]
    assert [(one.value, one.code) for one in SelectionType] == [
        ("UserSpecified", 0),
        ("TagMatched", 1),
    ]


def test_phase_1_counts_follow_every_way_in_and_out() -> None:
    user = make_user()
    suite = make_suite(user)
    submit(suite, 6)
    host = Host(user)
    host.engage(suite)
    host.run(2)
    host.run(1, exit_status=256)
    [held] = host.claim(1)
    counts = suite_counts([suite.pk])[suite.pk]
    assert (counts.total, counts.pending, counts.succeeded, counts.failed) == (6, 3, 2, 1)
    host.commit(held)
    assert suite_counts([suite.pk])[suite.pk].pending == counted(suite)[1] == 2


def test_a_downstream_task_inherits_the_suite_and_is_counted() -> None:
    user = make_user()
    suite = make_suite(user)
    submit(suite)
    host = Host(user)
    host.engage(suite)
    [claimed] = host.claim(1)
    finish_sync(Held(claimed.attempt_id, host.id))
    task = NewTask(spec=TaskSpec(args=["true"]), timeout_s=60)
    answer = submit_downstream_sync(
        attempt_id=claimed.attempt_id,
        runner_id=host.id,
        group_id=suite.group_id,
        task=task,
        op_id=uuid4(),
    )
    assert answer.answer.value == "ok"
    row = ActiveTask.objects.get(uuid=answer.uuid)
    assert (row.suite_id, row.upstream_task_uuid) == (suite.pk, claimed.uuid)
    counts = suite_counts([suite.pk])[suite.pk]
    assert (counts.total, counts.pending) == counted(suite) == (2, 2)
    host.commit(claimed)
    assert [one.uuid for one in host.claim(1)] == [answer.uuid]
