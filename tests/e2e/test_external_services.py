"""DATABASE_URL, REDIS_URL and S3_ENDPOINT_URL replace the embedded parts one by one."""

import os
import urllib.parse
import uuid
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests.e2e.stack_client import Stack
from tests.harness import S3_VARIABLES, TestServices

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]


@pytest.fixture
def database_url(services: TestServices) -> Iterator[str]:
    """An empty database on the test server, as an operator would hand it over."""
    name = f"external_{uuid.uuid4().hex[:8]}"
    server = os.environ["DATABASE_URL"]
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    yield urllib.parse.urlsplit(server)._replace(path=f"/{name}").geturl()
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.mark.parametrize("replaced", ["postgres", "valkey", "s3"])
def test_one_embedded_part_can_be_replaced(data_dir: Path, database_url: str, replaced: str):
    environment = {
        "postgres": {"DATABASE_URL": database_url},
        "valkey": {"REDIS_URL": os.environ["REDIS_URL"]},
        "s3": {name: os.environ[name] for name in S3_VARIABLES},
    }[replaced]
    stack = Stack(data_dir, environment=environment)
    stack.up()
    try:
        assert replaced not in stack.state["children"]
        assert stack.is_ready()
        assert stack.has_group(stack.admin["username"])
    finally:
        stack.down()


def test_an_unreachable_database_is_named_without_its_password(data_dir: Path):
    url = "postgresql://user:very-secret@127.0.0.1:9/nothing"
    stack = Stack(data_dir, environment={"DATABASE_URL": url})
    done = stack.run("up", "--detach")
    assert done.returncode == 1
    assert "bootstrap failed" in done.stderr
    assert "very-secret" not in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert stack.run("status").returncode == 3
