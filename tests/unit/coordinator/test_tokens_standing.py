"""The memory of standings: how long a revoked token may still pass, and how large it grows."""

import threading

from accounts.identity import Standing, StandingCache

FIRST = Standing(id=1, generation=1, is_active=True)
SECOND = Standing(id=1, generation=2, is_active=True)


class HandClock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_an_entry_is_as_old_as_the_question_not_the_answer() -> None:
    clock = HandClock()
    cache = StandingCache(clock=clock)
    asked_at = clock()
    clock.now += 3  # a slow query
    cache.store("a", FIRST, asked_at=asked_at)
    clock.now += 1.9
    assert cache.find("a", max_age_s=5) == FIRST
    clock.now += 0.1
    assert cache.find("a", max_age_s=5) is None


def test_a_new_answer_replaces_and_forget_forgets() -> None:
    clock = HandClock()
    cache = StandingCache(clock=clock)
    cache.store("a", FIRST, asked_at=clock())
    cache.store("a", SECOND, asked_at=clock())
    assert cache.find("a", max_age_s=5) == SECOND
    cache.forget("a")
    cache.forget("a")
    assert cache.find("a", max_age_s=5) is None


def test_the_oldest_entries_make_room() -> None:
    clock = HandClock()
    cache = StandingCache(clock=clock, max_entries=3)
    for key in "abcd":
        cache.store(key, FIRST, asked_at=clock())
    assert [cache.find(key, max_age_s=5) for key in "abcd"] == [None, FIRST, FIRST, FIRST]


def test_zero_seconds_means_no_memory() -> None:
    cache = StandingCache(clock=HandClock())
    cache.store("a", FIRST, asked_at=100.0)
    assert cache.find("a", max_age_s=0) is None


def test_threads_may_share_it() -> None:
    cache = StandingCache(max_entries=50)

    def hammer(start: int) -> None:
        for n in range(2000):
            cache.store((start + n) % 90, FIRST, asked_at=cache.clock())
            cache.find(n % 90, max_age_s=5)
            cache.forget((n * 7) % 90)

    threads = [threading.Thread(target=hammer, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=20)
    assert all(not thread.is_alive() for thread in threads)
