"""Upload addresses for runners, in batches: each request stands for itself, the charge is exact."""

import asyncio
import threading
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any
from urllib.parse import urlsplit

import pytest
from django.db import connection, transaction

from core.errors import (
    DatabaseUnavailable,
    DomainError,
    InvalidInput,
    NotFound,
    QuotaExceeded,
    StaleAttempt,
)
from mitosis_protocol.enums import ArtifactContentType
from tasks import store
from tasks.dispatcher import Dispatcher, get_dispatcher
from tasks.rows import SettleOp, UploadRequest, UploadRow
from tasks.services.artifacts import IssuedUpload
from tasks.services.attempt_uploads import issue_upload, issue_upload_sync
from tasks.storage import artifact_key
from tests.property.lab import Lab, lab_fixture, on_pool, query

lab = pytest.fixture(name="lab")(lab_fixture)
pytestmark = pytest.mark.usefixtures("services")

RESULT, STD_LOG = ArtifactContentType.RESULT, ArtifactContentType.STD_LOG


def held(lab: Lab, count: int) -> list[int]:
    """Attempts in the hands of runner 0."""
    lab.submit(count)
    return [task.attempt_id for task in lab.claim(lab.runner_ids[0], want=count).tasks]


def used(lab: Lab) -> int:
    [row] = query("SELECT storage_used AS n FROM groups WHERE id = %s", lab.group_id)
    return int(row["n"])


def kept(lab: Lab) -> list[int]:
    """Sizes of the archives that are paid for."""
    rows = query("SELECT size FROM artifacts WHERE group_id = %s ORDER BY id", lab.group_id)
    return [row["size"] for row in rows]


def set_quota(lab: Lab, quota: int) -> None:
    query("UPDATE groups SET storage_quota = %s WHERE id = %s RETURNING 1", quota, lab.group_id)


def asked(
    lab: Lab, attempt: int, size: int, kind: ArtifactContentType = RESULT
) -> Coroutine[Any, Any, IssuedUpload]:
    return issue_upload(
        attempt_id=attempt, runner_id=lab.runner_ids[0], content_type=kind, size=size
    )


def all_at_once(*calls: Coroutine[Any, Any, IssuedUpload]) -> list[IssuedUpload | DomainError]:
    async def scenario() -> list[Any]:
        return await asyncio.gather(*calls, return_exceptions=True)

    return on_pool(scenario)


def at_one_blow(lab: Lab, *sizes: tuple[int, int]) -> list[str]:
    """The words of one statement for (attempt, size)."""
    requests = [UploadRequest(a, lab.runner_ids[0], RESULT, size) for a, size in sizes]
    return [row.answer for row in lab.fetch(store.ISSUE_UPLOADS, store.upload_params(requests))]


def test_many_uploads_share_few_statements_and_each_gets_its_own_address(lab: Lab) -> None:
    attempts = held(lab, 12)
    sizes: list[int] = []

    async def scenario() -> list[IssuedUpload]:
        dispatcher = get_dispatcher()
        issue = dispatcher.uploads._run

        async def counted(requests: Sequence[UploadRequest]) -> Sequence[UploadRow]:
            sizes.append(len(requests))
            return await issue(requests)

        dispatcher.uploads._run = counted
        kinds = [(a, kind) for a in attempts for kind in (RESULT, STD_LOG)]
        return await asyncio.gather(*[asked(lab, a, 10, kind) for a, kind in kinds])

    issued = on_pool(scenario)
    assert len(sizes) <= 3
    tasks = {row["attempt_id"]: row for row in query("SELECT * FROM active_tasks")}
    expected = [
        artifact_key(tasks[a]["uuid"], 1, kind) for a in attempts for kind in (RESULT, STD_LOG)
    ]
    assert [urlsplit(one.url).path.split("/", 2)[2] for one in issued] == expected
    assert sorted(row["key"] for row in query("SELECT key FROM artifacts")) == sorted(expected)
    assert used(lab) == 240 == sum(kept(lab))


def test_a_quota_is_met_in_order_and_never_passed(lab: Lab) -> None:
    attempts = held(lab, 3)
    set_quota(lab, 100)
    assert at_one_blow(lab, *zip(attempts, (60, 60, 60), strict=True)) == ["ok", "quota", "quota"]
    assert used(lab) == 60 == sum(kept(lab))


def test_a_small_archive_that_came_beside_a_large_one_is_taken_alone(lab: Lab) -> None:
    """In one statement the large one stands in its way; by itself it fits."""
    attempts = held(lab, 3)
    set_quota(lab, 100)
    answers = all_at_once(
        asked(lab, attempts[0], 90), asked(lab, attempts[1], 50), asked(lab, attempts[2], 10)
    )
    assert [type(answer) for answer in answers] == [IssuedUpload, QuotaExceeded, IssuedUpload]
    assert used(lab) == 100 == sum(kept(lab))


def test_the_same_request_twice_in_one_batch_is_charged_once(lab: Lab) -> None:
    [attempt] = held(lab, 1)
    assert at_one_blow(lab, (attempt, 40), (attempt, 40)) == ["ok", "busy"]
    first, second = all_at_once(asked(lab, attempt, 40), asked(lab, attempt, 70))
    assert isinstance(first, IssuedUpload)
    assert isinstance(second, IssuedUpload)
    assert first.exists
    assert second.exists
    assert used(lab) == 70 == sum(kept(lab))


