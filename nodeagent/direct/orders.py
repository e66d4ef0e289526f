"""What the scheduler orders, and the answer each order gets. Pure; part of machine.

Every order is answered by an ack or a typed error; the answer is remembered, so that a repetition
gets the same one and nothing is done twice.
"""

from typing import Final

import msgspec

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Ack,
    CancelCommand,
    Dispatch,
    Drain,
    Error,
    Payload,
    PkgEvent,
    PkgInstall,
    PkgUninstall,
)
from mitosis_protocol.control_plane import Frame
from nodeagent.direct import admission, said
from nodeagent.direct.drains import Drains
from nodeagent.direct.events import Effect, Install, Resources, Start, Stop, Traits, Uninstall
from nodeagent.direct.hand import Hand
from nodeagent.direct.memory import Recent

_NO_SESSION: Final = ("there is no session yet",)


class Obeyed(msgspec.Struct, frozen=True):
    """The answer to an order, what it brings about, and what has to be said besides."""

    answer: Payload
    effects: list[Effect] = []
    news: PkgEvent | None = None


class Orders:
    """The orders of one worker's life; answers are kept across sessions."""

    def __init__(self, traits: Traits, hand: Hand, drains: Drains, resources: Resources) -> None:
        self._traits = traits
        self._hand = hand
        self._drains = drains
        self._resources = resources
        self._answers: Recent[tuple[str, str | None], Payload] = Recent()

    def obey(self, frame: Frame, *, is_working: bool) -> Obeyed:
        """`is_working`: the session is built; before, nothing is started."""
        key = (frame.envelope.id, frame.envelope.corr)
        before = self._answers.get(key)
        if before is not None:
            return Obeyed(_as_repeated(before))
        obeyed = self._obey(frame.payload, frame.envelope.id, is_working)
        self._answers.put(key, obeyed.answer)
        return obeyed

    def _obey(self, payload: Payload, message_id: str, is_working: bool) -> Obeyed:
        ack = Ack(for_id=message_id)
        match payload:
            case Dispatch():
                return self._dispatch(payload, message_id, is_working)
            case CancelCommand():
                if payload.why == "revoked":
                    self._hand.drop(payload.task_id)
                return Obeyed(ack, [Stop(payload.task_id, payload.why)])
            case Drain():
                self._drains.order(payload)
                return Obeyed(ack)
            case PkgInstall() | PkgUninstall():
                return self._package(payload, ack)
            case _:
                text = f"a worker is not sent {type(payload).__name__}"
                error = Error(code=ControlCode.CMD_UNKNOWN, message=text, for_id=message_id)
                return Obeyed(error)

    def _dispatch(self, dispatch: Dispatch, message_id: str, is_working: bool) -> Obeyed:
        if self._hand.knows(dispatch.task_id):
            return Obeyed(Ack(for_id=message_id, duplicate=True))
        refused = admission.refusal(
            dispatch,
            traits=self._traits,
            held=self._hand.dispatches,
            drains=self._drains.texts if is_working else _NO_SESSION,
            resources=self._resources,
        )
        if refused is not None:
            return Obeyed(msgspec.structs.replace(refused, for_id=message_id))
        self._hand.take(dispatch)
        return Obeyed(Ack(for_id=message_id), [Start(dispatch)])

    def _package(self, request: PkgInstall | PkgUninstall, ack: Ack) -> Obeyed:
        if not self._traits.allow_packages:
            return Obeyed(ack, news=said.package_refusal(request))
        if isinstance(request, PkgInstall):
            return Obeyed(ack, [Install(request)])
        return Obeyed(ack, [Uninstall(request)])


def _as_repeated(answer: Payload) -> Payload:
    return Ack(for_id=answer.for_id, duplicate=True) if isinstance(answer, Ack) else answer
