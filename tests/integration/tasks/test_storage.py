"""Signed URLs and our own calls against a real S3 service."""

import socket
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import boto3
import pytest
from botocore.config import Config
from django.conf import settings
from pytest_django import Settings

from core import clock, faults
from core.errors import InvalidInput, StorageUnavailable
from mitosis_protocol.enums import ArtifactContentType
from tasks.signing import Credentials, Signer
from tasks.storage import (
    Bucket,
    S3Storage,
    Storage,
    artifact_key,
    attachment_key,
    download_validity_s,
    get_storage,
)
from tests.harness import TestServices
from tests.integration.tasks.object_store import get, put, send

HOUR = 3600


@pytest.fixture
def storage(services: TestServices) -> Storage:
    return get_storage()


@pytest.fixture
def key() -> str:
    return f"{uuid4()}/1/result.tar.gz"


def test_what_was_put_can_be_fetched_as_a_file(storage: Storage, key: str) -> None:
    assert put(storage.upload_url(Bucket.ARTIFACTS, key, size=5), b"12345") == 200
    url = storage.download_url(Bucket.ARTIFACTS, key, valid_s=HOUR)
    status, body, headers = send("GET", url)
    assert (status, body) == (200, b"12345")
    assert headers["content-disposition"] == "attachment"
    assert "content-encoding" not in headers
    assert storage.head(Bucket.ARTIFACTS, key) == 5
    assert storage.get(Bucket.ARTIFACTS, key) == b"12345"


@pytest.mark.parametrize("body", [b"", b"1234", b"123456", b"x" * 100_000])
def test_a_body_of_another_length_is_refused(storage: Storage, key: str, body: bytes) -> None:
    assert put(storage.upload_url(Bucket.ARTIFACTS, key, size=5), body) == 403
    assert storage.head(Bucket.ARTIFACTS, key) is None


def test_a_body_without_a_length_is_refused(storage: Storage, key: str) -> None:
    url = storage.upload_url(Bucket.ARTIFACTS, key, size=5)
    assert send("PUT", url, chunks=[b"12345", b"6789"])[0] == 403
    assert storage.head(Bucket.ARTIFACTS, key) is None


def test_an_empty_object_can_be_uploaded(storage: Storage, key: str) -> None:
    assert put(storage.upload_url(Bucket.ARTIFACTS, key, size=0), b"") == 200
    assert storage.head(Bucket.ARTIFACTS, key) == 0


def test_a_url_is_good_for_its_key_and_method_only(storage: Storage, key: str) -> None:
    upload = storage.upload_url(Bucket.ARTIFACTS, key, size=5)
    put(upload, b"12345")
    download = storage.download_url(Bucket.ARTIFACTS, key, valid_s=HOUR)
    other = key.replace("/1/", "/2/")
    attempts = [
        ("GET", upload, None),
        ("DELETE", upload, None),
        ("PUT", download, b"54321"),
        ("DELETE", download, None),
        ("PUT", upload.replace(key, other), b"12345"),
        ("GET", download.replace(key, other), None),
        ("GET", download.replace(key, f"x/%2e%2e/{key}"), None),
        ("GET", download.replace("mitosis-artifacts", "mitosis-attachments"), None),
        ("GET", download.replace(f"/{key}", ""), None),  # the listing of the bucket
        ("GET", download.replace("X-Amz-Expires=3600", "X-Amz-Expires=360000"), None),
        ("PUT", upload.replace("content-length%3Bhost", "host"), b"12345"),
        ("GET", download.split("?")[0], None),
    ]
    for method, url, body in attempts:
        status = send(method, url, body)[0]
        assert status in {400, 403}, (method, url, status)
    assert get(download) == b"12345"


def test_urls_expire(storage: Storage, key: str) -> None:
    now = datetime.now(UTC)
    put(storage.upload_url(Bucket.ARTIFACTS, key, size=5), b"12345")
    with clock.using(lambda: now - timedelta(seconds=2 * HOUR)):
        upload = storage.upload_url(Bucket.ARTIFACTS, key, size=5)
        download = storage.download_url(Bucket.ARTIFACTS, key, valid_s=HOUR)
    assert put(upload, b"54321") == 403
    assert send("GET", download)[0] == 403
    assert storage.get(Bucket.ARTIFACTS, key) == b"12345"


def test_our_signature_is_the_one_boto3_makes(services: TestServices) -> None:
    moment = datetime(2026, 2, 3, 4, 5, 6, tzinfo=UTC)
    secret = Credentials("AKID", "s/e+cret")
    ours = Signer("https://s3.example:8333", "eu-west-1", secret)
    client = boto3.client(
        "s3",
        endpoint_url="https://s3.example:8333",
        region_name="eu-west-1",
        aws_access_key_id="AKID",
        aws_secret_access_key="s/e+cret",
        config=Config(
            signature_version="s3v4",
            s3={"addressing_style": "path"},
            request_checksum_calculation="when_required",
        ),
    )
    key = "gr-1/a b+c/ä%2F&=?#'\"(~)*!/x.tar.gz"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("botocore.auth.get_current_datetime", lambda **_: moment.replace(tzinfo=None))
        theirs = client.generate_presigned_url(
            "put_object",
            Params={"Bucket": "b", "Key": key, "ContentLength": 7},
            ExpiresIn=3600,
        )
        their_get = client.generate_presigned_url(
            "get_object",
            Params={"Bucket": "b", "Key": key, "ResponseContentDisposition": "attachment"},
            ExpiresIn=60,
        )
    assert _signature(ours.put_url("b", key, size=7, now=moment, valid_s=3600)) == _signature(
        theirs
    )
    assert _signature(ours.get_url("b", key, now=moment, valid_s=60)) == _signature(their_get)


