"""The rate of requests per user: bursts pass, floods wait, processes share, nobody else notices."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import redis
from django.test import Client
from redis.backoff import NoBackoff
from redis.retry import Retry

from accounts.request_rate import LOT, LocalBuckets, Rate, SharedBuckets, shared_buckets
from mitosis_site.policy import Policy
from tests.integration.workers.people import Caller, caller_of, new_user

SLOW = Rate(per_s=0.001, burst=30)


@pytest.fixture
def strict(settings: Any, clean_redis: redis.Redis) -> None:
    """Five requests at once, then next to nothing."""
    settings.MITOSIS = replace(settings.MITOSIS, user_requests_per_s=1, user_requests_saved_s=5)
    shared_buckets.cache_clear()


def statuses(caller: Caller, count: int, path: str = "/auth") -> list[int]:
    return [caller.call("GET", path).status_code for _ in range(count)]


def test_the_default_lets_bulk_tools_pass() -> None:
    policy = Policy()
    assert policy.user_requests_per_s == 50
    assert policy.user_requests_per_s * policy.user_requests_saved_s >= 3000


def test_a_flood_is_answered_with_429_and_when_to_come_back(db: None, strict: None) -> None:
    ada, bob = caller_of(new_user("ada")), caller_of(new_user("bob"))
    told = statuses(ada, 8)
    assert told[:5] == [200] * 5
    assert 429 in told[5:]
    answer = ada.call("GET", "/users/groups")
    assert answer.status_code == 429
    assert int(answer.headers["Retry-After"]) >= 1
    assert answer.json()["code"] == "request.throttled"
    assert answer.json()["retryable"] is True
    assert statuses(bob, 3) == [200] * 3  # a neighbour has a bucket of its own


def test_a_browser_session_shares_the_bucket_of_its_user(db: None, strict: None) -> None:
    ada = caller_of(new_user("ada"))
    assert ada.user is not None
    browser = Client()
    browser.force_login(ada.user, "accounts.backends.ConsoleBackend")
    assert statuses(ada, 5) == [200] * 5
    assert 429 in [browser.get("/auth").status_code for _ in range(3)]


def test_callers_without_an_account_are_not_counted(db: None, strict: None) -> None:
    nobody = Caller()
    assert set(statuses(nobody, 12)) == {400}


def test_processes_share_one_bucket_and_hold_at_most_a_lot_each(clean_redis: redis.Redis) -> None:
    two = [SharedBuckets(clean_redis), SharedBuckets(clean_redis)]
    granted = 0
    for turn in range(60):
        granted += two[turn % 2].take(1, SLOW) == 0.0
    assert granted == 30
    assert two[0].take(1, SLOW) > 0
    assert two[0].take(2, SLOW) == 0.0  # another user


def test_most_requests_ask_nobody(clean_redis: redis.Redis) -> None:
    buckets = SharedBuckets(clean_redis)
    wide = Rate(per_s=100, burst=1000)
    before = clean_redis.info("commandstats").get("cmdstat_eval", {}).get("calls", 0)
    for _ in range(100):
        assert buckets.take(1, wide) == 0.0
    after = clean_redis.info("commandstats")["cmdstat_eval"]["calls"]
    assert after - before == 100 // LOT


def test_a_bucket_fills_again_and_its_key_goes_away(clean_redis: redis.Redis) -> None:
    quick = Rate(per_s=200, burst=20)
    buckets = SharedBuckets(clean_redis)
    waits = [buckets.take(1, quick) for _ in range(40)]
    wait_s = max(waits)
    assert 0 < wait_s <= 0.05
    assert 0 < clean_redis.ttl("mitosis:rate:1") <= 2
    time.sleep(0.1)
    assert buckets.take(1, quick) == 0.0


def test_without_redis_each_process_still_counts(tmp_path: Path) -> None:
    away = redis.Redis(unix_socket_path=str(tmp_path / "nothing.sock"), retry=Retry(NoBackoff(), 0))
    buckets = SharedBuckets(away)
    started = time.monotonic()
    assert [buckets.take(1, SLOW) == 0.0 for _ in range(40)].count(True) == 30
    assert time.monotonic() - started < 5


def test_local_buckets_fill_with_time_and_memory_is_bounded() -> None:
    now = [0.0]
    buckets = LocalBuckets(clock=lambda: now[0])
    rate = Rate(per_s=2, burst=2)
    assert [buckets.take(1, rate) for _ in range(3)] == [0.0, 0.0, 0.5]
    now[0] = 0.5
    assert [buckets.take(1, rate) for _ in range(2)] == [0.0, 0.5]
    for user_id in range(10_500):
        buckets.take(user_id, rate)
    assert len(buckets._levels) == 10_000
