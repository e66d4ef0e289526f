"""The tokens of a manager: a short-lived access token, and a refresh token that works once.

Refresh tokens are 256 random bits, kept as their SHA-256. Using one hands out the next; the one
before still works for some minutes, for an answer that got lost. Later use of a spent token means
that two parties have it: everything issued to the manager ends (correctness 5.2).
"""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta

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
    secret = _new_secret()
    expires_at = clock.now() + timedelta(seconds=lifetime_s)
    NodeManager.objects.filter(pk=runner.pk).update(
        refresh_hash=_digest(secret), refresh_expires_at=expires_at
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
        if not node.refresh_hash or not _is_known(node, given):
            raise _refused(ErrorCode.AUTH_INVALID_TOKEN)
        is_reuse = not secrets.compare_digest(given, node.refresh_hash) and not _is_in_overlap(
            node, policy
        )
        secret = _new_secret()
        node.refresh_previous_hash = "" if is_reuse else given
        node.refresh_hash = "" if is_reuse else _digest(secret)
        node.refresh_rotated_at = clock.now()
        node.save(update_fields=["refresh_previous_hash", "refresh_hash", "refresh_rotated_at"])
        outcome = "reused" if is_reuse else "ok"
        record(actor=actor, action="manager.refresh", target=str(runner.uuid), outcome=outcome)
        expires_at = node.refresh_expires_at
    if is_reuse:
        rotate_token_generation(actor=actor, runner=runner)
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


def _is_known(node: NodeManager, given: str) -> bool:
    return secrets.compare_digest(given, node.refresh_hash) or (
        bool(node.refresh_previous_hash)
        and secrets.compare_digest(given, node.refresh_previous_hash)
    )


def _is_in_overlap(node: NodeManager, policy: TokenPolicy) -> bool:
    if node.refresh_rotated_at is None:
        return False
    return clock.now() - node.refresh_rotated_at <= timedelta(seconds=policy.overlap_s)


def _new_secret() -> str:
    return secrets.token_urlsafe(32)


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def _refused(code: ErrorCode) -> AuthenticationFailed:
    return AuthenticationFailed("Invalid refresh token", code=code)
