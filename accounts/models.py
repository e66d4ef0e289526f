"""Users, groups, who belongs to what, and the audit log.

Columns, constraints and indexes only; writes go through accounts.services. Users and groups share
one namespace: triggers (accounts/sql/ddl) reserve every name in `names`, so no path can bypass it.
"""

from typing import Any, ClassVar, Final

from django.contrib.auth.base_user import AbstractBaseUser
from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now
from typing_extensions import override

from accounts.constraints import known_codes
from accounts.password import check_plain_password, encode_plain_password
from accounts.querysets import UserManager
from core.fields import EnumCodeField
from core.models import TimestampedModel
from mitosis_protocol.enums import GroupState, Role, UserState
from mitosis_protocol.limits import MAX_NAME_CHARS
from mitosis_protocol.names import NAME_PATTERN, is_valid_name

DB_NAME_PATTERN = f"^{NAME_PATTERN}$"  # in PostgreSQL `$` is the very end, newlines included
DEFAULT_GROUP_QUOTA = 8  # groups one user may create, the own group included
DEFAULT_STORAGE_QUOTA_BYTES = 16_000_000_000


def validate_name(value: str) -> None:
    """For the console's forms; services check by themselves."""
    if not is_valid_name(value):
        raise ValidationError("Use 1-255 characters of A-Z a-z 0-9 _ -")


class Name(models.Model):
    """One row per taken name. Filled by triggers on `users` and `groups`, never freed."""

    name = models.CharField(max_length=MAX_NAME_CHARS, primary_key=True)

    class Meta:
        db_table = "names"

    @override
    def __str__(self) -> str:
        return self.name


class User(TimestampedModel, AbstractBaseUser):
    """A person or script that logs in. `is_staff` is the admin flag of both API and console."""

    id = models.BigAutoField(primary_key=True)
    username = models.CharField(max_length=MAX_NAME_CHARS, unique=True, validators=[validate_name])
    state = EnumCodeField(UserState, default=UserState.ACTIVE)
    is_staff = models.BooleanField("admin", default=False)
    # Every user token carries it; adding one ends all tokens issued before.
    token_generation = models.IntegerField(default=1, db_default=1)
    group_quota = models.IntegerField(default=DEFAULT_GROUP_QUOTA, db_default=DEFAULT_GROUP_QUOTA)
    group_count = models.IntegerField(default=0, db_default=0)

    objects: ClassVar[UserManager] = UserManager()

    USERNAME_FIELD = "username"
    REQUIRED_FIELDS: ClassVar[list[str]] = []

    class Meta:
        db_table = "users"
        constraints: ClassVar = [
            known_codes("users_state_known", "state", UserState),
            models.CheckConstraint(
                name="users_username_valid", condition=Q(username__regex=DB_NAME_PATTERN)
            ),
            models.CheckConstraint(name="users_group_quota_floor", condition=Q(group_quota__gte=0)),
            models.CheckConstraint(name="users_group_count_floor", condition=Q(group_count__gte=0)),
        ]

    @override
    def __str__(self) -> str:
        return self.username

    @property
    @override
    def is_active(self) -> bool:  # type: ignore[override]  # Django reads it as a plain attribute
        return bool(self.state == UserState.ACTIVE)

    @property
    def is_superuser(self) -> bool:
        return self.is_staff

    def has_perm(self, perm: str, obj: object = None) -> bool:
        """The console knows one right: being an active admin. Group roles rule the API instead."""
        return self.is_active and self.is_staff

    def has_perms(self, perm_list: Any, obj: object = None) -> bool:
        return self.is_active and self.is_staff

    def has_module_perms(self, app_label: str) -> bool:
        return self.is_active and self.is_staff

    @override
    def set_password(self, raw_password: str | None) -> None:
        """For Django's own commands; a new password ends all tokens, however it was set."""
        self.password = encode_plain_password(raw_password)
        self.token_generation += 1

    @override
    def check_password(self, raw_password: str | None) -> bool:
        return raw_password is not None and check_plain_password(raw_password, self.password)


PERCENT: Final = [MinValueValidator(1), MaxValueValidator(100)]


class Group(TimestampedModel):
    """The tenant: owns tasks, suites, storage; has roles on runners."""

    id = models.BigAutoField(primary_key=True)
    name = models.CharField(max_length=MAX_NAME_CHARS, unique=True, validators=[validate_name])
    creator = models.ForeignKey(User, on_delete=models.PROTECT, related_name="created_groups")
    state = EnumCodeField(GroupState, default=GroupState.ACTIVE)
    # Last task_id handed out in this group; grows with every submission, never shrinks.
    task_count = models.BigIntegerField(default=0, db_default=0)
    storage_quota = models.BigIntegerField(
        default=DEFAULT_STORAGE_QUOTA_BYTES, db_default=DEFAULT_STORAGE_QUOTA_BYTES
    )
    storage_used = models.BigIntegerField(default=0, db_default=0)
    # The highest priority a task or suite of the group may ask for; None is no ceiling.
    priority_ceiling = models.IntegerField(null=True, blank=True)
    # How full a direct worker of the group may be and still get work; None is the policy's number.
    drain_mem_pct = models.SmallIntegerField(null=True, blank=True, validators=PERCENT)
    drain_disk_pct = models.SmallIntegerField(null=True, blank=True, validators=PERCENT)

    class Meta:
        db_table = "groups"
        constraints: ClassVar = [
            known_codes("groups_state_known", "state", GroupState),
            models.CheckConstraint(
                name="groups_name_valid", condition=Q(name__regex=DB_NAME_PATTERN)
            ),
            models.CheckConstraint(
                name="groups_storage_used_floor", condition=Q(storage_used__gte=0)
            ),
        ]

    @override
    def __str__(self) -> str:
        return self.name


class Membership(TimestampedModel):
    """The role of one user in one group."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(User, on_delete=models.PROTECT, related_name="memberships")
    group = models.ForeignKey(Group, on_delete=models.PROTECT, related_name="memberships")
    role = EnumCodeField(Role)

    class Meta:
        db_table = "memberships"
        constraints: ClassVar = [
            known_codes("memberships_role_known", "role", Role),
            models.UniqueConstraint(fields=["user", "group"], name="memberships_user_group_unique"),
        ]

    @override
    def __str__(self) -> str:
        return f"user {self.user_id} in group {self.group_id}: {self.role.value}"


class AuditEntry(models.Model):
    """Who did what, from where, with which outcome.

    Unmanaged: the table is made by accounts/sql/ddl with a trigger that refuses UPDATE, DELETE and
    TRUNCATE, and has no foreign keys, so an entry outlives what it speaks of.
    """

    id = models.BigAutoField(primary_key=True)
    at = models.DateTimeField(db_default=Now())
    actor_kind = models.TextField()
    actor_id = models.TextField(blank=True)
    action = models.TextField()
    object = models.TextField(blank=True)
    outcome = models.TextField()
    ip = models.GenericIPAddressField(null=True, blank=True)
    request_id = models.TextField(blank=True)
    detail = models.JSONField(default=dict)

    class Meta:
        db_table = "audit_log"
        managed = False
        verbose_name_plural = "audit entries"

    @override
    def __str__(self) -> str:
        return f"{self.actor_kind} {self.actor_id} {self.action} {self.object}: {self.outcome}"
