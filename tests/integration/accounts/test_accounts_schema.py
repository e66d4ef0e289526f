"""What the database itself promises about names, the audit log and counters, whoever writes."""

import pytest
from django.db import IntegrityError, ProgrammingError, connection, transaction

from accounts.models import AuditEntry, Group, Name, User

pytestmark = pytest.mark.django_db


def make_user(name: str) -> User:
    return User.objects.create(username=name, password="!")


def test_a_user_and_its_own_group_share_one_name() -> None:
    user = make_user("ada")
    Group.objects.create(name="ada", creator=user)
    assert list(Name.objects.filter(name="ada").values_list("name", flat=True)) == ["ada"]


def test_a_group_cannot_take_the_name_of_another_user() -> None:
    make_user("ada")
    bob = make_user("bob")
    with pytest.raises(IntegrityError, match="names_pkey"), transaction.atomic():
        Group.objects.create(name="ada", creator=bob)


def test_a_user_cannot_take_the_name_of_a_group() -> None:
    ada = make_user("ada")
    Group.objects.create(name="lab", creator=ada)
    with pytest.raises(IntegrityError, match="names_pkey"), transaction.atomic():
        make_user("lab")


@pytest.mark.parametrize("name", ["", "a b", "a\nb", "a\n", "ä", "a/b", "a" * 256])
def test_the_database_refuses_invalid_names(name: str) -> None:
    with pytest.raises(Exception, match=r"users_username_valid|too long"), transaction.atomic():
        make_user(name)


def test_names_cannot_be_changed() -> None:
    user = make_user("ada")
    Group.objects.create(name="ada", creator=user)
    for rows, field in ((User.objects, "username"), (Group.objects, "name")):
        with pytest.raises(IntegrityError, match="cannot be changed"), transaction.atomic():
            rows.update(**{field: "eve"})


def test_storage_cannot_go_below_zero() -> None:
    group = Group.objects.create(name="ada", creator=make_user("ada"))
    with pytest.raises(IntegrityError, match="storage_used_floor"), transaction.atomic():
        Group.objects.filter(pk=group.pk).update(storage_used=-1)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_log SET outcome = 'ok'",
        "DELETE FROM audit_log",
        "TRUNCATE audit_log",
        "TRUNCATE audit_log CASCADE",
        "MERGE INTO audit_log a USING audit_log b ON a.id = b.id WHEN MATCHED THEN DELETE",
    ],
)
def test_the_audit_log_only_grows(statement: str) -> None:
    entry = AuditEntry.objects.create(actor_kind="user", action="test", outcome="ok")
    with pytest.raises(ProgrammingError, match="insert-only"), transaction.atomic():
        connection.cursor().execute(statement)
    assert AuditEntry.objects.filter(pk=entry.pk).exists()


def test_the_unmanaged_audit_model_matches_its_table() -> None:
    with connection.cursor() as cursor:
        columns = {
            column.name: column.null_ok
            for column in connection.introspection.get_table_description(cursor, "audit_log")
        }
    fields = {field.column: field.null for field in AuditEntry._meta.local_fields}
    assert columns == fields