def _signature(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    [signature] = [part for part in parts.query.split("&") if part.startswith("X-Amz-Signature=")]
    return parts.path, signature


def test_ten_thousand_links_take_less_than_two_seconds(storage: Storage) -> None:
    started = time.process_time()
    for n in range(10_000):
        storage.download_url(Bucket.ARTIFACTS, f"{n}/1/result.tar.gz", valid_s=HOUR)
    assert time.process_time() - started < 2


def test_deleting_is_repeatable_and_takes_any_key(storage: Storage) -> None:
    keys = [f"{uuid4()}/{n}" for n in range(3)]
    odd = f"{uuid4()}/\x01\x02 ä/<&>.txt"
    for key in (*keys, odd):
        storage.put(Bucket.ATTACHMENTS, key, b"x")
    storage.delete(Bucket.ATTACHMENTS, [*keys, odd, "never/there"])
    storage.delete(Bucket.ATTACHMENTS, [*keys, odd])
    assert [storage.head(Bucket.ATTACHMENTS, key) for key in (*keys, odd)] == [None] * 4
    storage.delete(Bucket.ATTACHMENTS, [])


def test_an_absent_object_is_none(storage: Storage) -> None:
    assert storage.get(Bucket.ARTIFACTS, "not/there") is None
    assert storage.head(Bucket.ARTIFACTS, "not/there") is None
    assert storage.list_objects(Bucket.ARTIFACTS, "not/there") == []


def test_a_store_that_is_away_is_one_retryable_error(
    settings: Settings, services: TestServices
) -> None:
    settings.S3_ENDPOINT_URL = "http://127.0.0.1:9"
    for call in (
        lambda: get_storage().get(Bucket.ARTIFACTS, "x"),
        lambda: get_storage().put(Bucket.ARTIFACTS, "x", b""),
        lambda: get_storage().head(Bucket.ARTIFACTS, "x"),
        lambda: get_storage().delete(Bucket.ARTIFACTS, ["x"]),
        lambda: get_storage().list_objects(Bucket.ARTIFACTS, "x"),
    ):
        with pytest.raises(StorageUnavailable):
            call()
    # Signing needs nobody.
    assert get_storage().upload_url(Bucket.ARTIFACTS, "x", size=1)


def test_a_store_that_refuses_us_is_the_same_error(
    settings: Settings, services: TestServices
) -> None:
    settings.S3_SECRET_ACCESS_KEY = "wrong"
    with pytest.raises(StorageUnavailable, match="refused"):
        get_storage().get(Bucket.ARTIFACTS, "x")


def test_faults_can_be_injected(storage: Storage) -> None:
    faults.configure("storage.put=exc:storage")
    try:
        with pytest.raises(StorageUnavailable):
            storage.put(Bucket.ARTIFACTS, "x", b"")
    finally:
        faults.configure("")


def test_keys_of_artifacts_name_task_attempt_and_type() -> None:
    uuid = UUID("8d8ac610-566d-4ef0-9c22-186b2a5ed793")
    key = artifact_key(uuid, 3, ArtifactContentType.EXEC_LOG)
    assert key == "8d8ac610-566d-4ef0-9c22-186b2a5ed793/3/exec-log.tar.gz"


@pytest.mark.parametrize(
    "key",
    [
        *("", "a\x00b", "/a", "a/", "a//b", ".", "..", "./a", "../a", "a/./b", "a/../b", "a/.."),
        "x" * 1020,
        "ä" * 510,
    ],
)
def test_keys_that_could_leave_their_group_are_refused(key: str) -> None:
    with pytest.raises(InvalidInput, match="key"):
        attachment_key("lab", key)


def test_keys_with_blanks_dots_and_slashes_are_fine() -> None:
    assert attachment_key("lab", "a b/..c/d.e") == "lab/a b/..c/d.e"


def test_validity_grows_with_size_from_an_hour_to_a_day() -> None:
    assert download_validity_s(0) == HOUR
    assert download_validity_s(2**30) == HOUR + 4096
    assert download_validity_s(2**50) == 24 * HOUR


def test_what_is_written_leaves_at_once_and_not_when_the_kernel_has_heard(
    storage: Storage, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[socket.socket] = []
    connect = socket.socket.connect

    def note(self: socket.socket, address: tuple[str, int]) -> None:
        opened.append(self)
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", note)
    fresh = S3Storage(
        settings.S3_ENDPOINT_URL,
        settings.S3_REGION,
        Credentials(settings.S3_ACCESS_KEY_ID, settings.S3_SECRET_ACCESS_KEY),
    )
    fresh.put(Bucket.ARTIFACTS, key, b"12345")
    assert [bool(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)) for one in opened] == [
        True
    ]
    assert storage.get(Bucket.ARTIFACTS, key) == b"12345"
