"""The tokens of a manager: a short-lived access token, and a refresh token that works once.

Refresh tokens are 256 random bits behind the name of their family, both kept as SHA-256. Using one
hands out the next; the one before still works for some minutes, for an answer that got lost. Any
other token of the family was spent long ago, and whoever shows it shares it with somebody:
everything issued to the manager ends (correctness 5.2).
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction

from accounts.actors import Actor
from accounts.services.audit import record
from core import clock
from core.errors import AuthenticationFailed
from core.faults import fault
from managers.models import NodeManager
from mitosis_protocol.errors import ErrorCode
from runners.models import Runner
from runners.services.registration import issue_runner_token, rotate_token_generation

_SEPARATOR: Final = "."  # not in the alphabet of either half
_ROTATED: Final = [
    "refresh_previous_hash",
    "refresh_hash",
    "refresh_family_hash",
    "refresh_rotated_at",
]


@dataclass(frozen=True, slots=True)
class ManagerTokens:
    """What a manager keeps; `refresh_token` is None when only the access token is new."""

    token: str
    expires_at: datetime
    refresh_token: str | None
    refresh_expires_at: datetime


@dataclass(frozen=True, slots=True)
class TokenPolicy:
    """Seconds: of an access token, and how long a spent refresh token still works."""

    access_s: float
    overlap_s: float


def issue_first_tokens(runner: Runner, *, access_s: float, lifetime_s: float) -> ManagerTokens:
    """For a manager that has just been registered, in that transaction."""
    family = _new_family()
    secret = _new_secret(family)
    expires_at = clock.now() + timedelta(seconds=lifetime_s)
    NodeManager.objects.filter(pk=runner.pk).update(
        refresh_hash=_digest(secret),
        refresh_family_hash=_digest(family),
        refresh_expires_at=expires_at,
    )
    return _tokens(runner, secret, expires_at, access_s)


def refresh_tokens(
    *, actor: Actor, runner: Runner, refresh_token: str, policy: TokenPolicy
) -> ManagerTokens:
    """Spend a refresh token. Raises AuthenticationFailed; a token spent long ago ends them all."""
    with transaction.atomic():
        node = NodeManager.objects.select_for_update(no_key=True).get(pk=runner.pk)
        given = _digest(refresh_token)
        if node.refresh_expires_at is None or node.refresh_expires_at <= clock.now():
            raise _refused(ErrorCode.AUTH_EXPIRED_TOKEN)
        is_newest = _is_same(given, node.refresh_hash)
        is_repeat = _is_same(given, node.refresh_previous_hash) and _is_in_overlap(node, policy)
        is_reuse = not is_newest and not is_repeat
        if not node.refresh_hash or (is_reuse and not _is_spent(node, refresh_token)):
            raise _refused(ErrorCode.AUTH_INVALID_TOKEN)
        family = _family_of(node, refresh_token) or _new_family()
        secret = _new_secret(family)
        node.refresh_previous_hash = "" if is_reuse else given
        node.refresh_hash = "" if is_reuse else _digest(secret)
        node.refresh_family_hash = _digest(family)
        if is_newest:
            # A repetition does not start the overlap anew, or a spent token would never end.
            node.refresh_rotated_at = clock.now()
        node.save(update_fields=_ROTATED)
        outcome = "reused" if is_reuse else "ok"
        record(actor=actor, action="manager.refresh", target=str(runner.uuid), outcome=outcome)
        expires_at = node.refresh_expires_at
        if is_reuse:
            rotate_token_generation(actor=actor, runner=runner)
    if is_reuse:
        raise _refused(ErrorCode.AUTH_REVOKED_TOKEN)
    fault("token.rotated_not_delivered")
    return _tokens(runner, secret, expires_at, policy.access_s)


def renew_access(*, actor: Actor, runner: Runner, policy: TokenPolicy) -> ManagerTokens:
    """A new access token for the bearer of a valid one; every earlier access token ends.

    A thief who renews is found out: the manager's own token stops, and its refresh token wins.
    """
    node = NodeManager.objects.get(pk=runner.pk)
    if node.refresh_expires_at is None or node.refresh_expires_at <= clock.now():
        raise _refused(ErrorCode.AUTH_EXPIRED_TOKEN)
    fresh = rotate_token_generation(actor=actor, runner=runner)
    tokens = _tokens(fresh, "", node.refresh_expires_at, policy.access_s)
    return ManagerTokens(tokens.token, tokens.expires_at, None, tokens.refresh_expires_at)


def _tokens(runner: Runner, secret: str, until: datetime, access_s: float) -> ManagerTokens:
    now = clock.now()
    # An access token never outlives the registration.
    lifetime = min(timedelta(seconds=access_s), until - now)
    token = issue_runner_token(runner, lifetime_s=lifetime.total_seconds())
    return ManagerTokens(token, now + lifetime, secret, until)


def _is_spent(node: NodeManager, token: str) -> bool:
    """Whether it was issued to this manager once; nobody else can know the family's name."""
    is_previous = _is_same(_digest(token), node.refresh_previous_hash)
    return is_previous or _family_of(node, token) is not None


def _family_of(node: NodeManager, token: str) -> str | None:
    """The name at the token's front, if it is this manager's."""
    family, separator, _ = token.partition(_SEPARATOR)
    is_ours = bool(separator) and _is_same(_digest(family), node.refresh_family_hash)
    return family if is_ours else None


def _is_in_overlap(node: NodeManager, policy: TokenPolicy) -> bool:
    if node.refresh_rotated_at is None:
        return False
    return clock.now() - node.refresh_rotated_at <= timedelta(seconds=policy.overlap_s)


def _is_same(given: str, kept: str) -> bool:
    return bool(kept) and secrets.compare_digest(given, kept)


def _new_family() -> str:
    return secrets.token_urlsafe(16)


def _new_secret(family: str) -> str:
    return f"{family}{_SEPARATOR}{secrets.token_urlsafe(32)}"


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _refused(code: ErrorCode) -> AuthenticationFailed:
    return AuthenticationFailed("Invalid refresh token", code=code)
