"""The iceoryx2 services of one worker and of the agent, as both sides have to describe them.

What iceoryx2 0.10 does, as measured: Python ports are the thread-safe kind; waiting on a listener
lets go of the GIL, everything else holds it; nothing may be opened before a fork, or a dead child
looks alive for ever; a port takes some four descriptors; segments are 0600; a client that leaves a
service shared by all stalls everybody (215 ms), so every worker has services of its own, the topic
included: one that is shared keeps what a dead subscriber had until the next message. Every file it
makes it syncs, 15 for one worker on the agent's side alone, so its root is in memory.
"""

import contextlib
import ctypes
import os
import resource
import socket
import stat
from pathlib import Path
from typing import Any, Final

import iceoryx2
import structlog

from mitosis_protocol.ipc import MAX_INLINE_BYTES
from mitosis_protocol.limits import MAX_WORKERS
from nodeagent.ipc.names import STOP_RING
from nodeagent.worker.workspace import remove_tree

log = structlog.stdlib.get_logger(__name__)

# Requests of one worker at a time: log tail, news, upload, and room; one fetch, one beat.
MAX_IN_FLIGHT: Final = 8
# Control messages that may wait for a worker that does not look; the oldest is dropped beyond.
_TOPIC_DEPTH: Final = 64
_BYTES: Final = iceoryx2.Slice[ctypes.c_uint8]

OpenFailed: Final = (
    iceoryx2.NodeCreationFailure,
    iceoryx2.RequestResponseOpenError,
    iceoryx2.PublishSubscribeOpenError,
    iceoryx2.EventOpenError,
    iceoryx2.ClientCreateError,
    iceoryx2.SubscriberCreateError,
    iceoryx2.ListenerCreateError,
    iceoryx2.NotifierCreateError,
)
SendFailed: Final = (iceoryx2.LoanError, iceoryx2.SendError, iceoryx2.NotifierNotifyError)
ReceiveFailed: Final = (iceoryx2.ReceiveError, iceoryx2.ConnectionFailure)

SharedMemory: Final = Path("/dev/shm")  # noqa: S108 - where POSIX shared memory is, not a temp file


