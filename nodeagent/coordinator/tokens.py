"""The agent's credentials over its life: registered once, kept on disk, rotated before they end.

Made by agent; nodeagent.coordinator.link asks for `current` at every connect and for `renew` when
the coordinator refuses it. Durations are counted by the monotonic clock, so that a wrong wall clock
costs at most one rotation too many.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

import httpx2
import msgspec
import structlog

from nodeagent.coordinator import rest
from nodeagent.coordinator.rest import Registration, RegistrationExpired
from nodeagent.errors import AuthRejected, CoordinatorUnavailable
from nodeagent.identity import Identity, Tokens, load_identity, store_identity
from nodeagent.worker.retry import Backoff, persist
from nodeagent.worker.threads import run_blocking

log = structlog.stdlib.get_logger(__name__)

# Of the lifetime: enough is left then for a coordinator that is away for a while.
ROTATE_AFTER: Final = 0.6
# A coordinator that hands out absurdly short tokens is not to be asked without end.
_MIN_PAUSE_S: Final = 1.0
_BACKOFF: Final = Backoff(base_s=1.0, cap_s=60.0, floor_s=0.1)

UserToken = Callable[[], Awaitable[str]]


class TokenKeeper:
    """One identity. `establish` comes first."""

    def __init__(
        self, path: Path, client: httpx2.AsyncClient, coordinator: str, user_token: UserToken
    ) -> None:
        self._path = path
        self._client = client
        self._coordinator = coordinator
        self._user_token = user_token
        self._identity: Identity | None = None
        self._rotate_at = 0.0
        self._renewing = asyncio.Lock()

    @property
    def identity(self) -> Identity:
        if self._identity is None:
            raise AssertionError("establish was not called")
        return self._identity

    def current(self) -> str:
        """The newest access token."""
        return self.identity.tokens.token

    async def establish(self, registration: Registration) -> Identity:
        """The stored identity, or a new registration; waits for an absent coordinator.

        Raises AuthRejected, also for a stored identity that is refused: whoever revoked it did not
        mean it to come back by itself.
        """
        stored = await run_blocking(load_identity, self._path)
        if stored is not None and stored.coordinator == self._coordinator:
            self._adopt(stored)
            try:
                await self._refresh_if_old()
            except RegistrationExpired:
                log.warning("identity.expired", manager=str(stored.manager_uuid))
            else:
                return self.identity
        elif stored is not None:
            log.warning("identity.of_another_coordinator", coordinator=stored.coordinator)
        return await self._register(registration)

    async def renew(self, refused: str) -> str:
        """A token other than `refused`. Raises AuthRejected, CoordinatorUnavailable."""
        async with self._renewing:
            if self.current() == refused:
                await self._refresh()
            return self.current()

    async def keep_fresh(self) -> None:
        """Rotate before each expiry, until cancelled. Raises AuthRejected."""
        while True:
            await asyncio.sleep(max(_MIN_PAUSE_S, self._rotate_at - time.monotonic()))
            renew = partial(self.renew, self.current())
            await persist(renew, what="rotate", backoff=_BACKOFF)

    async def _refresh_if_old(self) -> None:
        tokens = self.identity.tokens
        age_s = (datetime.now(UTC) - tokens.issued_at).total_seconds()
        # A negative age means that the clock was set back: then nothing is known.
        if 0 <= age_s < tokens.lifetime_s * ROTATE_AFTER:
            self._rotate_at = time.monotonic() + tokens.lifetime_s * ROTATE_AFTER - age_s
            return
        try:
            await self._refresh()
        except CoordinatorUnavailable as error:
            # It may still be good; if not, the socket's refusal asks for another one.
            log.info("identity.not_refreshed", error=str(error))

    async def _refresh(self) -> None:
        identity = self.identity
        tokens = await rest.refresh(self._client, identity.manager_uuid, identity.tokens)
        await self._store(msgspec.structs.replace(identity, tokens=tokens))
        log.info("identity.token_rotated", lifetime_s=round(tokens.lifetime_s))

    async def _register(self, registration: Registration) -> Identity:
        async def attempt() -> rest.Registered:
            return await rest.register(self._client, await self._user_token(), registration)

        made = await persist(attempt, what="register", backoff=_BACKOFF)
        identity = Identity(
            manager_uuid=made.manager_uuid, coordinator=self._coordinator, tokens=made.tokens
        )
        await self._store(identity)
        log.info(
            "identity.registered",
            manager=str(made.manager_uuid),
            groups_that_must_accept=made.pending_groups,
        )
        return identity

    async def _store(self, identity: Identity) -> None:
        # In use only once it is on disk: a token that a restart cannot find would be lost.
        await run_blocking(store_identity, self._path, identity)
        self._adopt(identity)

    def _adopt(self, identity: Identity) -> None:
        self._identity = identity
        self._rotate_at = time.monotonic() + _rotation_s(identity.tokens)


def read_user_token(path: Path) -> str:
    """The token in a file: alone on its line, or a `user:token` line. Raises AuthRejected."""
    try:
        lines = path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a text file"
        raise AuthRejected(f"{path}: {reason}") from error
    if not lines:
        raise AuthRejected(f"{path}: no token in it")
    return lines[0].rpartition(":")[2]


def _rotation_s(tokens: Tokens) -> float:
    return max(_MIN_PAUSE_S, tokens.lifetime_s * ROTATE_AFTER)
