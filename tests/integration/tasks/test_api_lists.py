"""Many tasks at once: filters, pages, counts, and cancelling what was found."""

import time
from uuid import uuid4

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from accounts.models import Group
from mitosis_protocol.enums import Role
from tasks.models import ActiveTask, ArchivedTask
from tasks.selectors_query import TaskFilter, page_of_ids
from tests.integration.tasks.api_world import (
    Caller,
    TeamWorker,
    allowed_s,
    new_group,
    ok,
    refused,
    submit,
    task,
)

pytestmark = pytest.mark.django_db


def query(caller: Caller, **filters: object) -> list[str]:
    answer = ok(caller.call("POST", "/tasks/query", {"count": False, **filters}))
    assert answer["count"] == len(answer["tasks"])
    return [item["uuid"] for item in answer["tasks"]]


def count(caller: Caller, **filters: object) -> int:
    answer = ok(caller.call("POST", "/tasks/query", {"count": True, **filters}))
    assert answer["tasks"] == []
    return int(answer["count"])


def test_active_and_archived_tasks_are_one_list_in_order(ada: Caller, worker: TeamWorker) -> None:
    first, second, third = (str(submit(ada, priority=n)) for n in (1, 9, 5))
    assert str(worker.run()) == second
    assert query(ada) == [first, second, third]
    assert count(ada) == 3


def test_a_limit_is_a_limit(ada: Caller, worker: TeamWorker) -> None:
    made = [str(submit(ada)) for _ in range(6)]
    for _ in range(3):
        worker.run()
    assert query(ada, limit=1) == made[:1]
    assert query(ada, limit=4, offset=1) == made[1:5]
    assert query(ada, offset=5) == made[5:]
    assert query(ada, limit=0) == []
    assert query(ada, offset=2**62) == []
    assert query(ada, limit=2**62) == made
    assert count(ada, limit=1, offset=3) == 6
    answer = ok(ada.call("POST", "/tasks/query", {"count": False, "limit": 5}))
    assert answer["has_more"] is True


def test_filters_hold_together(ada: Caller, bob: Caller, lab_group: Group) -> None:
    gpu = str(submit(ada, group="lab", tags=["gpu", "big"], labels=["x"], priority=5))
    bobs = str(submit(bob, group="lab", tags=["gpu"], labels=["x", "y"], priority=-1))
    lab = {"group_name": "lab"}
    assert query(ada, **lab, tags=["gpu"]) == [gpu, bobs]
    assert query(ada, **lab, tags=["gpu", "big"]) == [gpu]
    assert query(ada, **lab, labels=["y"]) == [bobs]
    assert query(ada, **lab, creator_usernames=["bob", "nobody"]) == [bobs]
    assert query(ada, **lab, priority=">=5") == [gpu]
    assert query(ada, **lab, priority="!=5") == [bobs]
    assert query(ada, **lab, priority="-1") == [bobs]
    assert query(ada, **lab, tags=["gpu"], creator_usernames=["ada"], priority="<6") == [gpu]
    assert query(ada) == []


def test_a_task_is_found_by_how_its_uuid_begins_and_by_its_number(
    ada: Caller, worker: TeamWorker
) -> None:
    made = [str(submit(ada)) for _ in range(4)]
    done = str(worker.run())
    for uuid in made:
        for length in (1, 8, 9, 12, 20, 36):
            expected = [one for one in made if one.startswith(uuid[:length])]
            assert query(ada, uuid_prefix=uuid[:length]) == expected
    assert query(ada, uuid_prefix=done.upper()) == [done]
    assert query(ada, task_id=3) == made[2:3]
    assert query(ada, task_id=99) == []
    assert query(ada, uuid_prefix="00000000-") == []
    for bad in ("", "x", "123456789", "1234-", "%"):
        answer = ada.call("POST", "/tasks/query", {"count": False, "uuid_prefix": bad})
        refused(answer, 400, "uuid_prefix")


def test_states_are_those_of_the_wire(ada: Caller, worker: TeamWorker) -> None:
    running, finishing, failed, ready = (str(submit(ada, priority=-n)) for n in range(4))
    pending = str(submit(ada, depends_on=[ready]))
    cancelled = str(submit(ada, priority=-9))
    assert ada.user is not None
    others = [TeamWorker(ada.user) for _ in range(2)]
    worker.claim()
    others[0].finish(others[0].claim())
    others[1].run(256)
    ada.call("DELETE", f"/tasks/{cancelled}")
    assert query(ada, states=["Pending"]) == [pending]
    assert query(ada, states=["Ready"]) == [ready]
    assert query(ada, states=["Running"]) == [running]
    assert query(ada, states=["Finished"]) == [finishing, failed]
    assert query(ada, states=["Cancelled"]) == [cancelled]
    assert query(ada, states=["Unknown"]) == []
    assert query(ada, states=["Ready", "Cancelled"]) == [ready, cancelled]