def allow_many_descriptors() -> None:
    """A worker costs the agent about 40; the usual soft limit of 1,024 is 25 workers."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def make_node(root: str, prefix: str) -> Any:
    """A node in our own root. Looking for dead nodes is left to the agent's sweeps: with 256
    workers it costs more than everything else at their start.
    """
    iceoryx2.set_log_level(iceoryx2.LogLevel.Fatal)
    config = iceoryx2.config.default()
    config.global_cfg.root_path = iceoryx2.Path.new(root)
    config.global_cfg.prefix = iceoryx2.FileName.new(prefix)
    config.global_cfg.node.cleanup_dead_nodes_on_creation = False
    config.global_cfg.node.cleanup_dead_nodes_on_destruction = False
    config.global_cfg.service.cleanup_dead_nodes_on_open = False
    return (
        iceoryx2.NodeBuilder.new()
        .config(config)
        .signal_handling_mode(iceoryx2.SignalHandlingMode.Disabled)
        .create(iceoryx2.ServiceType.Ipc)
    )


def request_service(node: Any, name: str) -> Any:
    """A builder: the agent creates it, the worker opens it."""
    return (
        node.service_builder(iceoryx2.ServiceName.new(name))
        .request_response(_BYTES, _BYTES)
        .max_servers(1)
        .max_clients(1)
        .max_nodes(2)
        .max_active_requests_per_client(MAX_IN_FLIGHT)
        .max_loaned_requests(1)
        .max_response_buffer_size(1)
        .max_borrowed_responses_per_pending_response(1)
        .enable_fire_and_forget_requests(False)
    )


def topic(node: Any, name: str) -> Any:
    """Control messages and settings for one worker."""
    return (
        node.service_builder(iceoryx2.ServiceName.new(name))
        .publish_subscribe(_BYTES)
        .max_publishers(1)
        .max_subscribers(1)
        .max_nodes(2)
        .subscriber_max_buffer_size(_TOPIC_DEPTH)
        .subscriber_max_borrowed_samples(1)
        .history_size(0)
        .enable_safe_overflow(True)
    )


def worker_doorbell(node: Any, name: str) -> Any:
    """Rung by the agent, heard by one worker."""
    return (
        node.service_builder(iceoryx2.ServiceName.new(name))
        .event()
        .max_notifiers(1)
        .max_listeners(1)
        .max_nodes(2)
        .event_id_max_value(1)
    )


def agent_doorbell(node: Any, name: str) -> Any:
    """Rung by every worker. Room for workers that are gone and not yet swept, and their heirs."""
    return (
        node.service_builder(iceoryx2.ServiceName.new(name))
        .event()
        .max_notifiers(4 * MAX_WORKERS)
        .max_listeners(1)
        .max_nodes(4 * MAX_WORKERS)
        .event_id_max_value(STOP_RING)
    )


def sending(builder: Any) -> Any:
    """A port for messages of up to MAX_INLINE_BYTES. Only what was written takes memory; one that
    may grow would take 1 MB on both sides for its tables, and 1 ms to make.
    """
    return builder.initial_max_slice_len(MAX_INLINE_BYTES).create()


def send(port: Any, data: bytes) -> Any:
    """Copy `data` into shared memory and send it; what sending returned.

    Past the checks that the bindings make in Python at every call: our payloads are bytes always,
    and the checks cost as much as the sending.
    """
    loan = port.__loan_slice_uninit(len(data))  # noqa: SLF001 - see above
    ctypes.memmove(loan.payload_ptr, data, len(data))
    return loan.__assume_init().send()  # noqa: SLF001 - see above


def read(received: Any) -> bytes:
    """A copy: the shared memory is given back at once."""
    return ctypes.string_at(received.payload_ptr, received.__slice_len)  # noqa: SLF001 - as `send`


def listen(service: Any, root: str) -> tuple[Any, int]:
    """A listener and its descriptor, which becomes readable with a ring.

    The bindings do not show the descriptor, but it is a Unix datagram socket bound below `root`:
    the one that was not there before. A worker can so wait for everything with one epoll.
    """
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208 - Path objects would double the cost
    listener = service.listener_builder().create()
    after = os.listdir("/proc/self/fd")  # noqa: PTH208 - as above
    found = [int(fd) for fd in after if fd not in before and _is_bound_below(int(fd), root)]
    if len(found) != 1:
        raise OSError(f"{len(found)} sockets appeared with a listener of iceoryx2")
    return listener, found[0]


def open_memory_root(root: Path, prefix: str) -> Path:
    """Where iceoryx2 keeps its files: beside its segments, or in `root` if the name is taken."""
    place = SharedMemory / f"{prefix}root"
    try:
        place.mkdir(mode=0o700)
    except OSError as error:
        log.warning("ipc.on_disk", because=str(error))
        return root
    return place


def remove_leftovers(root: Path, prefix: str) -> None:
    """Delete everything of ours that iceoryx2 left. Only while no process uses it."""
    for path in (root / "nodes", root / "services", *root.glob(f"{prefix}*")):
        remove_tree(path)
    for path in SharedMemory.glob(f"{prefix}*"):
        # The directory is everybody's: a name like ours may have been made by somebody else.
        with contextlib.suppress(FileNotFoundError):
            if path.lstat().st_uid == os.geteuid():
                remove_tree(path)


def count_nodes(root: Path) -> int:
    """Processes that opened a node here and did not close it, dead ones included."""
    try:
        return sum(entry.is_dir() for entry in os.scandir(root / "nodes"))
    except FileNotFoundError:
        return 0


def _is_bound_below(fd: int, root: str) -> bool:
    try:
        if not stat.S_ISSOCK(os.fstat(fd).st_mode):
            return False
    except OSError:
        return False  # the descriptor of the very listing
    with socket.socket(fileno=os.dup(fd)) as twin:
        address = twin.getsockname() if twin.family == socket.AF_UNIX else ""
    return isinstance(address, str) and address.startswith(root)
