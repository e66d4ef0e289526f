"""A table of our own, a second way into the database, and a pool on the test database."""

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from django.db import connection, models
from psycopg.conninfo import make_conninfo

from core.fields import EnumCodeField, TagArrayField
from core.models import TimestampedModel
from core.pg import PgPool
from mitosis_protocol.enums import SuiteState


class Campaign(TimestampedModel):
    """A stand-in for any model with a state."""

    name = models.TextField(unique=True)
    state = EnumCodeField(SuiteState, default=SuiteState.OPEN)
    tags = TagArrayField()
    closed_at = models.DateTimeField(null=True)
    parent = models.ForeignKey("self", null=True, on_delete=models.CASCADE)

    class Meta:
        app_label = "core_trials"
        verbose_name = "campaign"

    def __str__(self) -> str:
        return self.name


@pytest.fixture
def campaigns(transactional_db: None) -> Iterator[type[Campaign]]:
    with connection.schema_editor() as editor:
        editor.create_model(Campaign)
    yield Campaign
    with connection.schema_editor() as editor:
        editor.delete_model(Campaign)


@pytest.fixture
def dsn(transactional_db: None) -> str:
    """The test database, for connections that Django does not know."""
    found = connection.settings_dict
    return make_conninfo(
        host=found["HOST"],
        port=found["PORT"] or None,
        dbname=found["NAME"],
        user=found["USER"] or None,
        password=found["PASSWORD"] or None,
    )


@pytest.fixture
def other(dsn: str) -> Iterator[psycopg.Connection]:
    """A second session; nothing it does is undone, so it must not leave rows behind."""
    with psycopg.connect(dsn) as session:
        yield session
        session.rollback()


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[PgPool]:
    opened = PgPool(dsn, max_size=2, wait_s=2)
    await opened.open()
    yield opened
    await opened.close()
