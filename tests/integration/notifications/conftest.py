"""One user with a group of her own, and a receiver the operator trusts."""

from collections.abc import Iterator
from typing import Any

import pytest

from accounts.models import User
from tests.integration.notifications.receiver import Receiver
from tests.integration.suites.campaign import make_user


@pytest.fixture
def ada() -> User:
    return make_user("ada")


@pytest.fixture
def receiver(settings: Any) -> Iterator[Receiver]:
    settings.MITOSIS_WEBHOOK_HOSTS = ("127.0.0.1",)
    one = Receiver()
    yield one
    one.stop()
