"""The few HTTP calls an agent makes: a user's login, its registration, new tokens.

Everything else travels on the socket (nodeagent.coordinator.link). Called by
nodeagent.coordinator.tokens. Raises AuthRejected for a refusal, CoordinatorUnavailable for what
time may cure.
"""

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from uuid import UUID

import httpx2
import msgspec

from mitosis_protocol.errors import ErrorCode, InvalidValue
from mitosis_protocol.timestamps import parse_rfc3339
from nodeagent.errors import AuthRejected, CoordinatorUnavailable
from nodeagent.identity import Tokens
from nodeagent.worker.http_client import decode, problem, send

_JSON = {"Content-Type": "application/json"}


class RegistrationExpired(AuthRejected):
    """The registration has reached its end: only a user can make a new one."""


class Registration(msgspec.Struct, frozen=True, kw_only=True):
    """What a new manager says about itself."""

    tags: tuple[str, ...]
    labels: tuple[str, ...]
    groups: tuple[str, ...]


class Registered(msgspec.Struct, frozen=True, kw_only=True):
    """A new manager and the groups whose Admins still have to accept it."""

    manager_uuid: UUID
    tokens: Tokens
    pending_groups: list[str]


class _Pair(msgspec.Struct, frozen=True):
    token: str
    token_expires_at: str
    refresh_token: str | None = None


class _NewManager(_Pair, frozen=True, kw_only=True):
    manager_uuid: UUID
    pending_groups: list[str] = []


class _Token(msgspec.Struct, frozen=True):
    token: str


class _Code(msgspec.Struct, frozen=True):
    code: str = ""


async def log_in(client: httpx2.AsyncClient, user: str, password: str) -> str:
    """A user's token; other sessions of the user stay."""
    body = {
        "username": user,
        # The wire format of existing clients; the server hashes it again with Argon2.
        "md5_password": list(hashlib.md5(password.encode(), usedforsecurity=False).digest()),
        "retain": True,
    }
    response = await _post(client, "/login", body)
    if not response.is_success:
        raise AuthRejected(f"login of {user} refused: {problem(response)}")
    return decode(response, _Token).token


async def register(
    client: httpx2.AsyncClient, user_token: str, registration: Registration
) -> Registered:
    """Make this host known. Repeating it makes another manager, which nobody misses."""
    response = await _post(client, "/managers", msgspec.to_builtins(registration), token=user_token)
    if not response.is_success:
        raise AuthRejected(f"registration refused: {problem(response)}")
    made = decode(response, _NewManager)
    return Registered(
        manager_uuid=made.manager_uuid,
        tokens=_tokens(response, made, made.refresh_token or ""),
        pending_groups=made.pending_groups,
    )


async def refresh(client: httpx2.AsyncClient, manager_uuid: UUID, spent: Tokens) -> Tokens:
    """Exchange the refresh token for the next pair."""
    path = f"/managers/{manager_uuid}/refresh-token"
    response = await _post(client, path, {"refresh_token": spent.refresh_token})
    if not response.is_success:
        if _code_of(response) == ErrorCode.AUTH_EXPIRED_TOKEN:
            raise RegistrationExpired("the registration of this manager has expired")
        raise AuthRejected(f"the coordinator no longer accepts this manager: {problem(response)}")
    pair = decode(response, _Pair)
    return _tokens(response, pair, pair.refresh_token or spent.refresh_token)


async def _post(
    client: httpx2.AsyncClient, path: str, body: Mapping[str, object], *, token: str | None = None
) -> httpx2.Response:
    headers = _JSON if token is None else {**_JSON, "Authorization": f"Bearer {token}"}
    response = await send(client, "POST", path, content=msgspec.json.encode(body), headers=headers)
    if response.is_redirect:
        raise CoordinatorUnavailable(problem(response))
    return response


def _tokens(response: httpx2.Response, pair: _Pair, refresh_token: str) -> Tokens:
    now = datetime.now(UTC)
    try:
        expires_at = parse_rfc3339(pair.token_expires_at)
    except InvalidValue as error:
        raise CoordinatorUnavailable(f"unreadable answer: {error}") from error
    return Tokens(
        token=pair.token,
        refresh_token=refresh_token,
        lifetime_s=(expires_at - (_server_time(response) or now)).total_seconds(),
        issued_at=now,
    )


def _server_time(response: httpx2.Response) -> datetime | None:
    """Their clock at the time of the answer: ours may be an hour off."""
    text = response.headers.get("Date")
    try:
        return None if text is None else parsedate_to_datetime(text)
    except ValueError:
        return None


def _code_of(response: httpx2.Response) -> str:
    try:
        return msgspec.json.decode(response.content, type=_Code).code
    except msgspec.MsgspecError:
        return ""
