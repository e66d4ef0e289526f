"""Users made through the services, and a client that speaks as one of them."""

from collections.abc import Callable
from typing import Any

import pytest
import redis
from django.test import Client

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.services.sessions import issue_user_token
from accounts.services.users import create_user
from tests.integration.accounts.api_client import PASSWORD, Api, digest


@pytest.fixture(autouse=True)
def _no_old_attempts(clean_redis: redis.Redis) -> None:
    """The login throttle starts at zero."""


@pytest.fixture
def make_user(db: None) -> Callable[..., User]:
    def make(username: str, *, admin: bool = False, password: str = PASSWORD) -> User:
        return create_user(
            actor=SYSTEM,
            username=username,
            md5_password=bytes(digest(password)),
            is_admin=admin,
        )

    return make


@pytest.fixture
def anonymous() -> Api:
    return Api(Client())


@pytest.fixture
def as_user(make_user: Callable[..., User]) -> Callable[..., Api]:
    """A client logged in as a new user of that name."""

    def make(username: str, **options: Any) -> Api:
        return Api(Client(), issue_user_token(make_user(username, **options)))

    return make


@pytest.fixture
def ada(as_user: Callable[..., Api]) -> Api:
    return as_user("ada")


@pytest.fixture
def admin_api(as_user: Callable[..., Api]) -> Api:
    return as_user("root", admin=True)
