"""What other processes say to the socket of a direct worker: hints, never frames.

Sent through core.push by services, read by websocket.worker_session, which knows the session and
makes messages of them. A lost hint costs the time to the next beat or poll.
"""

from typing import Final, TypeAlias

import msgspec

from mitosis_protocol.control_payloads import PkgInstall, PkgUninstall


class Hint(msgspec.Struct, frozen=True, kw_only=True, tag_field="hint"):
    """Base of all of them."""


class WorkWaits(Hint, frozen=True, tag="work"):
    """Something changed in the queue, or in what is wanted of this worker: look."""


class StopAttempt(Hint, frozen=True, tag="stop"):
    attempt_id: int


class Install(Hint, frozen=True, tag="install"):
    order: PkgInstall


class Uninstall(Hint, frozen=True, tag="uninstall"):
    order: PkgUninstall


WorkerHint: TypeAlias = WorkWaits | StopAttempt | Install | Uninstall
HINTS: Final[msgspec.json.Decoder[WorkerHint]] = msgspec.json.Decoder(WorkerHint)
