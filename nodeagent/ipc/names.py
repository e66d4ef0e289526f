"""Names of everything one agent creates for its IPC: prefix, services, directories, the lock.

The prefix is made from the manager's uuid and the IPC root is the agent's own, so two agents on a
host never meet, and all that an earlier life of the same agent left behind is found. Used by both
servers and both clients.
"""

import fcntl
import os
import shutil
from pathlib import Path
from typing import Final
from uuid import UUID

from mitosis_protocol.limits import MAX_WORKERS
from nodeagent.ipc.server import ServiceName, WorkerKey

SERVICES: Final[tuple[ServiceName, ...]] = ("fetch", "report", "heartbeat")
_WIRE_NAMES: Final = {"fetch": "task_fetch", "report": "task_report", "heartbeat": "heartbeat"}
# iceoryx2 takes 255 bytes for prefix + id + suffix together; its own ids need about 60.
_PREFIX_LENGTH: Final = 12
STOP_RING: Final = MAX_WORKERS * len(SERVICES)  # rung by the agent itself to end its IPC thread
# A Unix socket's path has 107 bytes; iceoryx2 adds a name of its own behind root and prefix.
_MAX_SOCKET_PATH: Final = 107
_SOCKET_NAME_LENGTH: Final = 40
_AGENT_LOCK: Final = "agent.lock"
_PAYLOADS: Final = "payloads"


def prefix_of(manager_uuid: UUID) -> str:
    """What every file and segment of this manager's agents starts with, in any life."""
    return f"mito_{manager_uuid.hex[:_PREFIX_LENGTH]}_"


def fits_sockets(root: Path, prefix: str) -> bool:
    """Whether iceoryx2 can put its sockets below `root`."""
    return len(os.fsencode(root)) + len(prefix) + _SOCKET_NAME_LENGTH <= _MAX_SOCKET_PATH


def service_name(manager: str, worker: WorkerKey, service: ServiceName) -> str:
    """A request-response service of one life of one worker."""
    return f"{_worker_name(manager, worker)}/{_WIRE_NAMES[service]}"


def topic_name(manager: str, worker: WorkerKey) -> str:
    """Control and settings for one worker."""
    return f"{_worker_name(manager, worker)}/control"


def worker_doorbell_name(manager: str, worker: WorkerKey) -> str:
    """Rung by the agent when this worker has something to read."""
    return f"{_worker_name(manager, worker)}/doorbell"


def agent_doorbell_name(manager: str) -> str:
    """Rung by every worker, with its local id and what it has spoken on."""
    return f"mitosis/{manager}/doorbell"


def ring_of(worker: WorkerKey, service: ServiceName) -> int:
    """The event id by which a worker rings the agent; slots are numbered from 0."""
    return worker.local_id % MAX_WORKERS * len(SERVICES) + SERVICES.index(service)


def worker_directory(root: Path, worker: WorkerKey) -> Path:
    """For payloads that do not fit into a message."""
    return root / _PAYLOADS / f"{worker.local_id}-{worker.generation}"


def _worker_name(manager: str, worker: WorkerKey) -> str:
    return f"mitosis/{manager}/worker/{worker.local_id}/{worker.generation}"


def open_root(root: Path) -> int:
    """Make the IPC root, empty of payloads, and hold its lock; returns the lock's descriptor.

    The lock says to workers that their agent lives: the kernel lets go of it with the process.
    """
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    root.chmod(0o700)
    shutil.rmtree(root / _PAYLOADS, ignore_errors=True)
    fd = os.open(root / _AGENT_LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        raise
    return fd


def is_agent_alive(root: Path) -> bool:
    """Whether anybody holds the lock of this root."""
    try:
        fd = os.open(root / _AGENT_LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
