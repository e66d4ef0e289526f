"""Archives of tasks: who pays, which one counts, and what a late or hostile upload can do."""

import threading
from contextlib import AbstractContextManager
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from django.db import connections
from pytest_django import Settings

from accounts.models import AuditEntry, Group
from accounts.selectors import get_group
from core import clock
from core.errors import NotFound, StaleAttempt
from mitosis_protocol.enums import ArtifactContentType, GroupState
from tasks.models import ActiveTask, Artifact
from tasks.rows import ClaimedTask, Report, SettleOp
from tasks.services.artifacts import discard_superseded
from tasks.services.attempt_uploads import issue_upload_sync
from tasks.services.report import settle_sync
from tasks.storage import Bucket, get_storage
from tests.harness import TestServices
from tests.integration.tasks.api_world import Caller, TeamWorker, ok, refused, submit
from tests.integration.tasks.object_store import get, put

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("services")]

RESULT = ArtifactContentType.RESULT


def used(group: str = "ada") -> int:
    return int(get_group(group).storage_used)


def ask(caller: Caller, uuid: UUID, size: int, kind: str = "result") -> dict[str, object]:
    body = {"content_type": kind, "content_length": size}
    answer: dict[str, object] = ok(caller.call("POST", f"/tasks/{uuid}/artifacts", body))
    return answer


def upload(caller: Caller, uuid: UUID, data: bytes, kind: str = "result") -> None:
    assert put(str(ask(caller, uuid, len(data), kind)["url"]), data) == 200


def download(caller: Caller, uuid: UUID, kind: str = "result") -> bytes:
    found = ok(caller.call("GET", f"/tasks/{uuid}/download/artifacts/{kind}"))
    data = get(found["url"])
    assert found["size"] >= len(data)
    return data


def later(**duration: float) -> AbstractContextManager[None]:
    moment = clock.now() + timedelta(**duration)
    return clock.using(lambda: moment)


def issue(worker: TeamWorker, claimed: ClaimedTask, size: int) -> str:
    issued = issue_upload_sync(
        attempt_id=claimed.attempt_id, runner_id=worker.runner_id, content_type=RESULT, size=size
    )
    return issued.url


def release(worker: TeamWorker, claimed: ClaimedTask) -> None:
    """The worker goes away with the task in hand; somebody else will claim it anew."""
    report = Report(
        attempt_id=claimed.attempt_id,
        runner_id=worker.runner_id,
        op=SettleOp.ABORT,
        op_id=uuid4(),
    )
    settle_sync([report])
    ActiveTask.objects.update(not_before=clock.now() - timedelta(hours=1))


def test_an_archive_makes_the_round_trip(ada: Caller) -> None:
    made = submit(ada)
    upload(ada, made, b"hello")
    assert download(ada, made) == b"hello"
    [info] = ok(ada.call("GET", f"/tasks/{made}"))["artifacts"]
    assert (info["content_type"], info["size"]) == ("result", 5)
    refused(ada.call("GET", f"/tasks/{made}/download/artifacts/std-log"), 404, "std-log")


@pytest.mark.parametrize(
    ("spelling", "kind"), [("exec", "exec-log"), ("TERMINAL", "std-log"), ("Result", "result")]
)
def test_types_have_the_spellings_existing_clients_use(
    ada: Caller, spelling: str, kind: str
) -> None:
    made = submit(ada)
    upload(ada, made, b"hello", spelling)
    assert download(ada, made, spelling) == b"hello"
    assert Artifact.objects.get().content_type.value == kind


def test_storage_is_charged_when_the_url_is_issued_and_only_for_growth(ada: Caller) -> None:
    made = submit(ada)
    assert ask(ada, made, 100)["exist"] is False
    assert used() == 100
    assert ask(ada, made, 60)["exist"] is True
    assert used() == 100
    assert ask(ada, made, 150)["exist"] is True
    assert used() == 150
    assert ask(ada, made, 10, "std-log")["exist"] is False
    assert used() == 160


def test_beyond_the_quota_nothing_is_issued_or_written(ada: Caller) -> None:
    made = submit(ada)
    Group.objects.filter(name="ada").update(storage_quota=100)
    body = {"content_type": "result", "content_length": 101}
    refused(ada.call("POST", f"/tasks/{made}/artifacts", body), 403, "quota")
    assert (used(), Artifact.objects.count()) == (0, 0)
    ask(ada, made, 100)
    Group.objects.filter(name="ada").update(storage_quota=0)
    ask(ada, made, 100)  # what is paid for may be uploaded again
    refused(ada.call("POST", f"/tasks/{made}/artifacts", body), 403, "quota")
    huge = {"content_type": "std-log", "content_length": 2**63 - 1}
    refused(ada.call("POST", f"/tasks/{made}/artifacts", huge), 403, "quota")


