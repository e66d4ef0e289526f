"""Files of a group over HTTP: keys, quota, links, deletion, and the two spellings of one type."""

import hashlib
import threading
from contextlib import AbstractContextManager
from datetime import timedelta
from urllib.parse import quote

import pytest
from django.db import connections

from accounts.models import Group
from accounts.selectors import get_group
from core import clock
from tasks.models import Attachment
from tasks.storage import Bucket, get_storage
from tests.harness import TestServices
from tests.integration.tasks.api_world import Caller, ok, refused
from tests.integration.tasks.conftest import LabPeople
from tests.integration.tasks.object_store import get, put

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("services")]


def used(group: str = "ada") -> int:
    return int(get_group(group).storage_used)


def ask(
    caller: Caller, key: str, size: int, group: str = "ada", **more: object
) -> dict[str, object]:
    body = {"key": key, "content_length": size, **more}
    answer: dict[str, object] = ok(caller.call("POST", f"/groups/{group}/attachments", body))
    return answer


def upload(caller: Caller, key: str, data: bytes, group: str = "ada") -> None:
    assert put(str(ask(caller, key, len(data), group)["url"]), data) == 200


def later(**duration: float) -> AbstractContextManager[None]:
    moment = clock.now() + timedelta(**duration)
    return clock.using(lambda: moment)


@pytest.mark.parametrize(
    "key", ["data.csv", "a/b/c d.txt", "ä/ö+&=.bin", "query", "list", "download", "100%", "a?b#c"]
)
def test_any_sane_key_makes_the_round_trip(ada: Caller, key: str) -> None:
    upload(ada, key, b"hello")
    info = ok(ada.call("GET", f"/groups/ada/attachments/{quote(key)}"))
    assert info["size"] == 5
    found = ok(ada.call("GET", f"/groups/ada/download/attachments/{quote(key)}"))
    assert (get(found["url"]), found["size"]) == (b"hello", 5)
    with later(hours=2):
        assert ada.call("DELETE", f"/groups/ada/attachments/{quote(key)}").status_code == 200
    refused(ada.call("GET", f"/groups/ada/attachments/{quote(key)}"), 404)
    assert used() == 0


@pytest.mark.parametrize(
    "key", ["", "/a", "a/", "a//b", "./a", "../a", "a/./b", "a/../b", "..", "x" * 1020]
)
def test_keys_that_could_leave_the_group_are_refused(ada: Caller, key: str) -> None:
    body = {"key": key, "content_length": 1}
    refused(ada.call("POST", "/groups/ada/attachments", body), 400, "key")
    assert (used(), Attachment.objects.count()) == (0, 0)


def test_odd_keys_in_a_path_are_only_not_found(ada: Caller) -> None:
    for key in ("%00", "a%00b", "..%2f..%2fetc", "%2e%2e/x", "a//b", "%F0%9F%92%A9", "x" * 2000):
        assert ada.call("GET", f"/groups/ada/attachments/{key}").status_code == 404
        assert ada.call("DELETE", f"/groups/ada/attachments/{key}").status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"key": 5, "content_length": 1}, 422, "key"),
        ({"key": "k", "content_length": -1}, 422, "content_length"),
        ({"key": "k", "content_length": True}, 422, "content_length"),
        ({"key": "k"}, 422, "content_length"),
        ({"key": "k", "content_length": 1, "sha256": "xyz"}, 400, "sha256"),
    ],
)
def test_bad_uploads_are_refused_by_name(
    ada: Caller, body: dict[str, object], status: int, word: str
) -> None:
    refused(ada.call("POST", "/groups/ada/attachments", body), status, word)


def test_growth_is_charged_and_the_quota_holds(ada: Caller) -> None:
    Group.objects.filter(name="ada").update(storage_quota=100)
    assert ask(ada, "k", 80)["exist"] is False
    assert ask(ada, "k", 20)["exist"] is True
    assert used() == 80
    body = {"key": "k", "content_length": 101}
    refused(ada.call("POST", "/groups/ada/attachments", body), 403, "quota")
    assert (used(), Attachment.objects.get().size) == (80, 20)
    assert ask(ada, "k", 100)["exist"] is True
    assert used() == 100


