"""Enums and tag sets in real columns."""

import pytest
from django.core.exceptions import ValidationError
from django.db import connection, models
from django.db.migrations.serializer import serializer_factory
from django.db.migrations.writer import MigrationWriter

from core.fields import EnumCodeField, TagArrayField, normalised_tags
from mitosis_protocol.enums import ManagerState, Role, SuiteState, TaskState
from mitosis_protocol.errors import InvalidValue


def column(campaigns, name):
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {name} FROM {campaigns._meta.db_table}")
        return cursor.fetchone()[0]


def test_the_column_holds_the_code_and_the_model_the_member(campaigns):
    campaigns.objects.create(name="a", state=SuiteState.COMPLETE)
    assert column(campaigns, "state") == 2
    assert campaigns.objects.get().state is SuiteState.COMPLETE


def test_the_column_is_a_smallint(campaigns):
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT data_type FROM information_schema.columns "
            "WHERE table_name = %s AND column_name = 'state'",
            [campaigns._meta.db_table],
        )
        assert cursor.fetchone()[0] == "smallint"


@pytest.mark.parametrize("value", [SuiteState.CLOSED, "Closed", 1, "1"])
def test_lookups_take_a_member_its_text_or_its_code(campaigns, value):
    campaigns.objects.create(name="a", state=SuiteState.CLOSED)
    assert campaigns.objects.filter(state=value).exists()
    assert campaigns.objects.filter(state__in=[value]).exists()
    assert not campaigns.objects.exclude(state=value).exists()


@pytest.mark.parametrize(
    "value", ["closed", 9, "9", True, 1.5, ManagerState.IDLE, TaskState.CANCELLED]
)
def test_anything_else_is_refused_before_sql(campaigns, value):
    with pytest.raises(InvalidValue):
        campaigns.objects.filter(state=value).exists()
    with pytest.raises(InvalidValue):
        campaigns.objects.create(name="a", state=value)
    with pytest.raises(ValidationError):
        campaigns._meta.get_field("state").to_python(value)


def test_a_code_nobody_wrote_is_an_error_and_not_a_guess(campaigns):
    campaigns.objects.create(name="a")
    with connection.cursor() as cursor:
        cursor.execute(f"UPDATE {campaigns._meta.db_table} SET state = 77")
    with pytest.raises(InvalidValue, match="77"):
        campaigns.objects.get()


def test_null_stays_null():
    field = EnumCodeField(SuiteState, null=True)
    assert field.get_prep_value(None) is None
    assert field.from_db_value(None, None, connection) is None
    assert field.to_python(None) is None


def test_forms_and_admin_show_the_wire_names(campaigns):
    row = campaigns(name="a", state=SuiteState.CANCELLED)
    assert row.get_state_display() == "Cancelled"
    assert [label for _, label in row._meta.get_field("state").choices] == [
        "Open",
        "Closed",
        "Complete",
        "Cancelled",
    ]
    row.clean_fields(exclude=["name", "parent", "closed_at"])


@pytest.mark.parametrize(
    "field",
    [
        EnumCodeField(SuiteState, default=SuiteState.OPEN),
        EnumCodeField(Role, null=True, db_index=True),
        TagArrayField(),
        TagArrayField(max_items=3),
    ],
)
def test_migrations_rebuild_the_same_field(field):
    _, path, args, kwargs = field.deconstruct()
    again = type(field)(*args, **kwargs)
    assert again.deconstruct()[1:] == (path, args, kwargs)
    assert "choices" not in kwargs
    text, imports = serializer_factory(field).serialize()
    assert text.startswith("core.fields.")
    assert imports
    assert MigrationWriter.serialize(field)


def test_tags_are_kept_sorted_and_unique(campaigns):
    campaigns.objects.create(name="a", tags={"gpu", "linux"})
    campaigns.objects.create(name="b", tags=["b", "a", "b"])
    assert campaigns.objects.get(name="a").tags == ["gpu", "linux"]
    assert campaigns.objects.get(name="b").tags == ["a", "b"]
    assert campaigns.objects.filter(tags__contains=["a"]).count() == 1
    assert campaigns.objects.filter(tags__contained_by=["gpu", "linux", "x"]).count() == 1
    assert campaigns.objects.create(name="c").tags == []


@pytest.mark.parametrize(
    ("tags", "reason"),
    [
        ([""], "empty"),
        (["a\0"], "NUL"),
        ([1], "text"),
        (["x" * 257], "256 bytes"),
        (["\N{SNOWMAN}" * 86], "256 bytes"),
        ([str(n) for n in range(65)], "at most 64"),
    ],
)
def test_bad_tags_are_refused(campaigns, tags, reason):
    with pytest.raises(InvalidValue, match=reason):
        normalised_tags(tags)
    with pytest.raises(InvalidValue):
        campaigns.objects.create(name="a", tags=tags)
    with pytest.raises(ValidationError):
        campaigns._meta.get_field("tags").to_python(tags)


def test_repetitions_do_not_count_against_the_limit():
    assert normalised_tags(["a"] * 1000) == ["a"]
    with pytest.raises(InvalidValue):
        normalised_tags(["a", "b"], max_items=1)


def test_rows_written_by_hand_get_their_timestamps(campaigns):
    with connection.cursor() as cursor:
        cursor.execute(
            f"INSERT INTO {campaigns._meta.db_table} (name, state, tags) VALUES ('raw', 0, '{{}}')"
        )
    row = campaigns.objects.get()
    assert row.created_at is not None
    assert row.updated_at == row.created_at


def test_saving_moves_updated_at_only(campaigns):
    row = campaigns.objects.create(name="a")
    created, updated = row.created_at, row.updated_at
    row.name = "b"
    row.save(update_fields=["name", "updated_at"])
    row.refresh_from_db()
    assert row.created_at == created
    assert row.updated_at > updated


def test_a_field_is_bound_to_its_enum():
    class Unsaved(models.Model):
        role = EnumCodeField(Role, default=Role.READ)

        class Meta:
            app_label = "core_trials"

        def __str__(self) -> str:
            return "unsaved"

    assert Unsaved().role is Role.READ
