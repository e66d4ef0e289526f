"""What can happen to a direct worker's session, and what the session can do about it.

Events go into `machine.Session.handle`, effects come out; `session` is the only one that makes the
former from sockets and timers and turns the latter into deeds.
"""

from enum import Enum
from typing import Literal, TypeAlias
from uuid import UUID

import msgspec

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Dispatch,
    Feedback,
    Payload,
    PkgEvent,
    PkgInstall,
    PkgUninstall,
    Result,
)
from mitosis_protocol.control_plane import Frame
from mitosis_protocol.node_calls import WorkerResource


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """A frame before it is sealed; a repetition keeps its id."""

    id: str
    payload: Payload
    corr: str | None = None
    seq: int | None = None
    wants_ack: bool = False


class LinkEnd(Enum):
    """Why a connection is gone."""

    LOST = "lost"
    REFUSED = "refused"  # the token is not accepted
    UNPROVEN = "unproven"  # the token alone is not enough: a client certificate is missing
    SUPERSEDED = "superseded"  # a newer session, or we were silent for too long
    DENIED = "denied"  # not now, or not like this: somebody has to change something first
    OVERLOAD = "overload"


# --- events ---------------------------------------------------------------------------------


class Opened(msgspec.Struct, frozen=True):
    """The socket is up."""


class Lost(msgspec.Struct, frozen=True):
    """The socket is gone, or could not be had."""

    end: LinkEnd
    reason: str


class Heard(msgspec.Struct, frozen=True):
    """A valid frame."""

    frame: Frame


class Said(msgspec.Struct, frozen=True):
    """News of a running attempt."""

    feedback: Feedback


class Ended(msgspec.Struct, frozen=True):
    """The last word on an attempt."""

    result: Result


class HandedBack(msgspec.Struct, frozen=True):
    """An attempt that was not started and is not wanted here."""

    attempt_id: int
    reason: str


class Measured(msgspec.Struct, frozen=True):
    """A look at the host, in per cent."""

    mem_pct: float
    disk_pct: float
    cpu_pct: float | None = None


class PackageTold(msgspec.Struct, frozen=True):
    """How far an installation is."""

    event: PkgEvent


class Left(msgspec.Struct, frozen=True):
    """The process was asked to leave; `is_over`: and nothing runs any more."""

    is_over: bool = False


class Tick(msgspec.Struct, frozen=True):
    """Time has passed."""


HostEvent: TypeAlias = Said | Ended | HandedBack | Measured | PackageTold | Left
Event: TypeAlias = Tick | Opened | Lost | Heard | HostEvent


# --- effects --------------------------------------------------------------------------------


class Connect(msgspec.Struct, frozen=True):
    """Open a socket."""


class Disconnect(msgspec.Struct, frozen=True):
    """Close the socket; `Lost` follows if it was open."""

    reason: str


class Send(msgspec.Struct, frozen=True):
    """Put one frame on the socket, if it is still there."""

    message: Message


class Start(msgspec.Struct, frozen=True):
    """Run this attempt."""

    dispatch: Dispatch


class Stop(msgspec.Struct, frozen=True):
    """Stop an attempt: `cancelled` wants its result, `revoked` silence."""

    attempt_id: int
    why: Literal["cancelled", "revoked"]


class Taken(msgspec.Struct, frozen=True):
    """The coordinator has everything of this attempt up to the number."""

    attempt_id: int
    seq: int


class Settled(msgspec.Struct, frozen=True):
    """Nothing more has to be said about an attempt. `answer` is the coordinator's word."""

    attempt_id: int
    answer: str


class Install(msgspec.Struct, frozen=True):
    request: PkgInstall


class Uninstall(msgspec.Struct, frozen=True):
    request: PkgUninstall


class Quit(msgspec.Struct, frozen=True):
    """The session is over for good. `code` says why if it is not our own wish."""

    reason: str
    code: ControlCode | None = None


Effect: TypeAlias = (
    Connect | Disconnect | Send | Start | Stop | Taken | Settled | Install | Uninstall | Quit
)


class Traits(msgspec.Struct, frozen=True, kw_only=True):
    """What this worker is and can do; said at every register."""

    worker_uuid: UUID
    process_uuid: UUID
    tenant: str
    node_types: tuple[str, ...]
    max_parallel: int = 1
    allow_packages: bool = False
    auth: Literal["token", "mtls"] = "token"
    software: str = ""

    @property
    def worker_id(self) -> str:
        return str(self.worker_uuid)

    @property
    def process_id(self) -> str:
        return str(self.process_uuid)


Resources: TypeAlias = dict[str, WorkerResource]
