"""Heartbeats with an inventory: what a runner holds against what the database says it holds.

Renewing the lease is runners.services.sessions; this reconciles. It closes the hole of the lost
answer (a claim that never arrived) and lets a run survive a blip: a lost attempt that nobody
claimed again is adopted back. Called by the sockets at connect and with each beat.
"""

from collections.abc import Collection
from typing import Final
from uuid import uuid4

import msgspec

from mitosis_protocol.enums import ReportAnswer
from tasks import store
from tasks.dispatcher import answer_of
from tasks.services.failure import lost_report
from tasks.services.report import settle

# A claim answered this recently may still be on its way when the inventory was taken.
SETTLE_S: Final = 10.0


class Reconciled(msgspec.Struct, frozen=True):
    """What a runner has to know about the attempts it named."""

    kept: list[int] = []
    adopted: list[int] = []
    cancelled: list[int] = []  # stop them and report
    settled: list[int] = []  # their reports were taken: forget them
    revoked: list[int] = []  # not yours any more: stop them, report nothing
    missing: list[int] = []  # yours, but you did not name them: back in the queue


async def reconcile(
    *,
    runner_id: int,
    attempt_ids: Collection[int],
    assignment_id: int | None = None,
    settle_s: float = SETTLE_S,
) -> Reconciled:
    """Compare and repair; `settle_s` 0 at a connect with a clean start: nothing is on its way."""
    rows = await store.INVENTORY.fetch(
        store.inventory_params({runner_id: attempt_ids}, settle_s=settle_s)
    )
    piles: dict[str, list[int]] = {
        word: [] for word in ("kept", "cancel", "lost", "settled", "revoked", "missing")
    }
    for row in rows:
        piles[row.found].append(row.attempt_id)
    adopted, refused = await _adopt(runner_id, piles["lost"], assignment_id)
    await _requeue_missing(runner_id, piles["missing"])
    return Reconciled(
        kept=piles["kept"],
        adopted=adopted,
        cancelled=piles["cancel"],
        settled=piles["settled"],
        revoked=sorted(piles["revoked"] + refused),
        missing=piles["missing"],
    )


async def _adopt(
    runner_id: int, attempt_ids: list[int], assignment_id: int | None
) -> tuple[list[int], list[int]]:
    if not attempt_ids:
        return [], []
    rows = await store.ADOPT.fetch(store.adopt_params(runner_id, attempt_ids, assignment_id))
    adopted: list[int] = []
    refused: list[int] = []
    for attempt_id, row in zip(attempt_ids, rows, strict=True):
        answer = answer_of(row.answer)
        if answer in {ReportAnswer.OK, ReportAnswer.OK_DUPLICATE}:
            adopted.append(attempt_id)
        elif answer is not ReportAnswer.RETRY_LATER:
            refused.append(attempt_id)
        # Busy: neither; the next beat asks again.
    return adopted, refused


async def _requeue_missing(runner_id: int, attempt_ids: list[int]) -> None:
    if attempt_ids:
        reason = "its runner does not have it"
        await settle(
            [
                lost_report(
                    attempt_id=attempt_id, runner_id=runner_id, op_id=uuid4(), reason=reason
                )
                for attempt_id in attempt_ids
            ]
        )
