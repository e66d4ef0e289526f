"""THE hot SQL: one Statement per statement of tasks/sql and the parameters each one takes.

No policy: what to ask, when to try again and what an answer means is decided by tasks.services and
tasks.dispatcher, the only callers. `STATEMENT.fetch(params)` is one transaction on the async pool,
`STATEMENT.fetch_sync(params)` is the same text on Django's connection.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from django.db import OperationalError, connection

from tasks.rows import (
    AnswerRow,
    ClaimRequest,
    ClaimRow,
    CountRow,
    DownstreamRow,
    EventRow,
    Horizon,
    IdRow,
    InventoryRow,
    Report,
    Reserved,
    SettleRow,
    StartRow,
    SuiteCounts,
    TaskRef,
    TrimRow,
    UploadRequest,
    UploadRow,
    Upstream,
)
from tasks.rows_suites import RerunCandidate, RerunEdge, RerunRef
from tasks.statements import Params, Statement, array, as_unavailable
from tasks.storage import artifact_key_pattern

CLAIM: Final = Statement(ClaimRow, "claim/groups", "claim/tail")
START: Final = Statement(StartRow, "start")
FINISH: Final = Statement(AnswerRow, "finish")
SETTLE: Final = Statement(SettleRow, "settle/report", "settle/tail")
CANCEL: Final = Statement(SettleRow, "settle/cancel", "settle/tail")
REAP: Final = Statement(SettleRow, "settle/reap", "settle/tail")
END_OVERDUE: Final = Statement(SettleRow, "settle/overdue", "settle/tail")
END_STILLBORN: Final = Statement(SettleRow, "settle/stillborn", "settle/tail")
LEASE_CENSUS: Final = Statement(CountRow, "census")
ISSUE_UPLOADS: Final = Statement(UploadRow, "uploads/issue")
INVENTORY: Final = Statement(InventoryRow, "inventory")
ADOPT: Final = Statement(AnswerRow, "adopt")
INSERT_TASKS: Final = Statement(TaskRef, "submit/insert")
DRAW_IDS: Final = Statement(IdRow, "submit/ids")
RESERVE: Final = Statement(Reserved, "submit/reserve")
COPIED: Final = Statement(CountRow, "submit/copied")
HOLD_UPSTREAM: Final = Statement(Upstream, "submit/hold_upstream")
FIND_ENDED: Final = Statement(Upstream, "submit/find_ended")
INSERT_EDGES: Final = Statement(CountRow, "submit/insert_edges")
INSERT_DOWNSTREAM: Final = Statement(DownstreamRow, "submit/downstream")
CHANGE: Final = Statement(IdRow, "change")
RELABEL: Final = Statement(IdRow, "relabel")
APPEND_PROGRESS: Final = Statement(AnswerRow, "events/append")
EVENTS_OF_TASK: Final = Statement(EventRow, "events/of_task")
EVENTS_OF_SUITE: Final = Statement(EventRow, "events/of_suite")
EVENTS_WINDOW: Final = Statement(EventRow, "events/window")
EVENT_HORIZON: Final = Statement(Horizon, "events/horizon")
TRIM_EVENTS: Final = Statement(TrimRow, "events/trim")
SUITE_COUNTS: Final = Statement(SuiteCounts, "counts/of_suites")
FOLD_COUNTS: Final = Statement(CountRow, "counts/fold")
SUITE_CAP: Final = Statement(CountRow, "suite/cap")
CLAIM_FOR_SUITE: Final = Statement(ClaimRow, "suite/claim", "claim/tail")
SUITE_LEFTOVERS: Final = Statement(IdRow, "suite/leftovers")
RERUN_CANDIDATES: Final = Statement(RerunCandidate, "suite/rerun_candidates")
RERUN_EDGES: Final = Statement(RerunEdge, "suite/rerun_edges")
RERUN: Final = Statement(RerunRef, "suite/rerun")


def claim_params(requests: Sequence[ClaimRequest]) -> Params:
    return {
        "runner_ids": array(request.runner_id for request in requests),
        "session_epochs": array(request.session_epoch for request in requests),
        "claim_ids": array(request.claim_id for request in requests),
        "wants": array(request.want for request in requests),
        "exclusive": array(request.is_exclusive for request in requests),
    }


def settle_params(reports: Sequence[Report], *, backoff_s: float, backoff_max_s: float) -> Params:
    return {
        "attempt_ids": array(report.attempt_id for report in reports),
        "runner_ids": array(report.runner_id for report in reports),
        "ops": array(report.op.value for report in reports),
        "op_ids": array(report.op_id for report in reports),
        "outcomes": array(
            None if report.outcome is None else report.outcome.code for report in reports
        ),
        "exit_statuses": array(report.exit_status for report in reports),
        "msgs": array(None if report.msg is None else report.msg.code for report in reports),
        "reasons": [report.reason for report in reports],
        "results": [report.result for report in reports],
        "charges": array(report.charge for report in reports),
        "excludes": array(report.exclude for report in reports),
        "death_limits": array(report.death_limit for report in reports),
        "worker_ids": array(report.worker_id for report in reports),
        "backoff_s": backoff_s,
        "backoff_max_s": backoff_max_s,
    }


def start_params(held: Iterable[tuple[int, int]]) -> Params:
    """Pairs of attempt and runner."""
    pairs = list(held)
    return {
        "attempt_ids": array(attempt_id for attempt_id, _ in pairs),
        "runner_ids": array(runner_id for _, runner_id in pairs),
    }


def finish_params(held: Iterable[tuple[int, int, bool]]) -> Params:
    """Attempt, runner, and whether the runner reports Cancel instead of Finish."""
    items = list(held)
    return {
        "attempt_ids": array(attempt_id for attempt_id, _, _ in items),
        "runner_ids": array(runner_id for _, runner_id, _ in items),
        "cancelled": array(is_cancelled for _, _, is_cancelled in items),
    }


def upload_params(requests: Sequence[UploadRequest]) -> Params:
    return {
        "attempt_ids": array(request.attempt_id for request in requests),
        "runner_ids": array(request.runner_id for request in requests),
        "content_types": array(request.content_type.code for request in requests),
        "sizes": array(request.size for request in requests),
        "key_patterns": [artifact_key_pattern(request.content_type) for request in requests],
    }


def adopt_params(runner_id: int, attempt_ids: Collection[int], assignment_id: int | None) -> Params:
    return {
        "attempt_ids": array(attempt_ids),
        "runner_ids": array(runner_id for _ in attempt_ids),
        "assignment_ids": array(assignment_id for _ in attempt_ids),
    }


def inventory_params(said: Mapping[int, Collection[int]], *, settle_s: float) -> Params:
    """`said`: runner to the attempts it says it holds."""
    return {
        "runner_ids": array(said),
        "said_runner_ids": array(
            runner_id for runner_id, attempts in said.items() for _ in attempts
        ),
        "said_attempt_ids": array(
            attempt_id for attempts in said.values() for attempt_id in attempts
        ),
        "settle_s": settle_s,
    }


def progress_params(items: Sequence[tuple[int, int, str]]) -> Params:
    """Attempt, runner, and the event's data as JSON."""
    return {
        "attempt_ids": array(attempt_id for attempt_id, _, _ in items),
        "runner_ids": array(runner_id for _, runner_id, _ in items),
        "data": [data for _, _, data in items],
    }