def test_a_group_that_is_not_active_stores_nothing(ada: Caller) -> None:
    made = submit(ada)
    Group.objects.filter(name="ada").update(state=GroupState.LOCKED)
    body = {"content_type": "result", "content_length": 1}
    refused(ada.call("POST", f"/tasks/{made}/artifacts", body), 400, "not active")


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"content_type": "nope", "content_length": 1}, "content_type"),
        ({"content_type": "result", "content_length": -1}, "content_length"),
        ({"content_type": "result", "content_length": "1"}, "content_length"),
        ({"content_type": "result", "content_length": 1.0}, "content_length"),
        ({"content_type": "result", "content_length": 2**63}, "64 bits"),
        ({"content_type": "result"}, "content_length"),
    ],
)
def test_bad_uploads_are_refused_by_name(ada: Caller, body: dict[str, object], word: str) -> None:
    answer = ada.call("POST", f"/tasks/{submit(ada)}/artifacts", body)
    assert answer.status_code in {400, 422}
    assert word in answer.json()["msg"]


def test_a_young_archive_cannot_be_deleted(ada: Caller) -> None:
    made = submit(ada)
    upload(ada, made, b"hello")
    refused(ada.call("DELETE", f"/tasks/{made}/artifacts/result"), 400, "last hour")
    with later(minutes=61):
        assert ada.call("DELETE", f"/tasks/{made}/artifacts/result").status_code == 200
        refused(ada.call("DELETE", f"/tasks/{made}/artifacts/result"), 404)
    assert used() == 0
    assert get_storage().head(Bucket.ARTIFACTS, f"{made}/0/result.tar.gz") is None


def test_admins_delete_at_once_and_leave_a_trace(ada: Caller, root: Caller) -> None:
    made = submit(ada)
    upload(ada, made, b"hello")
    path = f"/admin/tasks/{made}/artifacts/result"
    refused(ada.call("DELETE", path), 403)
    assert root.call("DELETE", path).status_code == 200
    refused(root.call("DELETE", path), 404)
    refused(root.call("DELETE", f"/admin/tasks/{uuid4()}/artifacts/result"), 404)
    assert used() == 0
    assert AuditEntry.objects.filter(action="artifact.delete", actor_id="root").exists()


def test_a_store_that_is_away_changes_nothing(ada: Caller, settings: Settings) -> None:
    made = submit(ada)
    upload(ada, made, b"hello")
    settings.S3_ENDPOINT_URL = "http://127.0.0.1:9"
    with later(hours=2):
        refused(ada.call("DELETE", f"/tasks/{made}/artifacts/result"), 503)
    assert (used(), Artifact.objects.count()) == (5, 1)
    ask(ada, submit(ada), 5)  # signing needs no store


def test_readers_download_and_writers_upload(
    ada: Caller, bob: Caller, ron: Caller, lab_group: Group
) -> None:
    made = submit(ada, group="lab")
    upload(bob, made, b"hello")
    assert download(ron, made) == b"hello"
    body = {"content_type": "result", "content_length": 1}
    refused(ron.call("POST", f"/tasks/{made}/artifacts", body), 403)
    refused(ron.call("DELETE", f"/tasks/{made}/artifacts/result"), 403)


def test_the_archive_of_the_newest_attempt_counts(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada)
    lost = worker.claim()
    late_url = issue(worker, lost, 5)
    assert used() == 5
    release(worker, lost)
    claimed = worker.claim()
    assert put(issue(worker, claimed, 7), b"attempt") == 200
    assert used() == 7  # the lost attempt's charge was given back
    assert put(late_url, b"late!") == 200  # it hits an object of its own
    worker.commit(claimed)
    assert download(ada, made) == b"attempt"
    with pytest.raises(StaleAttempt):
        issue(worker, lost, 5)


def test_leftovers_of_lost_attempts_are_swept(ada: Caller, worker: TeamWorker) -> None:
    submit(ada)
    lost = worker.claim()
    put(issue(worker, lost, 5), b"late!")
    release(worker, lost)
    worker.commit(worker.claim())
    assert discard_superseded() == 0  # its URL may still be in use
    with later(hours=2):
        assert discard_superseded() == 1
    assert (used(), Artifact.objects.count()) == (0, 0)
    assert get_storage().head(Bucket.ARTIFACTS, f"{lost.uuid}/1/result.tar.gz") is None


def test_a_runner_uploads_only_for_what_it_holds(
    ada: Caller, eve: Caller, worker: TeamWorker
) -> None:
    submit(ada)
    claimed = worker.claim()
    assert eve.user is not None
    stranger = TeamWorker(eve.user)
    with pytest.raises(NotFound):
        issue(stranger, claimed, 5)
    worker.commit(claimed)
    with pytest.raises(StaleAttempt):
        issue(worker, claimed, 5)


def test_a_users_upload_replaces_the_runners(ada: Caller, worker: TeamWorker) -> None:
    made = submit(ada)
    claimed = worker.claim()
    put(issue(worker, claimed, 6), b"runner")
    worker.commit(claimed)
    assert ask(ada, made, 4)["exist"] is True
    upload(ada, made, b"user")
    assert download(ada, made) == b"user"
    assert Artifact.objects.count() == 1


