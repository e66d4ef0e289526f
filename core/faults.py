"""Faultpoints of the coordinator: `fault(name)`, `afault(name)`, `deliveries(name)`.

The mechanism and the rule syntax live in mitosis_protocol.faults, which the agent shares; here
`exc:database`, `exc:storage` and `exc:channel_layer` learn to raise our own errors.
"""

from core.errors import ChannelLayerUnavailable, DatabaseUnavailable, StorageUnavailable
from mitosis_protocol.faults import (
    FaultInjected,
    FaultMisused,
    afault,
    configure,
    deliveries,
    fault,
    is_armed,
    register_exception,
)

__all__ = [
    "FaultInjected",
    "FaultMisused",
    "afault",
    "configure",
    "deliveries",
    "fault",
    "is_armed",
]

register_exception("database", DatabaseUnavailable)
register_exception("storage", StorageUnavailable)
register_exception("channel_layer", ChannelLayerUnavailable)