def test_exit_status_compares_as_a_number(ada: Caller, worker: TeamWorker) -> None:
    made = {}
    for status in (9, 10, 0):
        uuid = submit(ada)
        worker.run(status)
        made[status] = str(uuid)
    cancelled = submit(ada, priority=-5)
    waiting = submit(ada, priority=-9)
    ada.call("DELETE", f"/tasks/{cancelled}")
    assert query(ada, exit_status=">9") == [made[10]]
    assert query(ada, exit_status="<=9") == [made[9], made[0], str(cancelled)]
    assert query(ada, exit_status="!=0") == [made[9], made[10]]
    assert str(waiting) not in query(ada, exit_status=">=-2147483648")
    assert query(ada, reporter_uuid=str(worker.uuid)) == [made[9], made[10], made[0]]
    assert query(ada, reporter_uuid=str(uuid4())) == []


@pytest.mark.parametrize(
    ("filters", "status", "word"),
    [
        ({"tags": []}, 400, "Tags cannot be empty"),
        ({"labels": []}, 400, "Labels cannot be empty"),
        ({"states": []}, 400, "States cannot be empty"),
        ({"creator_usernames": []}, 400, "Creator usernames cannot be empty"),
        ({"states": ["Nope"]}, 422, "states"),
        ({"states": "Ready"}, 422, "states"),
        ({"exit_status": "1 OR 1=1"}, 400, "exit_status"),
        ({"exit_status": 1}, 422, "exit_status"),
        ({"priority": ">=99999999999"}, 400, "priority"),
        ({"limit": -1}, 422, "limit"),
        ({"limit": "1"}, 422, "limit"),
        ({"offset": 1.5}, 422, "offset"),
        ({"count": "true"}, 422, "count"),
        ({"count": None}, 422, "count"),
        ({"reporter_uuid": "x"}, 422, "reporter_uuid"),
        ({"suite_uuid": str(uuid4())}, 404, "Suite"),
        ({"group_name": "nobody"}, 400, "nobody not found or user is not in the group"),
        ({"group_name": 5}, 422, "group_name"),
        ({"tags": ["'; DROP TABLE active_tasks; --", 5]}, 422, "tags"),
    ],
)
def test_bad_filters_are_refused_by_name(
    ada: Caller, filters: dict[str, object], status: int, word: str
) -> None:
    refused(ada.call("POST", "/tasks/query", {"count": False, **filters}), status, word)


def test_hostile_texts_are_only_texts(ada: Caller) -> None:
    label = "'; DROP TABLE active_tasks; -- %_\\\"{}"
    made = str(submit(ada, labels=[label]))
    assert query(ada, labels=[label]) == [made]
    assert query(ada, labels=["%"]) == []
    assert query(ada, creator_usernames=["ada' OR '1'='1"]) == []


def test_a_foreign_group_is_refused_like_an_absent_one(
    ada: Caller, eve: Caller, lab_group: Group
) -> None:
    for path in ("/tasks/query", "/tasks/cancel", "/tasks/download/artifacts"):
        body = {"count": False, "content_type": "result"}
        foreign = refused(eve.call("POST", path, {**body, "group_name": "lab"}), 400)
        absent = refused(eve.call("POST", path, {**body, "group_name": "bal"}), 400)
        assert foreign["msg"].replace("lab", "bal") == absent["msg"]


def test_readers_query_and_writers_cancel(ada: Caller, ron: Caller, lab_group: Group) -> None:
    made = str(submit(ada, group="lab"))
    assert query(ron, group_name="lab") == [made]
    refused(ron.call("POST", "/tasks/cancel", {"group_name": "lab"}), 403)
    failed = ok(ron.call("POST", "/tasks/cancel/list", {"uuids": [made]}))
    assert (failed["cancelled_count"], failed["failed_uuids"]) == (0, [made])


def test_a_filter_cancels_what_waits_and_what_runs(ada: Caller, worker: TeamWorker) -> None:
    for label in ("a", "a", "b"):
        submit(ada, labels=[label])
    worker.claim()
    answer = ok(ada.call("POST", "/tasks/cancel", {"labels": ["a"]}))
    assert answer == {"cancelled_count": 2, "cancelling_count": 1, "group_name": "ada"}
    assert ActiveTask.objects.filter(cancel_requested_at__isnull=False).count() == 1
    assert ArchivedTask.objects.count() == 1


