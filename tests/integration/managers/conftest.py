"""Users with tokens, and the record of sweeps empty before each test."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.test import Client

from accounts.services.sessions import issue_user_token
from tests.integration.accounts.api_client import Api
from tests.integration.suites.campaign import make_user


@pytest.fixture(autouse=True)
def _no_old_attempts(clean_redis: redis.Redis) -> None:
    """Throttles start at zero."""


@pytest.fixture
def as_user(db: None) -> Callable[..., Api]:
    """A client logged in as a new user of that name."""

    def make(username: str, **options: Any) -> Api:
        return Api(Client(), issue_user_token(make_user(username, **options)))

    return make
