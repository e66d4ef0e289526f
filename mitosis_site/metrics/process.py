"""What this process is and uses: version, memory, CPU time, open files."""

from functools import cache
from importlib.metadata import version

from prometheus_client import Info, ProcessCollector

import websocket.counts  # noqa: F401 - declares its families, before the first socket
from core.counters import REGISTRY


@cache
def register_process() -> None:
    """Once per process; a second import changes nothing."""
    ProcessCollector(registry=REGISTRY)
    Info("mitosis_build", "The release this process runs", registry=REGISTRY).info(
        {"version": version("mitosis")}
    )
