"""The harness itself: tests run on the servers it started, not on stand-ins."""

import os

import pytest
import redis
from django.db import connection


@pytest.mark.django_db
def test_database_is_the_embedded_postgresql():
    with connection.cursor() as cursor:
        cursor.execute("SHOW server_version_num")
        assert int(cursor.fetchone()[0]) >= 160000


def test_valkey_answers(clean_redis: redis.Redis):
    assert clean_redis.ping()
    assert "unix" in os.environ["REDIS_URL"] or "redis" in os.environ["REDIS_URL"]
