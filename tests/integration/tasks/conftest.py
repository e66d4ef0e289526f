"""Four users: ada owns things, bob writes in her lab, ron reads there, eve belongs nowhere."""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from accounts.models import Group
from tests.e2e.cluster import Cluster
from tests.harness import TestServices
from tests.integration.tasks.api_world import (
    READ,
    WRITE,
    Caller,
    TeamWorker,
    caller_of,
    new_group,
    new_user,
)


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
def root(db: None) -> Caller:
    return caller_of(new_user("root", admin=True))


@pytest.fixture
def lab_group(ada: Caller, bob: Caller, ron: Caller) -> Group:
    """The group `lab`: ada is Admin, bob has Write, ron has Read."""
    assert ada.user is not None
    return new_group("lab", ada.user, bob=WRITE, ron=READ)


@pytest.fixture
def worker(ada: Caller) -> TeamWorker:
    """An independent worker that serves ada's own group."""
    assert ada.user is not None
    return TeamWorker(ada.user)


class LabPeople(NamedTuple):
    """Everybody with an opinion about `lab`, from Admin to nobody."""

    ada: Caller
    bob: Caller
    ron: Caller
    eve: Caller


@pytest.fixture
def people(ada: Caller, bob: Caller, ron: Caller, eve: Caller, lab_group: Group) -> LabPeople:
    return LabPeople(ada, bob, ron, eve)


@pytest.fixture(scope="session")
def live(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A coordinator of real processes, for what only sockets can show."""
    with Cluster(tmp_path_factory.mktemp("live")) as running:
        yield running
