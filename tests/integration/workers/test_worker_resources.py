"""What a worker may read and write beside reports: archives, files, watched tasks, live output."""

import re
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote

import httpx2
import pytest

from accounts.models import User
from accounts.selectors import get_group
from mitosis_protocol.enums import ArtifactContentType
from tasks.models import ActiveTask
from tasks.selectors import get_task
from tasks.services.artifacts import issue_task_upload
from tasks.services.attachments import issue_attachment_upload
from tasks.services.logs import LogStream, read_log
from tasks.storage import get_storage
from tests.integration.workers.inprocess import Site, WorkerSide
from tests.integration.workers.people import new_group, new_task, new_user, new_worker

ABSENT = "3f2d3c0e-6a64-4f40-9d0e-1f6e5b0a1c2d"
RFC3339 = re.compile(r"\dT\d")


@pytest.fixture
def foreign(owner: User) -> User:
    """Somebody whose group the worker does not serve."""
    return new_user("eve")


def upload_artifact(uuid: object) -> None:
    issued = issue_task_upload(task=get_task(uuid), content_type=ArtifactContentType.RESULT, size=5)
    assert httpx2.put(issued.url, content=b"hello").status_code == 200


def upload_attachment(group: str, key: str) -> None:
    issued = issue_attachment_upload(group=get_group(group), key=key, size=5)
    assert httpx2.put(issued.url, content=b"hello").status_code == 200


