"""Logging in, changing one's own password, and the tokens both hand out.

Called by the session API. Password checks run outside transactions (they take 20 ms on purpose);
the row is then locked and compared, so a change made meanwhile wins.
"""

from dataclasses import dataclass

from django.conf import settings
from django.db import transaction

from accounts import bearer, tokens
from accounts.actors import Actor
from accounts.models import User
from accounts.password import (
    check_md5_password,
    encode_md5_password,
    needs_rehash,
    spend_like_a_check,
)
from accounts.selectors import find_user
from accounts.services.audit import record
from accounts.throttle import LoginThrottle
from core import clock
from core.errors import AuthenticationFailed, PermissionDenied
from mitosis_protocol.enums import TokenKind, UserState
from mitosis_protocol.errors import ErrorCode


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client presents: a name, and the MD5 digest of the password."""

    username: str
    md5_password: bytes


def login(*, actor: Actor, credentials: Credentials, retain: bool, throttle: LoginThrottle) -> str:
    """A new token in the wrapped form. Without `retain`, all earlier tokens of the user end.

    Raises Throttled, AuthenticationFailed, or PermissionDenied for a user who is not Active
    (decided before the password is looked at, as existing clients know it).
    """
    attempt = throttle.attempt(ip=actor.ip, username=credentials.username)
    user = find_user(credentials.username)
    if user is None:
        spend_like_a_check(credentials.md5_password)
        raise _refused(actor, "login", credentials.username)
    if user.state != UserState.ACTIVE:
        record(actor=actor, action="login", target=user.username, outcome="not_active")
        raise PermissionDenied
    if not check_md5_password(credentials.md5_password, user.password):
        raise _refused(actor, "login", user.username)
    with transaction.atomic():
        user = _unchanged(user)
        if not retain:
            user.token_generation += 1
        if needs_rehash(user.password):
            user.password = encode_md5_password(credentials.md5_password)
        user.last_login = clock.now()
        user.save(update_fields=["token_generation", "password", "last_login"])
        record(actor=actor, action="login", target=user.username, detail={"retain": retain})
    attempt.succeeded()
    return issue_user_token(user)


def change_password(
    *, actor: Actor, credentials: Credentials, new_md5_password: bytes, throttle: LoginThrottle
) -> str:
    """Replace one's own password; every earlier token ends and a new one is answered."""
    attempt = throttle.attempt(ip=actor.ip, username=credentials.username)
    user = find_user(credentials.username)
    if user is None or not check_md5_password(credentials.md5_password, user.password):
        raise _refused(actor, "user.password", credentials.username)
    password = encode_md5_password(new_md5_password)
    with transaction.atomic():
        user = _unchanged(user)
        user.password = password
        user.token_generation += 1
        user.save(update_fields=["password", "token_generation", "updated_at"])
        record(actor=actor, action="user.password", target=user.username)
    attempt.succeeded()
    return issue_user_token(user)


def issue_user_token(user: User) -> str:
    """A token for the user's present generation, wrapped as existing clients keep it."""
    token = bearer.issue(
        kind=TokenKind.USER,
        subject=user.username,
        generation=user.token_generation,
        lifetime_s=settings.MITOSIS.user_token_s,
    )
    return tokens.wrap(token)


def _unchanged(user: User) -> User:
    fresh = User.objects.select_for_update(no_key=True).get(pk=user.pk)
    if fresh.password != user.password or fresh.state != user.state:
        raise AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_WRONG_CREDENTIALS)
    return fresh


def _refused(actor: Actor, action: str, username: str) -> AuthenticationFailed:
    # The name is what was typed; cut, because a password typed into the wrong field may be long.
    record(actor=actor, action=action, target=username[:64], outcome="wrong_credentials")
    return AuthenticationFailed("Wrong credentials", code=ErrorCode.AUTH_WRONG_CREDENTIALS)
