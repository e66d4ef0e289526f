"""A manager with a token, and the parts of a serving process around the test's event loop."""

from collections.abc import AsyncIterator
from uuid import uuid4

import pytest
import redis
from channels.layers import channel_layers

from core.pg import close_pool, open_pool
from managers.services.registration import RegisteredManager
from tasks.dispatcher import close_dispatcher
from tasks.services.manager_beats import close_manager_beats
from tasks.services.manager_claims import close_manager_claims
from tests.integration.managers.fleet import registered
from tests.integration.suites.campaign import make_user
from tests.integration.workers.inprocess import served_database
from websocket.presence import serving
from websocket.worker_presence import serving as serving_workers


@pytest.fixture
def manager(transactional_db: None) -> RegisteredManager:
    return registered(make_user(f"ada{uuid4().hex[:8]}"))


@pytest.fixture
async def _process(transactional_db: None, clean_redis: redis.Redis) -> AsyncIterator[None]:
    channel_layers.backends.clear()
    await open_pool(served_database())
    try:
        async with serving(), serving_workers():
            yield
    finally:
        await close_manager_claims()
        await close_manager_beats()
        await close_dispatcher()
        await close_pool()
        channel_layers.backends.clear()