def test_links_by_list_leave_out_what_is_missing_or_foreign(ada: Caller, eve: Caller) -> None:
    with_one, without, foreign = submit(ada), submit(ada), submit(eve, group="eve")
    upload(ada, with_one, b"hello")
    upload(eve, foreign, b"secret")
    uuids = [str(uuid) for uuid in (without, with_one, foreign, uuid4())]
    body = {"uuids": uuids, "content_type": "result"}
    downloads = ok(ada.call("POST", "/tasks/download/artifacts/list", body))["downloads"]
    assert [item["uuid"] for item in downloads] == [str(with_one)]
    assert get(downloads[0]["url"]) == b"hello"
    empty = {"uuids": [], "content_type": "result"}
    refused(ada.call("POST", "/tasks/download/artifacts/list", empty), 400, "uuids")


def test_links_by_filter(ada: Caller, worker: TeamWorker) -> None:
    old, young = submit(ada, labels=["x"], priority=1), submit(ada, labels=["x"])
    claimed = worker.claim()
    put(issue(worker, claimed, 3), b"old")
    worker.commit(claimed)
    upload(ada, young, b"young")
    upload(ada, submit(ada), b"unlabelled")
    body = {"labels": ["x"], "content_type": "result"}
    answer = ok(ada.call("POST", "/tasks/download/artifacts", body))
    assert [(item["uuid"], get(item["url"])) for item in answer["downloads"]] == [
        (str(old), b"old"),
        (str(young), b"young"),
    ]
    assert answer["has_more"] is False
    refused(ada.call("POST", "/tasks/download/artifacts", {"labels": ["x"]}), 422, "content_type")


def test_deleting_by_list_and_filter_skips_the_young(ada: Caller, eve: Caller) -> None:
    mine, more, foreign = submit(ada), submit(ada), submit(eve, group="eve")
    for caller, uuid in ((ada, mine), (ada, more), (eve, foreign)):
        upload(caller, uuid, b"hello")
    uuids = [str(uuid) for uuid in (mine, foreign)]
    body = {"uuids": uuids, "content_type": "result"}
    answer = ok(ada.call("POST", "/tasks/delete/artifacts/list", body))
    assert answer == {"deleted_count": 0, "failed_uuids": uuids}
    assert ok(ada.call("POST", "/tasks/delete/artifacts", {"content_type": "result"})) == {
        "deleted_count": 0
    }
    with later(hours=2):
        answer = ok(ada.call("POST", "/tasks/delete/artifacts/list", body))
        assert answer == {"deleted_count": 1, "failed_uuids": [str(foreign)]}
        rest = ok(ada.call("POST", "/tasks/delete/artifacts", {"content_type": "result"}))
        assert rest == {"deleted_count": 1}
    assert (used("ada"), used("eve")) == (0, 5)


@pytest.mark.django_db(transaction=True)
def test_uploads_at_the_same_time_never_pass_the_quota(services: TestServices, ada: Caller) -> None:
    made = [submit(ada) for _ in range(8)]
    Group.objects.filter(name="ada").update(storage_quota=250)
    statuses: list[int] = []
    start = threading.Barrier(len(made))

    def ask_for_one(uuid: UUID) -> None:
        start.wait()
        body = {"content_type": "result", "content_length": 100}
        statuses.append(ada.call("POST", f"/tasks/{uuid}/artifacts", body).status_code)
        connections.close_all()

    threads = [threading.Thread(target=ask_for_one, args=(uuid,)) for uuid in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200, 200] + [403] * 6
    assert used() == 200 == sum(Artifact.objects.values_list("size", flat=True))


@pytest.mark.django_db(transaction=True)
def test_the_same_upload_many_times_at_once_is_charged_once(
    services: TestServices, ada: Caller
) -> None:
    made = submit(ada)
    answers: list[bool] = []
    start = threading.Barrier(6)

    def ask_again() -> None:
        start.wait()
        answers.append(bool(ask(ada, made, 100)["exist"]))
        connections.close_all()

    threads = [threading.Thread(target=ask_again) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] + [True] * 5
    assert used() == 100


@pytest.mark.django_db(transaction=True)
def test_storage_adds_up_after_uploads_and_deletions_at_once(
    services: TestServices, ada: Caller
) -> None:
    made = [submit(ada) for _ in range(3)]
    for uuid in made:
        ask(ada, uuid, 10)
    problems: list[int] = []

    def churn(seed: int) -> None:
        for step in range(6):
            uuid = made[(seed + step) % len(made)]
            if (seed + step) % 2:
                body = {"content_type": "result", "content_length": 10 + seed}
                status = ada.call("POST", f"/tasks/{uuid}/artifacts", body).status_code
            else:
                with_admin = {"uuids": [str(uuid)], "content_type": "result"}
                status = ada.call("POST", "/tasks/delete/artifacts/list", with_admin).status_code
            if status not in {200, 409}:
                problems.append(status)
        connections.close_all()

    with later(hours=2):
        threads = [threading.Thread(target=churn, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert problems == []
    assert used() == sum(Artifact.objects.values_list("size", flat=True))
