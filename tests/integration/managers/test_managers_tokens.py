"""Refresh tokens rotate: each works once, a lost answer is forgiven, a theft ends everything."""

import hashlib
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import OperationalError, connection
from django.test import Client

from core import clock
from managers.models import NodeManager
from tests.integration.accounts.api_client import Api

pytestmark = pytest.mark.django_db(transaction=True)

HOUR = timedelta(hours=1)


@pytest.fixture
def manager(as_user: Callable[..., Api]) -> dict[str, Any]:
    answer: dict[str, Any] = as_user("ada").post("/managers", {"groups": []}).json()
    return answer


def refresh(manager: dict[str, Any], secret: str | None, token: str | None = None) -> Any:
    path = f"/managers/{manager['manager_uuid']}/refresh-token"
    return Api(Client(), token).post(path, {} if secret is None else {"refresh_token": secret})


def is_alive(token: str) -> bool:
    answer = Api(Client(), token).post("/managers/heartbeat", {"state": "Idle"})
    return bool(answer.status_code == 204)


def test_a_refresh_token_works_when_the_access_token_has_expired(manager: dict[str, Any]) -> None:
    later = clock.now() + 2 * HOUR
    with clock.using(lambda: later):
        assert not is_alive(manager["token"])
        answer = refresh(manager, manager["refresh_token"])
        assert answer.status_code == 200
        assert is_alive(answer.json()["token"])


def test_a_lost_answer_is_forgiven_for_some_minutes(manager: dict[str, Any]) -> None:
    first = refresh(manager, manager["refresh_token"]).json()
    again = refresh(manager, manager["refresh_token"])
    assert again.status_code == 200
    assert again.json()["refresh_token"] != first["refresh_token"]


def test_a_spent_token_used_later_ends_every_token(manager: dict[str, Any]) -> None:
    fresh = refresh(manager, manager["refresh_token"]).json()
    later = clock.now() + timedelta(minutes=10)
    with clock.using(lambda: later):
        assert refresh(manager, manager["refresh_token"]).status_code == 401
        assert refresh(manager, fresh["refresh_token"]).status_code == 401
        assert not is_alive(fresh["token"])


def test_a_crash_while_a_theft_is_answered_leaves_it_to_be_found_again(
    manager: dict[str, Any],
) -> None:
    fresh = refresh(manager, manager["refresh_token"]).json()

    def die_before_the_generation(execute: Any, sql: str, *rest: Any) -> Any:
        if sql.startswith('UPDATE "runners"'):
            raise OperationalError("the connection is gone")
        return execute(sql, *rest)

    later = clock.now() + timedelta(minutes=10)
    with clock.using(lambda: later):
        with connection.execute_wrapper(die_before_the_generation):
            assert refresh(manager, manager["refresh_token"]).status_code == 503
        # Refresh tokens that had ended alone would leave the thief an hour of access.
        assert is_alive(fresh["token"])
        assert refresh(manager, manager["refresh_token"]).status_code == 401
        assert not is_alive(fresh["token"])


def test_a_thief_who_refreshes_often_is_found_out_as_well(manager: dict[str, Any]) -> None:
    stolen = manager["refresh_token"]
    for _ in range(2):
        thief = refresh(manager, stolen).json()
        stolen = thief["refresh_token"]
    # The owner comes with what it has; that is neither the newest nor the one before.
    assert refresh(manager, manager["refresh_token"]).status_code == 401
    assert not is_alive(thief["token"])
    assert refresh(manager, stolen).status_code == 401


def test_a_repetition_does_not_make_a_spent_token_last(manager: dict[str, Any]) -> None:
    refresh(manager, manager["refresh_token"])
    start = clock.now()
    with clock.using(lambda: start + timedelta(minutes=4)):
        again = refresh(manager, manager["refresh_token"])
        assert again.status_code == 200
    with clock.using(lambda: start + timedelta(minutes=8)):
        assert refresh(manager, manager["refresh_token"]).status_code == 401
        assert not is_alive(again.json()["token"])


def test_a_token_from_before_there_were_families_joins_one(manager: dict[str, Any]) -> None:
    digest = hashlib.sha256(b"as it was").hexdigest()
    NodeManager.objects.update(refresh_hash=digest, refresh_family_hash="")
    first = refresh(manager, "as it was").json()
    second = refresh(manager, first["refresh_token"])
    assert second.status_code == 200
    refresh(manager, second.json()["refresh_token"])
    assert refresh(manager, first["refresh_token"]).status_code == 401
    assert not is_alive(second.json()["token"])


def test_a_made_up_token_ends_nothing(manager: dict[str, Any]) -> None:
    for secret in ("", "x", ".", "x.y", "y" * 200):
        assert refresh(manager, secret).status_code == 401
    assert refresh(manager, "z" * 300).status_code == 422
    assert refresh(manager, manager["refresh_token"]).status_code == 200


def test_the_registration_ends_whatever_is_refreshed(manager: dict[str, Any]) -> None:
    later = clock.now() + timedelta(days=31)
    with clock.using(lambda: later):
        assert refresh(manager, manager["refresh_token"]).status_code == 401


def test_a_valid_access_token_renews_itself_and_ends_the_older_one(
    manager: dict[str, Any],
) -> None:
    answer = refresh(manager, None, manager["token"])
    assert answer.status_code == 200
    assert answer.json()["refresh_token"] is None
    assert is_alive(answer.json()["token"])
    assert not is_alive(manager["token"])


def test_nobody_renews_for_somebody_else(
    manager: dict[str, Any], as_user: Callable[..., Api]
) -> None:
    other = as_user("bob").post("/managers", {"groups": []}).json()
    assert refresh(manager, None, other["token"]).status_code == 401
    assert refresh(manager, other["refresh_token"]).status_code == 401
    assert refresh(manager, None).status_code == 400


def test_secrets_are_not_stored_as_they_are(manager: dict[str, Any]) -> None:
    node = NodeManager.objects.get()
    assert manager["refresh_token"] not in (node.refresh_hash, node.refresh_previous_hash)
    assert len(node.refresh_hash) == 64