# The order in which COPY receives the columns of a new task; the rest has defaults.
COPY_COLUMNS: Final = (
    "id",
    "uuid",
    "group_id",
    "creator_id",
    "number",
    "suite_id",
    "priority",
    "tags",
    "labels",
    "lane",
    "timeout_s",
    "spec",
    "state",
    "waiting_on",
    "dependents",
    "max_failures",
    "max_attempts",
    "backoff_s",
    "backoff_max_s",
    "retry_on",
    "concurrency_key",
    "affinity",
    "resource_refs",
    "middleware",
    "limits",
    "pinned_runner_id",
)


def copy_tasks(
    rows: Iterable[tuple[object, ...]], *, ids: Sequence[int], suite_id: int | None
) -> None:
    """Write rows in COPY_COLUMNS order with COPY, then their events and counts.

    On Django's connection, inside the caller's transaction.
    """
    columns = ", ".join(COPY_COLUMNS)
    try:
        with (
            connection.cursor() as cursor,
            cursor.copy(f"COPY active_tasks ({columns}) FROM STDIN") as copy,
        ):
            for row in rows:
                copy.write_row(row)
    except OperationalError as error:
        raise as_unavailable(error) from error
    COPIED.fetch_sync({"ids": array(ids), "suite_id": suite_id})
