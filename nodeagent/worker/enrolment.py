"""How an independent worker becomes known: a user's credential, then a registration.

Called once by main. The credential file is tried first, then the password; transient trouble is
waited out, a refusal is final (AuthRejected).
"""

import hashlib
from uuid import UUID

import httpx2
import msgspec
import structlog
from typing_extensions import override

from mitosis_protocol.durations import format_duration
from nodeagent.config import WorkerConfig
from nodeagent.errors import AuthRejected, CoordinatorUnavailable
from nodeagent.worker.credentials import Credential, find_credential, store_credential
from nodeagent.worker.http_client import decode, make_client, problem, send
from nodeagent.worker.retry import persist

log = structlog.stdlib.get_logger(__name__)

_JSON = {"Content-Type": "application/json"}
# Another login of the same user may end our session between the two steps; not for ever.
_TRIES = 3


class Enrolment(msgspec.Struct, frozen=True):
    """A registered worker's identity."""

    worker_uuid: UUID
    token: str
    user: str = ""  # who registered it, where that is known

    @override
    def __repr__(self) -> str:
        return f"Enrolment(worker_uuid={self.worker_uuid})"


class _Token(msgspec.Struct, frozen=True):
    token: str


class _Registered(msgspec.Struct, frozen=True):
    worker_id: UUID
    token: str


async def enrol(config: WorkerConfig, kind: str | None = None) -> Enrolment:
    """Authenticate the user and register this worker; raises AuthRejected.

    `kind` is said only if it is not the usual one: existing coordinators do not know the word.
    """
    async with make_client(config.coordinator, tls=config.tls.open(config.coordinator)) as client:
        credential = await _kept_credential(client, config)
        for _ in range(_TRIES):
            credential = credential or await _log_in(client, config)
            registration = _register(client, config, credential.token, kind)
            enrolment = await persist(registration, what="register")
            if enrolment is not None:
                return msgspec.structs.replace(enrolment, user=credential.user)
            credential = None
    raise AuthRejected("the coordinator accepts the login but not the session it gives")


async def _kept_credential(client: httpx2.AsyncClient, config: WorkerConfig) -> Credential | None:
    credential = find_credential(config.credential_path, config.user)
    if credential is None:
        return None

    async def is_valid() -> bool:
        headers = {"Authorization": f"Bearer {credential.token}"}
        response = await send(client, "GET", "/auth", headers=headers)
        return response.is_success and response.text == credential.user

    if await persist(is_valid, what="auth"):
        return credential
    log.info("enrolment.credential_refused", user=credential.user)
    return None


async def _log_in(client: httpx2.AsyncClient, config: WorkerConfig) -> Credential:
    if config.user is None or config.password is None:
        raise AuthRejected(
            "no usable credential: give --user with --password-stdin or MITO_PASSWORD, "
            f"or a valid line in {config.credential_path}"
        )
    password = config.password.reveal().encode()
    body = msgspec.json.encode(
        {
            "username": config.user,
            # The wire format of existing clients; the server hashes it again with Argon2.
            "md5_password": list(hashlib.md5(password, usedforsecurity=False).digest()),
            "retain": config.retain,
        }
    )

    async def log_in() -> httpx2.Response:
        return await send(client, "POST", "/login", content=body, headers=_JSON)

    response = await persist(log_in, what="login")
    if not response.is_success:
        raise AuthRejected(f"login of {config.user} refused: {problem(response)}")
    credential = Credential(config.user, decode(response, _Token).token)
    store_credential(config.credential_path, credential)
    return credential


def _register(
    client: httpx2.AsyncClient, config: WorkerConfig, token: str, kind: str | None
) -> "_Registration":
    lifetime = None if config.lifetime_s is None else format_duration(int(config.lifetime_s))
    body = {
        "tags": config.tags,
        "labels": config.labels,
        "groups": config.groups,
        "lifetime": lifetime,
        **({} if kind is None else {"kind": kind}),
    }
    return _Registration(client, token, msgspec.json.encode(body))


class _Registration:
    """One registration request; an answer that got lost leaves a worker that soon expires."""

    def __init__(self, client: httpx2.AsyncClient, token: str, body: bytes) -> None:
        self._client = client
        self._headers = {**_JSON, "Authorization": f"Bearer {token}"}
        self._body = body

    async def __call__(self) -> Enrolment | None:
        """None when the session is not accepted. Raises AuthRejected, CoordinatorUnavailable."""
        response = await send(
            self._client, "POST", "/workers", content=self._body, headers=self._headers
        )
        if response.status_code == 401:
            return None
        if response.is_redirect:
            raise CoordinatorUnavailable(problem(response))
        if not response.is_success:
            raise AuthRejected(f"registration refused: {problem(response)}")
        registered = decode(response, _Registered)
        return Enrolment(registered.worker_id, registered.token)
