"""States change by one guarded UPDATE, whoever else is at it."""

import threading
from datetime import UTC, datetime

import pytest
from django.db import connection, models, transaction
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from core.errors import InvalidTransition, NotFound
from core.transitions import move, move_all
from mitosis_protocol.enums import SuiteState
from mitosis_protocol.transitions import SUITE

OPEN, CLOSED, COMPLETE, CANCELLED = SuiteState


@pytest.fixture
def campaign(campaigns):
    return campaigns.objects.create(name="one")


def rows(campaign):
    return type(campaign).objects.filter(pk=campaign.pk)


def test_a_legal_move_changes_state_and_the_rest_in_one_statement(campaign):
    moment = datetime(2025, 1, 1, tzinfo=UTC)
    before = campaign.updated_at
    with CaptureQueriesContext(connection) as queries:
        assert move(rows(campaign), CLOSED, table=SUITE, changes={"closed_at": moment})
    assert len(queries) == 1
    campaign.refresh_from_db()
    assert (campaign.state, campaign.closed_at) == (CLOSED, moment)
    assert campaign.updated_at > before


@pytest.mark.parametrize("source", SuiteState)
@pytest.mark.parametrize("target", SuiteState)
def test_the_database_allows_exactly_the_arrows_of_the_table(campaign, source, target):
    rows(campaign).update(state=source)
    if target in SUITE[source]:
        assert move(rows(campaign), target, table=SUITE)
        assert rows(campaign).get().state is target
    else:
        with pytest.raises(InvalidTransition) as refusal:
            move(rows(campaign), target, table=SUITE)
        assert refusal.value.extra == {"state": source.value, "wanted": target.value}
        assert rows(campaign).get().state is source


def test_an_idempotent_caller_gets_false_instead(campaign):
    assert move(rows(campaign), COMPLETE, table=SUITE)
    assert not move(rows(campaign), COMPLETE, table=SUITE, idempotent=True)


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_missing_row_is_not_found_either_way(campaigns, idempotent):
    with pytest.raises(NotFound, match="campaign not found"):
        move(campaigns.objects.filter(pk=-1), CLOSED, table=SUITE, idempotent=idempotent)


def test_a_refused_move_changes_nothing_else(campaign):
    rows(campaign).update(state=CANCELLED)
    with pytest.raises(InvalidTransition):
        move(rows(campaign), OPEN, table=SUITE, changes={"name": "renamed"})
    assert rows(campaign).get().name == "one"


def test_changes_may_be_expressions(campaign):
    move(rows(campaign), CLOSED, table=SUITE, changes={"closed_at": F("created_at")})
    found = rows(campaign).get()
    assert found.closed_at == found.created_at


def test_a_sweep_moves_every_row_that_may_move_and_says_which(campaigns):
    made = {
        state: campaigns.objects.create(name=state.value, state=state).pk for state in SuiteState
    }
    moved = move_all(campaigns.objects.order_by("-name"), CANCELLED, table=SUITE)
    assert set(moved) == {made[OPEN], made[CLOSED], made[COMPLETE]}
    assert move_all(campaigns.objects.all(), CANCELLED, table=SUITE) == []


def test_the_condition_of_a_sweep_is_part_of_the_statement(campaigns):
    wanted = campaigns.objects.create(name="tagged", tags=["x"])
    campaigns.objects.create(name="plain")
    assert move_all(campaigns.objects.filter(tags__contains=["x"]), CLOSED, table=SUITE) == [
        wanted.pk
    ]


def test_filters_through_a_relation_are_refused(campaigns):
    through = campaigns.objects.filter(parent__name="x")
    with pytest.raises(ValueError, match="own columns"):
        move_all(through, CLOSED, table=SUITE)


def test_a_model_without_updated_at_can_move_too(campaign):
    class Bare(models.Model):
        name = models.TextField()
        state = type(campaign)._meta.get_field("state").clone()

        class Meta:
            app_label = "core_trials"
            managed = False
            db_table = type(campaign)._meta.db_table

        def __str__(self) -> str:
            return self.name

    assert move(Bare.objects.filter(pk=campaign.pk), CLOSED, table=SUITE)
    assert rows(campaign).get().state is CLOSED


def test_whoever_waits_for_the_row_sees_the_state_it_has_then(campaign, other):
    """The loser of a race must not overwrite the winner with what it saw before waiting."""
    table = type(campaign)._meta.db_table
    other.execute(f"UPDATE {table} SET state = %s WHERE id = %s", [CANCELLED.code, campaign.pk])
    result: list[object] = []

    def lose() -> None:
        try:
            result.append(move(rows(campaign), CLOSED, table=SUITE))
        except InvalidTransition as error:
            result.append(error)
        finally:
            connection.close()

    loser = threading.Thread(target=lose)
    loser.start()
    loser.join(0.3)
    assert loser.is_alive(), "the move should wait for the row"
    other.commit()
    loser.join(10)
    assert isinstance(result[0], InvalidTransition)
    assert rows(campaign).get().state is CANCELLED


def test_a_move_is_undone_with_its_transaction(campaign):
    class RollBack(Exception):
        pass

    with pytest.raises(RollBack), transaction.atomic():
        _move_and_fail(campaign, RollBack)
    assert rows(campaign).get().state is OPEN


def _move_and_fail(campaign, error):
    move(rows(campaign), CLOSED, table=SUITE)
    raise error
