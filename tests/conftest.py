"""Fixtures for the whole suite: the running stores and Django's test database on them."""

import os
from pathlib import Path

import boto3
import hypothesis
import pytest
import redis
from botocore.exceptions import ClientError

from tests import emptying
from tests.harness import SERVICES, TestServices

TESTS = Path(__file__).parent

# A busy two-core machine makes single examples slow without anything being wrong.
hypothesis.settings.register_profile(
    "mitosis", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("mitosis")

emptying.install()


# Few tests that take minutes first; with thousands of small ones behind them no process idles at
# the end of a run.
_LONGEST_FIRST = ("chaos", "mutants", "e2e", "property")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files of tests that must be alone come between the long ones and the short ones: everybody
    else waits until they had their turn, and they wait for whatever runs."""
    lonely = {item.path for item in items if item.get_closest_marker("alone")}
    items.sort(key=lambda item: _place(item.path, is_lonely=item.path in lonely))


def _place(path: Path, *, is_lonely: bool) -> int:
    folder = path.relative_to(TESTS).parts[0] if path.is_relative_to(TESTS) else ""
    if is_lonely:
        return len(_LONGEST_FIRST)
    if folder in _LONGEST_FIRST:
        return _LONGEST_FIRST.index(folder)
    return len(_LONGEST_FIRST) + (1 if folder == "integration" else 2)


@pytest.fixture(scope="session")
def services() -> TestServices:
    """Real PostgreSQL, Valkey and S3, with the two buckets made."""
    SERVICES.start()
    _make_buckets()
    return SERVICES


@pytest.fixture(scope="session")
def django_db_modify_db_settings(services: TestServices) -> None:
    """Starts the stores before pytest-django creates its database on them."""


@pytest.fixture
def clean_redis(services: TestServices) -> redis.Redis:
    """Valkey without anything an earlier test left in it."""
    client = redis.Redis.from_url(os.environ["REDIS_URL"])
    client.flushall()
    return client


def _make_buckets() -> None:
    client = boto3.client(
        "s3",
        endpoint_url=os.environ["S3_ENDPOINT_URL"],
        aws_access_key_id=os.environ["S3_ACCESS_KEY_ID"],
        aws_secret_access_key=os.environ["S3_SECRET_ACCESS_KEY"],
        region_name=os.environ.get("S3_REGION", "us-east-1"),
    )
    for bucket in ("mitosis-artifacts", "mitosis-attachments"):
        try:
            client.create_bucket(Bucket=bucket)
        except ClientError as error:
            if error.response["Error"]["Code"] not in {
                "BucketAlreadyOwnedByYou",
                "BucketAlreadyExists",
            }:
                raise
