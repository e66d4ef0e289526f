"""The login throttle, on a real Redis, on a dead one, and in one process alone."""

import socket
import time
from pathlib import Path

import pytest
import redis
from django.conf import LazySettings

from accounts.throttle import (
    WINDOW_S,
    LocalCounter,
    LoginThrottle,
    RedisCounter,
    login_throttle,
    redis_counter,
)
from core.errors import Throttled


def guesses_until_refused(throttle: LoginThrottle, username: str = "ada") -> int:
    for count in range(50):
        try:
            throttle.attempt(ip="10.0.0.1", username=username)
        except Throttled:
            return count
    raise AssertionError("never refused")


def test_two_processes_share_the_count_in_redis(clean_redis: redis.Redis) -> None:
    one = LoginThrottle(RedisCounter(clean_redis), 10)
    two = LoginThrottle(RedisCounter(clean_redis), 10)
    for _ in range(5):
        one.attempt(ip="10.0.0.1", username="ada")
        two.attempt(ip="10.0.0.1", username="ada")
    with pytest.raises(Throttled) as refused:
        two.attempt(ip="10.0.0.1", username="ada")
    assert 1 <= refused.value.retry_after_s <= WINDOW_S


def test_keys_expire_and_do_not_show_what_was_typed(clean_redis: redis.Redis) -> None:
    LoginThrottle(RedisCounter(clean_redis), 10).attempt(ip=None, username="my secret")
    [key] = clean_redis.keys()
    assert b"secret" not in key
    assert 0 < clean_redis.ttl(key) <= WINDOW_S


def test_a_success_gives_the_window_back(clean_redis: redis.Redis) -> None:
    throttle = LoginThrottle(RedisCounter(clean_redis), 10)
    for _ in range(9):
        throttle.attempt(ip="10.0.0.1", username="ada")
    throttle.attempt(ip="10.0.0.1", username="ada").succeeded()
    assert guesses_until_refused(throttle) == 10


@pytest.mark.alone
def test_without_redis_each_process_still_counts_and_logins_stay_fast(tmp_path: Path) -> None:
    throttle = LoginThrottle(redis_counter(f"unix://{tmp_path}/nothing.sock"), 10)
    started = time.monotonic()
    throttle.attempt(ip="10.0.0.1", username="ada").succeeded()
    assert guesses_until_refused(throttle) == 10
    assert guesses_until_refused(throttle, "bob") == 10
    assert time.monotonic() - started < 0.5


@pytest.mark.alone
def test_a_hanging_redis_delays_one_login_briefly_and_the_next_not_at_all(tmp_path: Path) -> None:
    """A server that accepts connections and never answers."""
    path = f"{tmp_path}/hanging.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        counter = redis_counter(f"unix://{path}")
        started = time.monotonic()
        assert guesses_until_refused(LoginThrottle(counter, 5)) == 5
        assert time.monotonic() - started < 1
        counter.client.close()


def test_redis_is_used_again_once_it_is_back(clean_redis: redis.Redis, tmp_path: Path) -> None:
    now = [100.0]
    dead = redis_counter(f"unix://{tmp_path}/nothing.sock").client
    counter = RedisCounter(dead, LocalCounter(clock=lambda: now[0]))
    throttle = LoginThrottle(counter, 10)
    throttle.attempt(ip=None, username="ada")
    counter.client = clean_redis
    throttle.attempt(ip=None, username="ada")
    assert clean_redis.keys() == []
    now[0] += 5
    throttle.attempt(ip=None, username="ada")
    assert len(clean_redis.keys()) == 1


def test_local_windows_end_and_memory_is_bounded() -> None:
    now = [0.0]
    throttle = LoginThrottle(LocalCounter(clock=lambda: now[0]), 3)
    assert guesses_until_refused(throttle) == 3
    now[0] = WINDOW_S - 0.1
    assert guesses_until_refused(throttle) == 0
    now[0] = WINDOW_S + 0.1
    assert guesses_until_refused(throttle) == 3
    for n in range(10_100):
        throttle.attempt(ip="10.0.0.1", username=f"user{n}")
    assert len(throttle.counter._windows) <= 10_000  # type: ignore[attr-defined]


def test_the_limit_is_the_policys(settings: LazySettings, clean_redis: redis.Redis) -> None:
    throttle = login_throttle()
    assert throttle.limit == settings.MITOSIS.login_per_minute == 10
    assert guesses_until_refused(throttle) == 10
