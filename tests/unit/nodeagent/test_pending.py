"""Requests and the answers they wait for."""

import pytest

from nodeagent.coordinator.pending import Pending


def test_an_answer_finds_its_request_once() -> None:
    pending: Pending[str] = Pending()
    pending.ask(7, "fetch", now=0.0)
    assert pending.find(7) == "fetch"
    assert pending.settle(7) == "fetch"
    assert (pending.settle(7), pending.find(7), len(pending)) == (None, None, 0)


def test_a_request_id_is_not_used_twice_at_a_time() -> None:
    pending: Pending[str] = Pending()
    pending.ask(7, "fetch", now=0.0)
    with pytest.raises(ValueError, match="already open"):
        pending.ask(7, "other", now=0.0)


def test_requests_expire_after_thirty_seconds_and_late_answers_find_nobody() -> None:
    pending: Pending[str] = Pending()
    pending.ask(1, "old", now=0.0)
    pending.ask(2, "young", now=20.0)
    assert pending.expire(29.9) == []
    assert pending.expire(30.0) == [(1, "old")]
    assert pending.settle(1) is None
    assert pending.find(2) == "young"


def test_a_lost_socket_ends_every_request() -> None:
    pending: Pending[str] = Pending()
    pending.ask(1, "a", now=0.0)
    pending.ask(2, "b", now=0.0)
    assert pending.drop_all() == ["a", "b"]
    assert len(pending) == 0
