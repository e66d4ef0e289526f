"""Three users: ada owns things, bob is a colleague, eve belongs nowhere; and a served site."""

from collections.abc import Iterator

import pytest

from accounts.models import User
from tests.integration.workers.inprocess import Site, WorkerSide
from tests.integration.workers.people import Caller, caller_of, new_user, new_worker


@pytest.fixture
def ada(db: None) -> Caller:
    return caller_of(new_user("ada"))


@pytest.fixture
def bob(db: None) -> Caller:
    return caller_of(new_user("bob"))


@pytest.fixture
def eve(db: None) -> Caller:
    return caller_of(new_user("eve"))


@pytest.fixture
def root(db: None) -> Caller:
    return caller_of(new_user("root", admin=True))


@pytest.fixture
def site(transactional_db: None) -> Iterator[Site]:
    served = Site()
    yield served
    served.close()


@pytest.fixture
def owner(site: Site) -> User:
    """A user whose tasks the worker runs."""
    return new_user("ada")


@pytest.fixture
def worker(site: Site, owner: User) -> WorkerSide:
    """A registered worker that speaks the existing API."""
    return site.worker(new_worker(owner).token)
