"""Four users: ada owns things, bob writes in her lab, ron reads there, eve belongs nowhere."""

import pytest

from accounts.models import Group
from mitosis_protocol.enums import Role
from tests.integration.workers.people import Caller, caller_of, new_group, new_user


@pytest.fixture
def ada(db: None) -> Caller:
    return caller_of(new_user("ada"))


@pytest.fixture
def bob(db: None) -> Caller:
    return caller_of(new_user("bob"))


@pytest.fixture
def ron(db: None) -> Caller:
    return caller_of(new_user("ron"))


@pytest.fixture
def eve(db: None) -> Caller:
    return caller_of(new_user("eve"))


@pytest.fixture
def lab(ada: Caller, bob: Caller, ron: Caller) -> Group:
    """The group `lab`: ada is Admin, bob has Write, ron has Read."""
    assert ada.user is not None
    return new_group("lab", ada.user, bob=Role.WRITE, ron=Role.READ)
