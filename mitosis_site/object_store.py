"""The coordinator's S3 client as the composition root needs it: make the buckets, probe them.

Called by the bootstrap command and the readiness check; domain code has its own storage seam.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

if TYPE_CHECKING:
    from types_boto3_s3 import S3Client

# Deadlines of one call; bootstrap and probes are started by something that waits for them.
CONNECT_TIMEOUT_S: Final = 3
READ_TIMEOUT_S: Final = 10

# An owner's own bucket, under the names that S3 services use for it.
_ALREADY_THERE: Final = frozenset({"BucketAlreadyOwnedByYou", "BucketAlreadyExists"})


class ObjectStoreError(Exception):
    """The S3 service is unreachable or refuses us; the text carries no secret."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """Where the objects live. Built from settings by the caller."""

    endpoint_url: str
    region: str
    access_key_id: str = field(repr=False)
    secret_access_key: str = field(repr=False)
    buckets: tuple[str, ...]


def ensure_buckets(store: ObjectStore) -> list[str]:
    """Make the buckets that are not there; returns the new ones. Safe to repeat."""
    client = _client(store)
    try:
        return [bucket for bucket in store.buckets if _create(client, bucket)]
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "unknown")
        raise ObjectStoreError(f"the S3 service refused: {code}") from error
    except BotoCoreError as error:
        # Only the kind of failure: some messages quote the request with its signature.
        reason = type(error).__name__
        raise ObjectStoreError(f"no S3 service at {store.endpoint_url}: {reason}") from error


def probe_urls(store: ObjectStore, *, expires_s: int) -> dict[str, str]:
    """A signed HEAD request for each bucket. Pure computation: nothing is sent."""
    client = _client(store)
    return {
        bucket: client.generate_presigned_url(
            "head_bucket", Params={"Bucket": bucket}, ExpiresIn=expires_s, HttpMethod="HEAD"
        )
        for bucket in store.buckets
    }


@cache
def _client(store: ObjectStore) -> "S3Client":
    # Building one takes about 100 ms (service descriptions), and clients are thread-safe.
    return boto3.client(
        "s3",
        endpoint_url=store.endpoint_url,
        region_name=store.region,
        aws_access_key_id=store.access_key_id,
        aws_secret_access_key=store.secret_access_key,
        config=Config(
            signature_version="s3v4",
            connect_timeout=CONNECT_TIMEOUT_S,
            read_timeout=READ_TIMEOUT_S,
            retries={"total_max_attempts": 2, "mode": "standard"},
            # One address for all buckets; virtual hosts need DNS that embedded services lack.
            s3={"addressing_style": "path"},
            # An HTTP proxy of the environment has no business between us and our store.
            proxies={},
        ),
    )


def _create(client: "S3Client", bucket: str) -> bool:
    try:
        client.head_bucket(Bucket=bucket)
    except ClientError as error:
        if error.response.get("Error", {}).get("Code") not in {"404", "NoSuchBucket"}:
            raise
    else:
        return False
    try:
        client.create_bucket(Bucket=bucket)
    except ClientError as error:
        # Another process was faster between the two calls.
        if error.response.get("Error", {}).get("Code") not in _ALREADY_THERE:
            raise
        return False
    return True
