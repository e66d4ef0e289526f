"""What the manager sockets of one process count, for `/metrics`."""

from typing import Final

from core.counters import LATENCY_S, counter, first_of, gauge, histogram, one_of

SOCKETS: Final = gauge("mitosis_manager_sockets", "Managers connected to this process")
FRAME_BYTES: Final = counter(
    "mitosis_manager_frame_bytes", "Bytes in frames of managers", one_of("dir", ("in", "out"))
)
REQUEST_SECONDS: Final = histogram(
    "mitosis_manager_request_seconds",
    "From a manager's frame to its answer, by kind of message",
    first_of("kind", 50),  # the protocol has a dozen
    buckets=LATENCY_S,
)
