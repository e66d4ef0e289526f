"""Who and from where, as the audit log keeps it. Services take an Actor, never a request."""

import ipaddress
from dataclasses import dataclass

from django.http import HttpRequest
from structlog.contextvars import get_contextvars

from accounts.identity import Identity
from accounts.models import User


@dataclass(frozen=True, slots=True)
class Actor:
    """`kind` is a token kind, `system` or `anonymous`; `id` a user name or a runner's uuid."""

    kind: str
    id: str = ""
    ip: str | None = None
    request_id: str = ""


SYSTEM = Actor(kind="system")


def user_actor(user: User, request: HttpRequest) -> Actor:
    return _from_request("user", user.username, request)


def identity_actor(identity: Identity, request: HttpRequest) -> Actor:
    return _from_request(identity.kind.value, identity.subject, request)


def anonymous_actor(request: HttpRequest) -> Actor:
    return _from_request("anonymous", "", request)


def _from_request(kind: str, subject: str, request: HttpRequest) -> Actor:
    return Actor(
        kind=kind,
        id=subject,
        ip=_address(request.META.get("REMOTE_ADDR", "")),
        request_id=str(get_contextvars().get("request_id", "")),
    )


def _address(text: str) -> str | None:
    """What the `inet` column can hold; behind a Unix socket or a proxy it may be anything."""
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    return str(address)