def test_a_smaller_replacement_is_what_is_downloaded(ada: Caller) -> None:
    """Its size is the content's; the charge follows when the larger URL cannot be used again."""
    upload(ada, "k", b"0123456789")
    upload(ada, "k", b"abc")
    found = ok(ada.call("GET", "/groups/ada/download/attachments/k"))
    assert (get(found["url"]), found["size"], used()) == (b"abc", 3, 10)
    upload(ada, "k", b"abcd")
    assert used() == 10
    with later(hours=2):
        upload(ada, "k", b"ab")
        assert used() == 2
    upload(ada, "gone", b"0123456789")
    upload(ada, "gone", b"1")
    with later(hours=2):
        assert ada.call("DELETE", "/groups/ada/attachments/gone").status_code == 200
    assert used() == 2


def test_a_checksum_is_kept_until_the_content_changes(ada: Caller) -> None:
    digest = hashlib.sha256(b"hello").hexdigest()
    ask(ada, "k", 5, sha256=digest.upper())
    assert ok(ada.call("GET", "/groups/ada/attachments/k"))["sha256"] == digest
    ask(ada, "k", 5)
    assert ok(ada.call("GET", "/groups/ada/attachments/k"))["sha256"] is None


@pytest.mark.parametrize(
    ("agent", "spelling"),
    [("python-httpx/0.28.1", "NotSet"), ("", "NoSet"), ("mito/0.6.8", "NoSet")],
)
def test_each_existing_client_gets_the_spelling_it_accepts(
    ada: Caller, agent: str, spelling: str
) -> None:
    ask(ada, "k", 1)
    headers = {"user-agent": agent}
    info = ok(ada.call("GET", "/groups/ada/attachments/k", **headers))
    assert info["content_type"] == spelling
    body = {"count": False}
    listed = ok(ada.call("POST", "/groups/ada/attachments/query", body, **headers))
    assert listed["attachments"][0]["content_type"] == spelling


def test_a_query_finds_parts_of_keys_literally_and_in_order(ada: Caller) -> None:
    for key in ("b_1", "bx1", "a%b", "c"):
        ask(ada, key, 1)

    def keys(**body: object) -> list[str]:
        answer = ok(ada.call("POST", "/groups/ada/attachments/query", {"count": False, **body}))
        assert answer["group_name"] == "ada"
        assert answer["count"] == len(answer["attachments"])
        return [item["key"] for item in answer["attachments"]]

    assert keys() == ["a%b", "b_1", "bx1", "c"]
    assert keys(key="b_1") == ["b_1"]
    assert keys(key="%") == ["a%b"]
    assert keys(key="_") == ["b_1"]
    assert keys(key="\\") == []
    assert keys(limit=2, offset=1) == ["b_1", "bx1"]
    assert keys(key="b", limit=1) == ["a%b"]
    counted = ok(ada.call("POST", "/groups/ada/attachments/query", {"count": True, "limit": 1}))
    assert (counted["count"], counted["attachments"]) == (4, [])
    refused(ada.call("POST", "/groups/ada/attachments/query", {}), 422, "count")


def test_links_by_filter_and_by_list(ada: Caller) -> None:
    for key in ("a1", "a2", "b1"):
        upload(ada, key, key.encode())
    answer = ok(ada.call("POST", "/groups/ada/download/attachments", {"key": "a", "limit": 1}))
    assert [(item["key"], get(item["url"])) for item in answer["downloads"]] == [("a1", b"a1")]
    body = {"keys": ["b1", "nope", "a2"]}
    answer = ok(ada.call("POST", "/groups/ada/download/attachments/list", body))
    assert {item["key"]: get(item["url"]) for item in answer["downloads"]} == {
        "a2": b"a2",
        "b1": b"b1",
    }
    assert answer["group_name"] == "ada"
    empty: dict[str, object] = {"keys": []}
    refused(ada.call("POST", "/groups/ada/download/attachments/list", empty), 400, "keys")
    refused(ada.call("POST", "/groups/ada/download/attachments/list", {"keys": [1]}), 422, "keys")


