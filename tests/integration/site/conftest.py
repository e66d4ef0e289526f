"""Addresses of the running stores, and one that accepts connections and never answers."""

import socket
import threading
from collections.abc import AsyncIterator, Iterator

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings
from django.db import connections

from mitosis_site.health import object_store
from mitosis_site.readiness import Dependencies
from tests.harness import TestServices


@pytest.fixture
def needs(services: TestServices) -> Dependencies:
    """The real PostgreSQL, Valkey and S3 of the test run."""
    return Dependencies(
        database_url=settings.DATABASE_URL, redis_url=settings.REDIS_URL, store=object_store()
    )


@pytest.fixture
async def async_db(transactional_db: None) -> AsyncIterator[None]:
    """The database for asynchronous tests, whose ORM calls run in a thread of their own."""
    yield
    # Nobody else would close that thread's connection, and it would block the database's removal.
    await sync_to_async(connections.close_all)()


@pytest.fixture
def mute_port() -> Iterator[int]:
    """A loopback port where somebody accepts, reads and never says a word."""
    accepted: list[socket.socket] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            while True:
                try:
                    accepted.append(server.accept()[0])
                except OSError:
                    return

        thread = threading.Thread(target=accept)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)
    thread.join(5)
    for connection in accepted:
        connection.close()
