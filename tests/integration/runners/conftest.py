"""Users, groups and runners made through the services; the async pool for async tests."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from psycopg.conninfo import make_conninfo

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.services.users import create_user
from core.pg import close_pool, open_pool
from mitosis_protocol.enums import RunnerKind
from runners.models import Runner
from runners.services.registration import create_runner


@pytest.fixture
def make_user() -> Callable[[str], User]:
    def make(username: str) -> User:
        return create_user(actor=SYSTEM, username=username, md5_password=bytes(16), is_admin=False)

    return make


@pytest.fixture
def make_runner() -> Callable[..., Runner]:
    def make(owner: User, kind: RunnerKind = RunnerKind.INDEPENDENT) -> Runner:
        return create_runner(
            actor=SYSTEM,
            owner=owner,
            kind=kind,
            tags=["gpu", "gpu", "big"],
            labels=["rack-1"],
            lease=timedelta(seconds=120),
        )

    return make


@pytest.fixture
def on_pool(transactional_db: None) -> Callable[[Callable[[], Awaitable[Any]]], Any]:
    """Runs asynchronous code with the process's pool open, from a test that uses the ORM too."""

    async def with_pool(call: Callable[[], Awaitable[Any]]) -> Any:
        await open_pool(_dsn())
        try:
            return await call()
        finally:
            await close_pool()

    return lambda call: asyncio.run(with_pool(call))


def _dsn() -> str:
    given = connection.settings_dict
    return make_conninfo(
        host=given["HOST"],
        port=given["PORT"],
        dbname=given["NAME"],
        user=given["USER"],
        password=given["PASSWORD"],
    )
