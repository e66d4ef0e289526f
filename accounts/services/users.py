"""Life of a user: creation with its own group, state, password, group quota; all by an admin.

Called by the admin API, the console and the bootstrap command.
"""

from django.db import transaction

from accounts.actors import Actor
from accounts.models import Group, Membership, User
from accounts.password import encode_md5_password
from accounts.services.audit import record
from accounts.services.names import claiming_name
from accounts.services.quotas import apply_change
from core.errors import InvalidInput, NotFound
from mitosis_protocol.enums import Role, UserState
from mitosis_protocol.names import is_valid_name
from mitosis_protocol.sizes import QuotaChange

MAX_GROUP_QUOTA = 2**31 - 1  # the column's type


def create_user(*, actor: Actor, username: str, md5_password: bytes, is_admin: bool) -> User:
    """Make the user, the group of the same name and the membership, or nothing at all."""
    if not is_valid_name(username):
        raise InvalidInput("Invalid username")
    password = encode_md5_password(md5_password)  # slow on purpose, so outside the transaction
    with claiming_name(username):
        user = User.objects.create(
            username=username, password=password, is_staff=is_admin, group_count=1
        )
        group = Group.objects.create(name=username, creator=user)
        Membership.objects.create(user=user, group=group, role=Role.ADMIN)
        record(actor=actor, action="user.create", target=username, detail={"admin": is_admin})
    return user


def set_user_state(*, actor: Actor, username: str, state: UserState) -> User:
    """Lock, delete or reactivate. Leaving Active ends all tokens, also after a reactivation."""
    with transaction.atomic():
        user = _locked(username)
        if state != UserState.ACTIVE:
            user.token_generation += 1
        user.state = state
        user.save(update_fields=["state", "token_generation", "updated_at"])
        record(actor=actor, action="user.state", target=username, detail={"state": state.value})
    return user


def set_password(*, actor: Actor, username: str, md5_password: bytes) -> User:
    """Set another user's password; all tokens and browser sessions of that user end."""
    password = encode_md5_password(md5_password)
    with transaction.atomic():
        user = _locked(username)
        user.password = password
        user.token_generation += 1
        user.save(update_fields=["password", "token_generation", "updated_at"])
        record(actor=actor, action="user.password", target=username)
    return user


def set_admin(*, actor: Actor, username: str, is_admin: bool) -> User:
    with transaction.atomic():
        user = _locked(username)
        user.is_staff = is_admin
        user.save(update_fields=["is_staff", "updated_at"])
        record(actor=actor, action="user.admin", target=username, detail={"admin": is_admin})
    return user


def end_sessions(*, actor: Actor, username: str) -> User:
    """End all tokens of a user; browser sessions hang on the password and stay."""
    with transaction.atomic():
        user = _locked(username)
        user.token_generation += 1
        user.save(update_fields=["token_generation", "updated_at"])
        record(actor=actor, action="user.end_sessions", target=username)
    return user


def change_group_quota(*, actor: Actor, username: str, change: QuotaChange) -> int:
    """Apply `+n`, `-n` or `=n`, never below zero; answers the new quota."""
    with transaction.atomic():
        user = _locked(username)
        quota = apply_change(change, user.group_quota, floor=0)
        if quota > MAX_GROUP_QUOTA:
            raise InvalidInput(f"group_quota may be {MAX_GROUP_QUOTA} at most")
        user.group_quota = quota
        user.save(update_fields=["group_quota", "updated_at"])
        record(actor=actor, action="user.group_quota", target=username, detail={"quota": quota})
    return quota


def _locked(username: str) -> User:
    found = None
    if is_valid_name(username):
        rows = User.objects.select_for_update(no_key=True)
        found = rows.filter(username=username).first()
    if found is None:
        raise NotFound(f"User {username} not found")
    return found
