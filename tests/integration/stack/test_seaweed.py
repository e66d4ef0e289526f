"""SeaweedFS with the options of the embedded stack: what a later start costs, and what it keeps."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.integration.nodeagent.own_s3 import OwnS3

SETTLE_S = 2.0
WINDOW_S = 3.0
# Idle it is woken 150 times a second. What once kept it busy was a timer of a millisecond.
WAKEUPS_PER_S = 800


@pytest.fixture
def own(tmp_path: Path) -> Iterator[OwnS3]:
    store = OwnS3(tmp_path)
    yield store
    store.stop()


@pytest.mark.parametrize("gently", [True, False])
def test_a_later_start_on_old_data_idles_as_quietly_as_the_first(own: OwnS3, gently: bool):
    own.start()
    _put_in_new_bucket(own, "old-data")
    own.stop(gently=gently)
    own.start()
    time.sleep(SETTLE_S)
    before = _wakeups(own.pid)
    time.sleep(WINDOW_S)
    assert (_wakeups(own.pid) - before) / WINDOW_S < WAKEUPS_PER_S


def test_volumes_made_right_after_a_start_leave_the_old_ones_alone(own: OwnS3):
    """Nothing but the volumes says which of their numbers are taken, see `seaweed.py`."""
    kept: dict[str, bytes] = {}
    for life in range(4):
        own.start()
        buckets = [f"life-{life}-{n}" for n in range(2)]  # each has volumes of its own
        with ThreadPoolExecutor(len(buckets)) as threads:
            made = threads.map(lambda bucket: _put_in_new_bucket(own, bucket), buckets)
            kept.update(zip(buckets, made, strict=True))
        assert {bucket: _get(own, bucket) for bucket in kept} == kept
        own.stop(gently=life % 2 == 0)


def _put_in_new_bucket(own: OwnS3, bucket: str) -> bytes:
    body = os.urandom(100_000)
    client = _client(own)
    client.create_bucket(Bucket=bucket)
    client.put_object(Bucket=bucket, Key="thing", Body=body)
    return body


def _get(own: OwnS3, bucket: str) -> bytes:
    body: bytes = _client(own).get_object(Bucket=bucket, Key="thing")["Body"].read()
    return body


def _client(own: OwnS3) -> Any:
    return boto3.client(
        "s3",
        endpoint_url=own.environment["S3_ENDPOINT_URL"],
        aws_access_key_id=own.environment["S3_ACCESS_KEY_ID"],
        aws_secret_access_key=own.environment["S3_SECRET_ACCESS_KEY"],
        region_name="us-east-1",
        config=Config(s3={"addressing_style": "path"}),
    )


def _wakeups(pid: int) -> int:
    """How often its threads were woken so far; unlike CPU time it does not grow with the load."""
    lines = [
        line
        for status in Path(f"/proc/{pid}/task").glob("*/status")
        for line in status.read_text().splitlines()
    ]
    return sum(int(line.split()[1]) for line in lines if line.startswith("voluntary_ctxt_switches"))
