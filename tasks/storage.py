"""S3 behind a small protocol: signed URLs for clients, and the few calls we make ourselves.

Called by tasks.services (artifacts, attachments, logs). Keys of objects are made here and nowhere
else. Signing is arithmetic, never I/O. Trouble with the store becomes StorageUnavailable.
"""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Protocol
from uuid import UUID

import boto3
import structlog
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.httpsession import URLLib3Session
from botocore.session import get_session
from django.conf import settings

from core import clock
from core.errors import InvalidInput, StorageUnavailable
from core.faults import fault
from mitosis_protocol.enums import ArtifactContentType
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.specs import check_attachment_key
from tasks.signing import Credentials, Signer

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

log = structlog.get_logger(__name__)

HOUR_S: Final = 3600
UPLOAD_URL_S: Final = HOUR_S
MIN_DOWNLOAD_URL_S: Final = HOUR_S
MAX_DOWNLOAD_URL_S: Final = 24 * HOUR_S
# A link lives long enough to fetch its object over a line as slow as this.
SLOW_LINE_BYTES_PER_S: Final = 256 * 1024

# Two tries of these stay below the 30 s after which PostgreSQL ends an idle transaction.
CONNECT_TIMEOUT_S: Final = 2
READ_TIMEOUT_S: Final = 5
MAX_CONNECTIONS: Final = 32
DELETE_BATCH: Final = 1000  # what S3 takes in one call
LIST_BATCH: Final = 1000

# A request leaves in two pieces, and without this the second one waits 40 ms for the kernel's word
# on the first; the client library says so itself, its session alone does not.
_SOCKET_OPTIONS: Final = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]

LOGS_PREFIX: Final = "logs/"
# The statement that issues uploads fills it in, too: it is the one who knows the task.
_ARTIFACT_KEY: Final = "{task_uuid}/{attempt}/{content_type}.tar.gz"

_NO_OBJECT: Final = frozenset({"404", "NoSuchKey", "NotFound"})


class Bucket(Enum):
    """What we keep, by the setting that names its bucket."""

    ARTIFACTS = "S3_ARTIFACTS_BUCKET"
    ATTACHMENTS = "S3_ATTACHMENTS_BUCKET"


@dataclass(frozen=True, slots=True)
class ObjectInfo:
    """One entry of a listing."""

    key: str
    size: int
    modified_at: datetime


