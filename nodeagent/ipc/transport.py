"""Which IPC this host can have: the server for the agent, the client for a worker.

`auto` takes iceoryx2 where its wheel is installed and the path of the root is short enough for its
sockets, else Unix sockets. Called by the agent's shell and by nodeagent.worker.managed; iceoryx2 is
imported only where it is used.
"""

import importlib
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Literal, TypeAlias, cast
from uuid import UUID

import structlog

from nodeagent.errors import ConfigInvalid
from nodeagent.ipc.client import IpcClient, Published
from nodeagent.ipc.names import fits_sockets, prefix_of
from nodeagent.ipc.server import IpcServer, WorkerEndpoint
from nodeagent.ipc.unix_client import UnixClient
from nodeagent.ipc.unix_server import UnixServer

log = structlog.stdlib.get_logger(__name__)

TransportChoice: TypeAlias = Literal["auto", "iceoryx2", "unix"]


def make_server(choice: TransportChoice, root: Path, manager_uuid: UUID) -> IpcServer:
    """Raises ConfigInvalid if iceoryx2 was asked for and cannot be had."""
    trouble = _trouble(root, manager_uuid) if choice != "unix" else None
    if choice == "iceoryx2" and trouble is not None:
        raise ConfigInvalid(f"transport iceoryx2: {trouble}")
    if choice == "unix" or trouble is not None:
        log.info("ipc.transport", name="unix", because=trouble or "it was asked for")
        return UnixServer(root)
    module = importlib.import_module("nodeagent.ipc.iceoryx_server")
    return cast("IpcServer", module.IceoryxServer(root, manager_uuid))


def open_client(endpoint: WorkerEndpoint, on_published: Callable[[Published], None]) -> IpcClient:
    """In the worker, after the fork, within its event loop. Raises WorkerRemoved."""
    if endpoint.transport == "unix":
        return UnixClient(endpoint, on_published)
    module = importlib.import_module("nodeagent.ipc.iceoryx_client")
    return cast("IpcClient", module.IceoryxClient(endpoint, on_published))


def preload() -> None:
    """Import what `open_client` may need; opens nothing. In the fork server, before any fork."""
    if importlib.util.find_spec("iceoryx2") is not None:
        importlib.import_module("nodeagent.ipc.iceoryx_client")


def _trouble(root: Path, manager_uuid: UUID) -> str | None:
    if importlib.util.find_spec("iceoryx2") is None:
        return "iceoryx2 is not installed"
    if not fits_sockets(root, prefix_of(manager_uuid)):
        return f"the path of {root} is too long for its sockets"
    return None