def test_young_files_stay_and_old_ones_go(ada: Caller) -> None:
    for key in ("a1", "a2", "b1"):
        upload(ada, key, b"hello")
    refused(ada.call("DELETE", "/groups/ada/attachments/a1"), 400, "last hour")
    by_list = {"keys": ["a1", "nope"]}
    answer = ok(ada.call("POST", "/groups/ada/delete/attachments/list", by_list))
    assert answer == {"deleted_count": 0, "failed_keys": ["a1", "nope"], "group_name": "ada"}
    with later(hours=2):
        answer = ok(ada.call("POST", "/groups/ada/delete/attachments/list", by_list))
        assert answer == {"deleted_count": 1, "failed_keys": ["nope"], "group_name": "ada"}
        answer = ok(ada.call("POST", "/groups/ada/delete/attachments", {"key": "a"}))
        assert answer == {"deleted_count": 1, "group_name": "ada"}
    assert list(Attachment.objects.values_list("key", flat=True)) == ["b1"]
    assert used() == 5
    assert get_storage().head(Bucket.ATTACHMENTS, "ada/a1") is None


def test_admins_delete_any_groups_file_at_once(ada: Caller, root: Caller) -> None:
    upload(ada, "a/b", b"hello")
    refused(ada.call("DELETE", "/admin/groups/ada/attachments/a/b"), 403)
    assert root.call("DELETE", "/admin/groups/ada/attachments/a/b").status_code == 200
    refused(root.call("DELETE", "/admin/groups/ada/attachments/a/b"), 404)
    refused(root.call("DELETE", "/admin/groups/nobody/attachments/a"), 404)
    assert used() == 0


CALLS: list[tuple[str, str, object, bool]] = [
    ("POST", "attachments", {"key": "k", "content_length": 1}, True),
    ("GET", "attachments/k", None, False),
    ("DELETE", "attachments/k", None, True),
    ("GET", "download/attachments/k", None, False),
    ("POST", "attachments/query", {"count": False}, False),
    ("POST", "download/attachments", {}, False),
    ("POST", "download/attachments/list", {"keys": ["k"]}, False),
    ("POST", "delete/attachments", {}, True),
    ("POST", "delete/attachments/list", {"keys": ["k"]}, True),
]


@pytest.mark.parametrize(("method", "path", "body", "needs_write"), CALLS)
def test_roles_of_the_group_decide(
    people: LabPeople, method: str, path: str, body: object, needs_write: bool
) -> None:
    ask(people.ada, "k", 1, "lab")
    foreign = refused(people.eve.call(method, f"/groups/lab/{path}", body), 404)
    absent = refused(people.eve.call(method, f"/groups/bal/{path}", body), 404)
    assert foreign["msg"].replace("lab", "bal") == absent["msg"]
    status = people.ron.call(method, f"/groups/lab/{path}", body).status_code
    assert status == (403 if needs_write else 200)
    with later(hours=2):
        assert people.bob.call(method, f"/groups/lab/{path}", body).status_code == 200


@pytest.mark.django_db(transaction=True)
def test_the_same_key_many_times_at_once_is_charged_once(
    services: TestServices, ada: Caller
) -> None:
    start = threading.Barrier(6)
    answers: list[bool] = []

    def ask_again(size: int) -> None:
        start.wait()
        answers.append(bool(ask(ada, "k", size)["exist"]))
        connections.close_all()

    threads = [threading.Thread(target=ask_again, args=(10 * n,)) for n in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [False] + [True] * 5
    row = Attachment.objects.get()
    assert used() == 60 == row.size + row.reserved
