"""Heartbeats of many managers in one go: leases, engagements, inventories, duties.

Called by the manager socket. A batch costs three to five statements whatever its size; only what
an inventory shows to be wrong is repaired one by one. A beat of an older session changes nothing
and raises Superseded.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final
from uuid import UUID
from weakref import WeakKeyDictionary

import msgspec
from django.conf import settings

from core.errors import InvalidInput, Superseded
from managers.services.early_end import close_emptied_suites
from managers.services.early_pass import close_idle_managers
from managers.services.heartbeat import Beat, metrics_text, record_beats
from managers.services.session_duty import Duty, Said, advance_engagements, read_duties
from mitosis_protocol.enums import ManagerState
from tasks import store
from tasks.batcher import Batcher
from tasks.services.heartbeat import SETTLE_S, Reconciled, reconcile
from tasks.statements import Statement, array

MAX_BEATS: Final = 256  # of one batch; metrics are 64 KiB at most, usually 1


class CancelRow(msgspec.Struct, frozen=True):
    runner_id: int
    uuid: UUID


class ManagerBeat(msgspec.Struct, frozen=True, kw_only=True):
    """One heartbeat; `inventory` None says nothing about what the manager holds."""

    manager_id: int
    session_epoch: int
    state: ManagerState
    metrics: dict[str, object] | None = None
    config_version: int | None = None
    assignment_id: int | None = None
    inventory: list[int] | None = None


class Answered(msgspec.Struct, frozen=True):
    """None of it for a session that was superseded. `stop` are tasks to cancel, by uuid."""

    duty: Duty | None
    held: Reconciled = Reconciled()
    stop: list[UUID] = []


CANCELS: Final = Statement(CancelRow, "suite/cancels")
_batchers: WeakKeyDictionary[asyncio.AbstractEventLoop, Batcher[ManagerBeat, Answered]] = (
    WeakKeyDictionary()
)


async def beat(said: ManagerBeat) -> tuple[Duty, Answered]:
    """Renew the lease and reconcile. Raises InvalidInput and Superseded."""
    _check(said)
    answered = await _batcher().submit(said)
    if answered.duty is None:
        raise Superseded("a newer session of this manager took over")
    return answered.duty, answered


def _check(said: ManagerBeat) -> None:
    """What would fail the whole batch must not get into it."""
    if said.state is ManagerState.OFFLINE:
        raise InvalidInput("state: Offline is the coordinator's verdict")
    try:
        metrics_text(said.metrics)
    except ValueError as error:
        raise InvalidInput("metrics: a number is infinite") from error


async def close_manager_beats() -> None:
    """Called by the lifespan before the pool closes."""
    await close_idle_managers()
    await close_emptied_suites()
    batcher = _batchers.pop(asyncio.get_running_loop(), None)
    if batcher is not None:
        await batcher.close()


def _batcher() -> Batcher[ManagerBeat, Answered]:
    loop = asyncio.get_running_loop()
    if loop not in _batchers:
        _batchers[loop] = Batcher(_run, is_final=lambda _: True, max_weight=MAX_BEATS)
    return _batchers[loop]


async def _run(beats: Sequence[ManagerBeat]) -> list[Answered]:
    newest: dict[int, ManagerBeat] = {}
    for said in sorted(beats, key=lambda one: one.session_epoch):
        newest[said.manager_id] = said
    leases = [_lease(said) for said in newest.values()]
    renewed = await record_beats(leases, ttl_s=settings.MITOSIS.lease_ttl_s)
    alive = [said for said in newest.values() if said.manager_id in renewed]
    await advance_engagements(
        [Said(said.manager_id, said.state, said.assignment_id) for said in alive]
    )
    duties = await read_duties(renewed)
    held = await _reconcile(alive, duties)
    stop = await _stops([said.manager_id for said in alive if said.inventory is None])
    return [
        Answered(
            # Two sessions of one manager in a batch: only the one that was renewed counts.
            duty=duties.get(said.manager_id) if _is_renewed(said, newest, renewed) else None,
            held=held.get(said.manager_id, Reconciled()),
            stop=stop.get(said.manager_id, []),
        )
        for said in beats
    ]


def _is_renewed(
    said: ManagerBeat, newest: dict[int, ManagerBeat], renewed: Mapping[int, object]
) -> bool:
    counted = newest[said.manager_id]
    return said.manager_id in renewed and counted.session_epoch == said.session_epoch


def _lease(said: ManagerBeat) -> Beat:
    return Beat(
        manager_id=said.manager_id,
        session_epoch=said.session_epoch,
        state=said.state,
        metrics=said.metrics,
        config_version=said.config_version,
    )


async def _reconcile(
    beats: Sequence[ManagerBeat], duties: dict[int, Duty]
) -> dict[int, Reconciled]:
    named = {said.manager_id: said.inventory for said in beats if said.inventory is not None}
    if not named:
        return {}
    rows = await store.INVENTORY.fetch(store.inventory_params(named, settle_s=SETTLE_S))
    piles: dict[int, dict[str, list[int]]] = {manager_id: {} for manager_id in named}
    for row in rows:
        piles[row.runner_id].setdefault(row.found, []).append(row.attempt_id)
    return {
        manager_id: await _settle_piles(manager_id, found, named[manager_id], duties)
        for manager_id, found in piles.items()
    }


async def _settle_piles(
    manager_id: int, found: dict[str, list[int]], said: list[int], duties: dict[int, Duty]
) -> Reconciled:
    if found.get("lost") or found.get("missing"):
        duty = duties.get(manager_id)
        engaged = None if duty is None else duty.engaged
        return await reconcile(
            runner_id=manager_id,
            attempt_ids=said,
            assignment_id=None if engaged is None else engaged.assignment_id,
        )
    return Reconciled(
        kept=found.get("kept", []),
        cancelled=found.get("cancel", []),
        settled=found.get("settled", []),
        revoked=found.get("revoked", []),
    )


async def _stops(manager_ids: Sequence[int]) -> dict[int, list[UUID]]:
    if not manager_ids:
        return {}
    found: dict[int, list[UUID]] = {}
    for row in await CANCELS.fetch({"runner_ids": array(manager_ids)}):
        found.setdefault(row.runner_id, []).append(row.uuid)
    return found
