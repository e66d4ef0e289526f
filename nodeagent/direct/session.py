"""The shell around `machine`: its socket, its clock, and those who wait for acks.

`run` keeps the worker connected until the session is over; lanes call `next_dispatch`, `say`,
`conclude` and `hand_back`. Everything happens on one event loop, effects in the order given.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, Literal, Protocol

import structlog

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Dispatch,
    Feedback,
    PkgEvent,
    PkgInstall,
    PkgUninstall,
    Result,
)
from mitosis_protocol.control_plane import Frame, Sender, Stamp, seal
from mitosis_protocol.timestamps import format_rfc3339
from nodeagent.direct import events as ev
from nodeagent.direct.link import Link
from nodeagent.direct.machine import Session
from nodeagent.errors import (
    AgentError,
    AuthRejected,
    IdentityTaken,
    ProtocolMismatch,
    TaskGone,
    WorkerRemoved,
)
from nodeagent.tls import ClientTls

log = structlog.stdlib.get_logger(__name__)

_SECRETS: Final = random.SystemRandom()
_LAST_WORDS_S: Final = 3.0

Now = Callable[[], str]


class Keeper(Protocol):
    """Who does what the session is told to: lanes and packages."""

    def stop(self, attempt_id: int, why: Literal["cancelled", "revoked"]) -> None: ...
    def install(self, request: PkgInstall) -> None: ...
    def uninstall(self, request: PkgUninstall) -> None: ...


class DirectSession:
    """One worker's session, from the first connection to the last."""

    def __init__(
        self,
        coordinator: str,
        token: str,
        traits: ev.Traits,
        *,
        tls: ClientTls,
        timestamp: Now | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._token = token
        self._tls = tls
        self._timestamp = timestamp or _utc_now
        self._sender = Sender(role="worker", id=traits.worker_id)
        self._link: Link | None = None
        self._linking: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._offers: asyncio.Queue[Dispatch] = asyncio.Queue()
        self._waiters: dict[int, list[tuple[int, asyncio.Future[None]]]] = {}
        self._verdicts: dict[int, asyncio.Future[str]] = {}
        self._over: asyncio.Future[ev.Quit] | None = None
        self.machine = Session(traits, chance=_SECRETS.random)
        self.keeper: Keeper | None = None

    async def run(self) -> None:
        """Until the session is over. Raises what ended it, if it was not our own wish."""
        self._over = asyncio.get_running_loop().create_future()
        self._handle(ev.Tick())
        try:
            end = await self._over
            if self._link is not None and self._linking is not None:
                # What was said last should arrive.
                await asyncio.wait({self._linking}, timeout=_LAST_WORDS_S)
        finally:
            await self._shut()
        _raise_for(end)

    # --- for lanes --------------------------------------------------------------------------

    async def next_dispatch(self) -> Dispatch:
        """The next attempt that was accepted; the lane that gets it owns it."""
        return await self._offers.get()

    def note(self, feedback: Feedback) -> None:
        """Say it and do not wait."""
        self._handle(ev.Said(feedback))

    async def say(self, feedback: Feedback) -> None:
        """Say it and wait until the coordinator has it. Raises TaskGone."""
        self._handle(ev.Said(feedback))
        attempt_id = feedback.task_id
        seq = self.machine.hand.last_seq(attempt_id)
        if seq is None:
            raise TaskGone("the attempt is not ours any more")
        taken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.setdefault(attempt_id, []).append((seq, taken))
        await taken

    async def conclude(self, result: Result) -> None:
        """The last word; returns when the coordinator has it. Raises TaskGone."""
        attempt_id = result.task_id
        if attempt_id not in self.machine.hand.dispatches:
            raise TaskGone("the attempt is not ours any more")
        if attempt_id not in self._verdicts:
            self._verdicts[attempt_id] = asyncio.get_running_loop().create_future()
            self._handle(ev.Ended(result))
        answer = await asyncio.shield(self._verdicts[attempt_id])
        self._verdicts.pop(attempt_id, None)
        if answer not in ("ok", "ok_duplicate"):
            raise TaskGone(f"the coordinator answered {answer}")

    def hand_back(self, attempt_id: int, reason: str) -> None:
        """Return an attempt that was not started."""
        self._handle(ev.HandedBack(attempt_id, reason))

    def tell_package(self, event: PkgEvent) -> None:
        self._handle(ev.PackageTold(event))

    def measure(self, load: ev.Measured) -> None:
        self._handle(load)

    def leave(self, *, is_over: bool = False) -> None:
        """Take nothing new; with `is_over` close as well."""
        self._handle(ev.Left(is_over))

    # --- the machine's hands ----------------------------------------------------------------

    def _handle(self, event: ev.Event) -> None:
        for effect in self.machine.handle(event, asyncio.get_running_loop().time()):
            self._do(effect)
        self._set_timer()

    def _do(self, effect: ev.Effect) -> None:
        match effect:
            case ev.Send():
                self._send(effect.message)
            case ev.Connect():
                self._linking = asyncio.create_task(self._connect())
            case ev.Disconnect():
                log.info("direct.disconnecting", reason=effect.reason)
                if self._link is not None:
                    self._link.close()
            case ev.Quit():
                assert self._over is not None
                self._over.set_result(effect)
            case ev.Taken():
                self._release(effect.attempt_id, effect.seq)
            case ev.Settled():
                self._settle(effect)
            case _:
                self._hand_on(effect)

    def _hand_on(self, effect: ev.Start | ev.Stop | ev.Install | ev.Uninstall) -> None:
        if isinstance(effect, ev.Start):
            self._offers.put_nowait(effect.dispatch)
            return
        assert self.keeper is not None
        match effect:
            case ev.Stop():
                self.keeper.stop(effect.attempt_id, effect.why)
            case ev.Install():
                self.keeper.install(effect.request)
            case ev.Uninstall():
                self.keeper.uninstall(effect.request)

    def _send(self, message: ev.Message) -> None:
        if self._link is None:
            return
        stamp = Stamp(message.id, self._timestamp(), self.machine.tenant, self._sender)
        self._link.send(
            seal(
                message.payload,
                stamp,
                corr=message.corr,
                seq=message.seq,
                wants_ack=message.wants_ack,
            )
        )

    def _release(self, attempt_id: int, seq: int) -> None:
        waiting = self._waiters.get(attempt_id, [])
        for number, taken in waiting:
            if number <= seq and not taken.done():
                taken.set_result(None)
        self._waiters[attempt_id] = [pair for pair in waiting if pair[0] > seq]
        if not self._waiters[attempt_id]:
            del self._waiters[attempt_id]

    def _settle(self, effect: ev.Settled) -> None:
        for _, taken in self._waiters.pop(effect.attempt_id, []):
            if not taken.done():
                taken.set_exception(TaskGone("the attempt is not ours any more"))
        verdict = self._verdicts.get(effect.attempt_id)
        if verdict is not None and not verdict.done():
            verdict.set_result(effect.answer)

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        wake_at = self.machine.wake_at()
        if wake_at is not None and self._over is not None and not self._over.done():
            self._timer = asyncio.get_running_loop().call_at(wake_at, self._handle, ev.Tick())

    async def _connect(self) -> None:
        link = Link(self._coordinator, self._token, self._tls)

        def opened() -> None:
            self._link = link
            log.info("direct.connected", coordinator=self._coordinator)
            self._handle(ev.Opened())

        lost = await link.serve(opened, self._heard)
        self._link = None
        log.warning("direct.disconnected", reason=lost.reason, state=self.machine.state.value)
        self._handle(lost)

    def _heard(self, frame: Frame) -> None:
        self._handle(ev.Heard(frame))

    async def _shut(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._linking is not None:
            self._linking.cancel()
            await asyncio.gather(self._linking, return_exceptions=True)
        for waiting in self._waiters.values():
            for _, taken in waiting:
                taken.cancel()
        for verdict in self._verdicts.values():
            verdict.cancel()


def _raise_for(end: ev.Quit) -> None:
    if end.code is None:
        return
    kinds: dict[ControlCode, type[AgentError]] = {
        ControlCode.AUTH_INVALID_TOKEN: WorkerRemoved,
        ControlCode.SESSION_SUPERSEDED: IdentityTaken,
        ControlCode.PROTOCOL_VERSION: ProtocolMismatch,
    }
    raise kinds.get(end.code, AuthRejected)(end.reason)


def _utc_now() -> str:
    return format_rfc3339(datetime.now(UTC))
