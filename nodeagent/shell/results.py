"""The outbox as effects and events: store, sync and send, forget.

Inserts of one round of events share a transaction. At most one sync runs, in a thread; what is
queued meanwhile shares the next one. Made by agent.
"""

import asyncio
from collections.abc import Callable, Mapping

import structlog

from mitosis_protocol.faults import afault, fault
from mitosis_protocol.from_manager import ReportTasks
from nodeagent import effects, events
from nodeagent.effects import Effect
from nodeagent.errors import HostUnusable
from nodeagent.events import Event
from nodeagent.outbox import Outbox, OutboxEntry
from nodeagent.shell.correspondence import Correspondence
from nodeagent.shell.mailbox import Handler
from nodeagent.worker.threads import run_blocking

log = structlog.stdlib.get_logger(__name__)


class Results:
    """`run` is a task of the agent for as long as results may come."""

    def __init__(
        self, post: Callable[[Event], None], outbox: Outbox, correspondence: Correspondence
    ) -> None:
        self._post = post
        self._outbox = outbox
        self._correspondence = correspondence
        self._to_store: list[OutboxEntry] = []
        self._to_send: list[tuple[int, ReportTasks]] = []
        self._has_work = asyncio.Event()

    def handlers(self) -> Mapping[type[Effect], Handler]:
        return {
            effects.StoreResult: self._on_store,
            effects.ForgetResults: self._on_forget,
            effects.SyncAndSend: self._on_sync_and_send,
        }

    def store_collected(self) -> None:
        """At the end of a round of events; the worker is released by what follows."""
        entries, self._to_store = self._to_store, []
        if not entries:
            return
        fault("finish.after_exit_before_outbox")
        try:
            self._outbox.add(entries)
        except HostUnusable as error:
            log.warning("outbox.refused", results=len(entries), error=str(error))
            for entry in entries:
                self._post(events.ResultRefused(entry.op_id, str(error)))
            return
        for entry in entries:
            self._post(events.ResultStored(entry.op_id))

    async def run(self) -> None:
        """Sync and send what is queued, group by group, until cancelled."""
        while True:
            await self._has_work.wait()
            self._has_work.clear()
            group, self._to_send = self._to_send, []
            try:
                await run_blocking(self._outbox.sync)
            except HostUnusable as error:
                log.warning("outbox.not_synced", error=str(error))
                for _, message in group:
                    self._correspondence.give_up(message.request_id)
                continue
            await afault("finish.after_outbox_before_send")
            for session, message in group:
                if session == self._correspondence.session:
                    self._correspondence.send(message)

    def _on_store(self, effect: effects.StoreResult) -> None:
        op_id = effect.report.op_id
        if op_id is None:
            raise AssertionError("a stored line has an op_id")
        self._to_store.append(OutboxEntry(op_id, effect.report))

    def _on_forget(self, effect: effects.ForgetResults) -> None:
        try:
            self._outbox.forget(effect.op_ids)
        except HostUnusable as error:
            # They are sent once more after a restart, and answered as duplicates.
            log.warning("outbox.not_forgotten", error=str(error))

    def _on_sync_and_send(self, effect: effects.SyncAndSend) -> None:
        self._to_send.append((self._correspondence.session, effect.message))
        self._has_work.set()
