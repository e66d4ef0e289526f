"""How the console names causes, packs lanes and writes values: pure parts, no database."""

from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from django.http import QueryDict
from hypothesis import given
from hypothesis import strategies as st

from console.filters import cursor_text, failure_query
from console.selectors.failures import cause_of
from console.selectors.suites import Pace
from console.selectors.throughput import Minute, per_minute
from console.selectors.timeline import Attempt, arrange
from console.templatetags.console_format import bar, number, size, span
from mitosis_protocol.enums import Outcome, TaskResultMessage

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOSTS = [uuid4(), uuid4()]


@pytest.mark.parametrize(
    ("outcome", "status", "msg", "reason", "cause"),
    [
        (Outcome.FAILED, 3 << 8, None, None, "exit status 3"),
        (Outcome.FAILED, 11, None, None, "killed by SIGSEGV"),
        (Outcome.FAILED, 64, None, None, "killed by SIGRTMAX"),
        (Outcome.FAILED, 0x7F, None, None, "exit status 127"),  # a plain code of an old worker
        (Outcome.FAILED, None, None, "gave up: 6 crashes", "gave up"),
        (Outcome.FAILED, None, None, None, "no result"),
        (Outcome.FAILED, 0, TaskResultMessage.RESOURCE_NOT_FOUND.code, None, "ResourceNotFound"),
        (Outcome.TIMEOUT, 9, None, None, "timed out"),
        (Outcome.OOM, 9, None, None, "out of memory"),
    ],
)
def test_causes_are_what_people_call_them(
    outcome: Outcome, status: int | None, msg: int | None, reason: str | None, cause: str
) -> None:
    assert cause_of(outcome, status, msg, reason) == cause


@given(st.integers(-(2**31), 2**31 - 1))
def test_every_status_has_a_cause(status: int) -> None:
    assert cause_of(Outcome.FAILED, status, None, None)


def attempt(host: UUID, began: float, ended: float | None) -> Attempt:
    end = None if ended is None else NOON + timedelta(seconds=ended)
    return Attempt(uuid4(), host, NOON + timedelta(seconds=began), end, 0, 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(HOSTS), st.integers(0, 50), st.one_of(st.none(), st.integers(0, 20))
        ),
        min_size=1,
        max_size=40,
    )
)
def test_no_two_runs_share_a_lane_at_a_time(
    runs: list[tuple[UUID, int, int | None]],
) -> None:
    attempts = [attempt(h, b, None if d is None else b + d) for h, b, d in runs]
    timeline = arrange(attempts, NOON + timedelta(seconds=100))
    drawn = [one for lane in timeline.lanes for one in lane.attempts]
    assert len(drawn) == len(attempts) or timeline.hidden_lanes
    for lane in timeline.lanes:
        for before, after in zip(lane.attempts, lane.attempts[1:], strict=False):
            assert before.ended_at is not None
            assert before.ended_at <= after.began_at
        assert {one.runner_uuid for one in lane.attempts} == {lane.runner_uuid}


def test_a_cursor_survives_the_address() -> None:
    moment = NOON + timedelta(microseconds=123457)
    _, cursor = failure_query(QueryDict(f"before={cursor_text(moment, 42)}"))
    assert (cursor.at, cursor.id) == (moment, 42)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "200 ms"), (3.14, "3.1 s"), (59, "59 s"), (61, "1 m 1 s"), (3700, "1 h 1 m"),
     (90000, "1 d 1 h")],
)  # fmt: skip
def test_spans_have_two_units(seconds: float, text: str) -> None:
    assert span(timedelta(seconds=seconds)) == text


def test_numbers_and_drawings() -> None:
    assert number(1234567) == "1\u202f234\u202f567"
    assert size(1536) == "1.5 KiB"
    assert 'width="500.0"' in bar(5, 0, 0, 10)
    assert Pace(2.0).eta(10) == timedelta(seconds=5)
    assert Pace(None).eta(10) is None


def rate(*ended: int, into_the_last_s: float) -> float:
    """Of so many tasks in each minute, the last of which is not over."""
    minutes = [Minute(NOON + timedelta(minutes=n), count, 0) for n, count in enumerate(ended)]
    return per_minute(minutes, minutes[-1].at + timedelta(seconds=into_the_last_s))


def test_the_rate_is_that_of_the_newest_minutes_with_work() -> None:
    assert rate(0, 0, 0, into_the_last_s=30) == 0
    assert rate(900, 0, 0, 0, 0, 0, 0, into_the_last_s=30) == 0, "too long ago"
    assert rate(900, 60, 60, 60, 60, 60, 30, into_the_last_s=30) == 60
    assert rate(0, 0, 0, 30, into_the_last_s=30) == 60, "began within this minute"
    assert rate(0, 10, into_the_last_s=1) == 30, "no leap from one second to a minute"