def test_asking_for_states_cancels_only_those(ada: Caller, worker: TeamWorker) -> None:
    submit(ada)
    submit(ada)
    claimed = worker.claim()
    assert ok(ada.call("POST", "/tasks/cancel", {"states": ["Finished"]}))["cancelled_count"] == 0
    assert ok(ada.call("POST", "/tasks/cancel", {"states": ["Ready"]}))["cancelled_count"] == 1
    assert ok(ada.call("POST", "/tasks/cancel", {"states": ["Running"]}))["cancelled_count"] == 1
    worker.commit(claimed)
    assert ok(ada.call("POST", "/tasks/cancel", {}))["cancelled_count"] == 0


def test_cancelling_by_uuid_names_what_it_could_not_do(
    ada: Caller, eve: Caller, worker: TeamWorker
) -> None:
    ended = submit(ada, priority=9)
    worker.run()
    waiting, foreign, nothing = submit(ada), submit(eve, group="eve"), uuid4()
    uuids = [str(uuid) for uuid in (ended, waiting, foreign, nothing, waiting)]
    answer = ok(ada.call("POST", "/tasks/cancel/list", {"uuids": uuids}))
    assert answer["cancelled_count"] == 1
    assert answer["failed_uuids"] == [str(ended), str(foreign), str(nothing)]
    assert ActiveTask.objects.get().uuid == foreign
    refused(ada.call("POST", "/tasks/cancel/list", {"uuids": []}), 400, "uuids")
    refused(ada.call("POST", "/tasks/cancel/list", {"uuids": ["x"]}), 422, "uuids")
    refused(ada.call("POST", "/tasks/cancel/list", {"uuids": [5]}), 422, "uuids")
    too_many = [str(uuid4())] * 10_001
    refused(ada.call("POST", "/tasks/cancel/list", {"uuids": too_many}), 422, "uuids")


def test_a_page_costs_the_same_few_queries_whatever_its_size(ada: Caller) -> None:
    def queries(limit: int) -> int:
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert len(query(ada, limit=limit)) == limit
        return len(captured)

    ok(ada.call("POST", "/tasks/submit", {"tasks": [task() for _ in range(50)]}))
    assert queries(5) == queries(40)


def test_a_page_is_read_from_the_indexes_in_order(ada: Caller) -> None:
    assert ada.user is not None
    big = new_group("big", ada.user, ada=Role.ADMIN)
    rows = [{"params": {}}] * 20_000
    ok(ada.call("POST", "/tasks/array", {"template": task("big"), "rows": rows}), 201)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE active_tasks, archived_tasks")
    plan = page_of_ids(TaskFilter(group_id=big.pk), offset=100, limit=10).explain()
    assert "Merge Append" in plan
    assert "Seq Scan on active_tasks" not in plan


def test_words_of_young_tasks_are_found_without_passing_the_old_ones(ada: Caller) -> None:
    assert ada.user is not None
    big = new_group("big", ada.user, ada=Role.ADMIN)
    for labels, count in ([], 19_500), (["young"], 500):
        template = task("big", labels=labels)
        ok(ada.call("POST", "/tasks/array", {"template": template, "rows": [{}] * count}), 201)
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE active_tasks, archived_tasks")
    page = page_of_ids(TaskFilter(group_id=big.pk, labels=["young"]), offset=0, limit=10)
    plan = page.explain(analyze=True)
    assert "active_tasks_labels_gin" in plan
    assert "Rows Removed by Filter" not in plan
    assert len(query(ada, group_name="big", labels=["young"], limit=10)) == 10
    nobody = {"creator_usernames": ["nobody"], "labels": ["young"], "group_name": "big"}
    assert query(ada, **nobody) == []


@pytest.mark.alone
def test_ten_thousand_tasks_are_cancelled_and_listed_within_five_seconds(ada: Caller) -> None:
    ok(ada.call("POST", "/tasks/array", {"template": task(), "rows": [{}] * 10_000}), 201)
    started = time.monotonic()
    assert len(query(ada)) == 10_000
    assert time.monotonic() - started < allowed_s(5)
    started = time.monotonic()
    assert ok(ada.call("POST", "/tasks/cancel", {}))["cancelled_count"] == 10_000
    assert time.monotonic() - started < allowed_s(5)