def test_what_a_lost_attempt_was_charged_is_given_back_once(lab: Lab) -> None:
    runner = lab.runner_ids[0]
    [lost] = held(lab, 1)
    all_at_once(asked(lab, lost, 30), asked(lab, lost, 20, STD_LOG))
    lab.report(SettleOp.RELEASE, lost, runner)
    attempt = lab.claim_attempt(runner)
    set_quota(lab, 50)  # full, but for what comes back
    answers = all_at_once(asked(lab, attempt, 25), asked(lab, attempt, 25, STD_LOG))
    assert [type(answer) for answer in answers] == [IssuedUpload, IssuedUpload]
    assert kept(lab) == [0, 0, 25, 25]
    assert used(lab) == 50


def test_a_request_that_is_refused_gives_nothing_back(lab: Lab) -> None:
    runner = lab.runner_ids[0]
    [lost] = held(lab, 1)
    all_at_once(asked(lab, lost, 30))
    lab.report(SettleOp.RELEASE, lost, runner)
    attempt = lab.claim_attempt(runner)
    set_quota(lab, 50)
    assert at_one_blow(lab, (attempt, 51)) == ["quota"]
    assert (kept(lab), used(lab)) == ([30], 30)


def test_refusals_say_why(lab: Lab) -> None:
    mine, over, foreign = held(lab, 3)
    runner, stranger = lab.runner_ids
    lab.commit(over, runner)
    with pytest.raises(StaleAttempt):
        issue_upload_sync(attempt_id=over, runner_id=runner, content_type=RESULT, size=1)
    for attempt, who in ((foreign, stranger), (2**62, runner)):
        with pytest.raises(NotFound):
            issue_upload_sync(attempt_id=attempt, runner_id=who, content_type=RESULT, size=1)
    with pytest.raises(QuotaExceeded):
        issue_upload_sync(attempt_id=mine, runner_id=runner, content_type=RESULT, size=2**63 - 1)
    query("UPDATE groups SET state = 1 WHERE id = %s RETURNING 1", lab.group_id)
    with pytest.raises(InvalidInput, match="not active"):
        issue_upload_sync(attempt_id=mine, runner_id=runner, content_type=RESULT, size=1)
    assert (kept(lab), used(lab)) == ([], 0)


@pytest.mark.parametrize("what", ["groups", "artifacts"])
def test_a_row_that_somebody_holds_is_not_waited_for(lab: Lab, what: str) -> None:
    """Of the archives it is the lost attempt's: it would stay charged for if it were passed by."""
    runner = lab.runner_ids[0]
    [lost] = held(lab, 1)
    all_at_once(asked(lab, lost, 10))
    lab.report(SettleOp.RELEASE, lost, runner)
    attempt = lab.claim_attempt(runner)
    row_id = lab.group_id if what == "groups" else query("SELECT id FROM artifacts")[0]["id"]
    is_held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with transaction.atomic():
            query(f"SELECT id FROM {what} WHERE id = %s FOR UPDATE", row_id)
            is_held.set()
            release.wait(30)
        connection.close()

    thread = threading.Thread(target=hold)
    thread.start()
    assert is_held.wait(30)
    try:
        assert at_one_blow(lab, (attempt, 20)) == ["busy"]
        [answer] = all_at_once(asked(lab, attempt, 20))
        assert isinstance(answer, DatabaseUnavailable)
    finally:
        release.set()
        thread.join()
    assert (kept(lab), used(lab)) == ([10], 10)
    [answer] = all_at_once(asked(lab, attempt, 20))
    assert isinstance(answer, IssuedUpload)
    assert (kept(lab), used(lab)) == ([0, 20], 20)


def test_two_processes_at_once_charge_every_archive_once(lab: Lab) -> None:
    attempts = held(lab, 20)
    runner = lab.runner_ids[0]

    async def scenario() -> list[UploadRow]:
        # Two dispatchers stand for two coordinator processes on one database.
        ones = [Dispatcher(backoff_s=1, backoff_max_s=1) for _ in range(2)]
        try:
            return await asyncio.gather(
                *[
                    one.uploads.submit(UploadRequest(a, runner, RESULT, 5))
                    for a in attempts
                    for one in ones
                ]
            )
        finally:
            for one in ones:
                await one.close()

    rows = on_pool(scenario)
    assert {row.answer for row in rows} == {"ok"}
    assert used(lab) == 100 == sum(kept(lab))
    assert len(kept(lab)) == 20


def test_an_attempt_of_a_suite_uploads_as_any_other(lab: Lab) -> None:
    lab.submit(1, in_suite=True)
    [task] = lab.claim_from_suite(lab.runner_ids[0]).tasks
    [answer] = all_at_once(asked(lab, task.attempt_id, 7))
    assert isinstance(answer, IssuedUpload)
    assert not answer.exists
    assert uuid.UUID(answer.url.split("/")[4]) == task.uuid