class Storage(Protocol):
    """What the services need of an object store."""

    def upload_url(self, bucket: Bucket, key: str, *, size: int) -> str:
        """A URL that takes one PUT of exactly `size` bytes, for an hour."""

    def download_url(self, bucket: Bucket, key: str, *, valid_s: int) -> str:
        """A URL that answers GET with the object as a file."""

    def put(self, bucket: Bucket, key: str, data: bytes) -> None:
        """Write an object."""

    def get(self, bucket: Bucket, key: str) -> bytes | None:
        """The bytes of an object, None if there is none."""

    def head(self, bucket: Bucket, key: str) -> int | None:
        """The size of an object, None if there is none."""

    def list_objects(self, bucket: Bucket, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        """What lies below `prefix`, in order of keys, from behind `after`; at most LIST_BATCH."""

    def delete(self, bucket: Bucket, keys: Sequence[str]) -> None:
        """Remove objects; ones that are not there count as removed."""


def artifact_key(task_uuid: UUID, attempt: int, content_type: ArtifactContentType) -> str:
    """Per attempt, so that a late PUT of an old attempt cannot touch a newer one's object."""
    return _ARTIFACT_KEY.format(
        task_uuid=task_uuid, attempt=attempt, content_type=content_type.value
    )


def artifact_key_pattern(content_type: ArtifactContentType) -> str:
    """The same for a task that is not known yet: `{task_uuid}` and `{attempt}` are left open."""
    return _ARTIFACT_KEY.replace("{content_type}", content_type.value)


def log_prefix(task_uuid: UUID, attempt: int, stream: str) -> str:
    """Where the live output of one attempt lies, cut into chunks named by their offset."""
    return f"{LOGS_PREFIX}{task_uuid}/{attempt}/{stream}/"


def attachment_key(group_name: str, key: str) -> str:
    """Raises InvalidInput for keys that could leave their group or be ambiguous."""
    try:
        check_attachment_key(key, group=group_name)
    except InvalidValue as error:
        raise InvalidInput(f"key: {error}") from error
    return f"{group_name}/{key}"


def download_validity_s(size: int) -> int:
    """From one hour for small objects to a day for big ones."""
    return min(MAX_DOWNLOAD_URL_S, MIN_DOWNLOAD_URL_S + size // SLOW_LINE_BYTES_PER_S)


class S3Storage:
    """An S3 service and the names of our buckets there."""

    def __init__(self, endpoint_url: str, region: str, credentials: Credentials) -> None:
        self._signer = Signer(endpoint_url, region, credentials)
        self._client = _make_client(endpoint_url, region, credentials)
        # Under the client, for what is written often: its own way costs five times the CPU.
        self._http = URLLib3Session(
            verify=get_session().get_config_variable("ca_bundle") or True,
            proxies={},
            timeout=(CONNECT_TIMEOUT_S, READ_TIMEOUT_S),  # type: ignore[arg-type]  # stubs: one
            max_pool_connections=MAX_CONNECTIONS,
            socket_options=_SOCKET_OPTIONS,  # type: ignore[arg-type]  # stubs: list of text
        )

    def upload_url(self, bucket: Bucket, key: str, *, size: int) -> str:
        return self._signer.put_url(
            _name(bucket), key, size=size, now=clock.now(), valid_s=UPLOAD_URL_S
        )

    def download_url(self, bucket: Bucket, key: str, *, valid_s: int) -> str:
        return self._signer.get_url(_name(bucket), key, now=clock.now(), valid_s=valid_s)

    def put(self, bucket: Bucket, key: str, data: bytes) -> None:
        with _reported("put"):
            url = self.upload_url(bucket, key, size=len(data))
            for is_last in (False, True):
                try:
                    answer = self._http.send(AWSRequest("PUT", url, data=data).prepare())
                except BotoCoreError:
                    if is_last:
                        raise
                    continue
                if answer.status_code == HTTPStatus.OK:
                    return
                if is_last or answer.status_code < HTTPStatus.INTERNAL_SERVER_ERROR:
                    raise _refused("put", f"status {answer.status_code}")

    def get(self, bucket: Bucket, key: str) -> bytes | None:
        with _reported("get"):
            try:
                found = self._client.get_object(Bucket=_name(bucket), Key=key)
            except ClientError as error:
                if not _is_absent(error):
                    raise
                return None
            return found["Body"].read()

    def head(self, bucket: Bucket, key: str) -> int | None:
        with _reported("head"):
            try:
                found = self._client.head_object(Bucket=_name(bucket), Key=key)
            except ClientError as error:
                if not _is_absent(error):
                    raise
                return None
            return found["ContentLength"]

    def list_objects(self, bucket: Bucket, prefix: str, *, after: str = "") -> list[ObjectInfo]:
        with _reported("list"):
            found = self._client.list_objects_v2(
                Bucket=_name(bucket), Prefix=prefix, StartAfter=after, MaxKeys=LIST_BATCH
            )
        return [
            ObjectInfo(item["Key"], item["Size"], item["LastModified"])
            for item in found.get("Contents", ())
        ]

    def delete(self, bucket: Bucket, keys: Sequence[str]) -> None:
        # A bulk deletion is an XML document, which cannot carry every key that S3 allows.
        odd = [key for key in keys if not key.isprintable()]
        plain = [key for key in keys if key.isprintable()]
        for key in odd:
            with _reported("delete"):
                self._client.delete_object(Bucket=_name(bucket), Key=key)
        for start in range(0, len(plain), DELETE_BATCH):
            self._delete_batch(_name(bucket), plain[start : start + DELETE_BATCH])

    def _delete_batch(self, bucket: str, keys: Sequence[str]) -> None:
        with _reported("delete"):
            answer = self._client.delete_objects(
                Bucket=bucket, Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True}
            )
        if answer.get("Errors"):
            log.warning("storage.delete_incomplete", failed=len(answer["Errors"]))
            raise StorageUnavailable("The object store did not delete everything")


def get_storage() -> Storage:
    """The store of this installation. Presigned URLs carry the address in S3_ENDPOINT_URL."""
    return _storage(
        settings.S3_ENDPOINT_URL,
        settings.S3_REGION,
        Credentials(settings.S3_ACCESS_KEY_ID, settings.S3_SECRET_ACCESS_KEY),
    )


@cache
def _storage(endpoint_url: str, region: str, credentials: Credentials) -> Storage:
    # Building a client takes 0.1 s; it is safe to share between threads.
    return S3Storage(endpoint_url, region, credentials)


def _make_client(endpoint_url: str, region: str, credentials: Credentials) -> "S3Client":
    return boto3.client(
        "s3",
        endpoint_url=endpoint_url,
        region_name=region,
        aws_access_key_id=credentials.access_key_id,
        aws_secret_access_key=credentials.secret_access_key,
        config=Config(
            signature_version="s3v4",
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"total_max_attempts": 2, "mode": "standard"},
            # One address for all buckets; virtual hosts need DNS that embedded services lack.
            s3={"addressing_style": "path"},
            # An HTTP proxy of the environment has no business between us and our store.
            proxies={},
            max_pool_connections=MAX_CONNECTIONS,
        ),
    )


def _name(bucket: Bucket) -> str:
    return str(getattr(settings, bucket.value))


def _is_absent(error: ClientError) -> bool:
    return error.response.get("Error", {}).get("Code") in _NO_OBJECT


def _refused(call: str, code: str) -> StorageUnavailable:
    log.warning("storage.refused", call=call, code=code)
    return StorageUnavailable("The object store refused the request")


@contextmanager
def _reported(call: str) -> Iterator[None]:
    """Every failure of the store is one retryable error; what it said goes to the log."""
    fault(f"storage.{call}")
    try:
        yield
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        raise _refused(call, code) from error
    except BotoCoreError as error:
        # Only the kind: some messages quote the request with its signature.
        log.warning("storage.unreachable", call=call, reason=type(error).__name__)
        raise StorageUnavailable("The object store does not answer") from error