def test_an_archive_of_a_task_of_the_same_group_can_be_read(owner: User, worker: WorkerSide):
    source = new_task(owner)
    upload_artifact(source.uuid)
    worker.fetch()
    for kind in ("result", "Result"):
        answer = worker.call("GET", f"/workers/tasks/{source.uuid}/artifacts/{kind}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["size"] == 5
        assert httpx2.get(answer.json()["url"]).content == b"hello"


def test_an_archive_that_was_never_made_is_absent(owner: User, worker: WorkerSide):
    source = new_task(owner)
    worker.fetch()
    path = f"/workers/tasks/{source.uuid}/artifacts"
    assert worker.call("GET", f"{path}/result").status_code == 404
    assert worker.call("GET", f"{path}/movie").status_code == 400
    assert worker.call("GET", f"/workers/tasks/{ABSENT}/artifacts/result").status_code == 404


def test_nothing_of_a_foreign_group_is_visible(owner: User, worker: WorkerSide, foreign: User):
    source = new_task(foreign)
    upload_artifact(source.uuid)
    new_task(owner)
    worker.fetch()
    for path in ("", "/artifacts/result", "/attachments/data"):
        theirs = worker.call("GET", f"/workers/tasks/{source.uuid}{path}")
        nobodys = worker.call("GET", f"/workers/tasks/{ABSENT}{path}")
        assert (theirs.status_code, nobodys.status_code) == (404, 404)
        texts = [answer.json()["msg"] for answer in (theirs, nobodys)]
        assert texts[0].replace(str(source.uuid), "U") == texts[1].replace(ABSENT, "U")


def test_an_idle_worker_sees_nothing_at_all(owner: User, worker: WorkerSide):
    source = new_task(owner, tags=["gpu"])
    upload_artifact(source.uuid)
    assert worker.call("GET", f"/workers/tasks/{source.uuid}").status_code == 404
    assert worker.call("GET", f"/workers/tasks/{source.uuid}/artifacts/result").status_code == 404


def test_a_worker_of_two_groups_sees_only_that_of_its_task(site: Site, owner: User):
    new_group("lab", owner)
    theirs = new_task(owner, "lab", tags=["gpu"])
    upload_artifact(theirs.uuid)
    new_task(owner)
    worker = site.worker(new_worker(owner, groups=["lab"]).token)
    worker.fetch()
    assert worker.call("GET", f"/workers/tasks/{theirs.uuid}/artifacts/result").status_code == 404


@pytest.mark.parametrize("key", ["data", "a/b/c.txt", "with blank", "ü/%25?#"])
def test_a_file_of_the_tasks_group_can_be_read(owner: User, worker: WorkerSide, key: str):
    upload_attachment("ada", key)
    new_task(owner)
    task = worker.fetch()
    answer = worker.call("GET", f"/workers/tasks/{task['uuid']}/attachments/{quote(key)}")
    assert answer.status_code == 200, answer.text
    assert answer.json()["size"] == 5
    assert httpx2.get(answer.json()["url"]).content == b"hello"


def test_a_file_is_looked_up_in_the_group_of_the_task_in_hand(owner: User, worker: WorkerSide):
    new_group("lab", owner)
    upload_attachment("lab", "data")
    new_task(owner)
    task = worker.fetch()
    path = f"/workers/tasks/{task['uuid']}/attachments/data"
    assert worker.call("GET", path).status_code == 404


def test_a_watched_task_reads_as_its_user_sees_it(owner: User, worker: WorkerSide):
    watched = new_task(owner, labels=["x"])
    worker.commit(worker.fetch()["id"])
    new_task(owner)
    worker.fetch()
    answer = worker.call("GET", f"/workers/tasks/{watched.uuid}")
    assert answer.status_code == 200
    info = answer.json()["info"]
    assert (info["state"], info["result"]) == ("Finished", {"exit_status": 0, "msg": None})
    assert (info["uuid"], info["group_name"]) == (str(watched.uuid), "ada")
    assert answer.json()["artifacts"] == []
    assert not RFC3339.search(info["created_at"]), "existing workers read only the old form"


def test_output_is_kept_under_the_attempt_in_hand(owner: User, worker: WorkerSide):
    ref = new_task(owner)
    worker.fetch()
    path = f"/workers/tasks/{ref.uuid}/logs?stream=stdout&offset="
    headers = {**worker.headers, "Content-Type": "text/plain"}
    for offset, data in ((0, b"hello "), (0, b"hello "), (6, b"world\xff")):
        answer = worker.site.request("POST", f"{path}{offset}", content=data, headers=headers)
        assert (answer.status_code, answer.content) == (200, b"null")
    part = read_log(ref.uuid, 1, LogStream.STDOUT, offset=0, skip_gaps=False)
    assert part.data == b"hello world\xff"


class SlowStore:
    """The store of the process, whose puts wait until they may go on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_asked, self.may_go_on = threading.Event(), threading.Event()
        kind = type(get_storage())
        real_put = kind.put

        def put(store: Any, *args: Any) -> None:
            self.is_asked.set()
            assert self.may_go_on.wait(20)
            real_put(store, *args)

        monkeypatch.setattr(kind, "put", put)


def test_a_commit_waits_for_output_that_is_being_stored(
    site: Site, owner: User, worker: WorkerSide, monkeypatch: pytest.MonkeyPatch
):
    """Also when the worker gave the request up: the store may have it, and will."""
    ref = new_task(owner)
    attempt_id = worker.fetch()["id"]
    store = SlowStore(monkeypatch)
    path = f"/workers/tasks/{ref.uuid}/logs?stream=stdout&offset=0"
    headers = {**worker.headers, "Content-Type": "text/plain"}

    def hang_up() -> None:
        with pytest.raises(TimeoutError):
            site.run(site.abandon("POST", path, after_s=0.5, content=b"last", headers=headers))

    with ThreadPoolExecutor() as threads:
        hung_up = threads.submit(hang_up)
        assert store.is_asked.wait(20)
        hung_up.result(20)
        commit = threads.submit(worker.commit, attempt_id)
        with pytest.raises(TimeoutError):
            commit.result(0.5)
        assert ActiveTask.objects.filter(uuid=ref.uuid).exists()
        store.may_go_on.set()
        assert commit.result(20).status_code == 200
    assert not ActiveTask.objects.filter(uuid=ref.uuid).exists()
    assert read_log(ref.uuid, 1, LogStream.STDOUT, offset=0, skip_gaps=True).data == b"last"


@pytest.mark.parametrize(
    "query", ["stream=stdout", "offset=0", "stream=tty&offset=0", "stream=stdout&offset=-1"]
)
def test_output_without_a_place_is_refused(owner: User, worker: WorkerSide, query: str):
    ref = new_task(owner)
    worker.fetch()
    answer = worker.call("POST", f"/workers/tasks/{ref.uuid}/logs?{query}")
    assert answer.status_code == 400


def test_output_of_a_task_held_by_another_is_refused(site: Site, owner: User, worker: WorkerSide):
    ref = new_task(owner)
    worker.fetch()
    other = site.worker(new_worker(owner).token)
    path = f"/workers/tasks/{ref.uuid}/logs?stream=stdout&offset=0"
    assert other.call("POST", path).status_code == 404
    ActiveTask.objects.update(runner_id=None, state=1)
    assert worker.call("POST", path).status_code == 404


def test_a_huge_piece_of_output_is_refused(owner: User, worker: WorkerSide):
    ref = new_task(owner)
    worker.fetch()
    path = f"/workers/tasks/{ref.uuid}/logs?stream=stdout&offset=0"
    headers = {**worker.headers, "Content-Type": "text/plain"}
    answer = worker.site.request("POST", path, content=bytes(256 * 1024 + 1), headers=headers)
    assert answer.status_code == 413
