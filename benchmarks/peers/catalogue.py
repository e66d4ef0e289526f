"""Which peers are measured, what each needs, and what the product owes against it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

HERE: Final = Path(__file__).parent
Store = Literal["none", "postgres", "valkey"]


@dataclass(frozen=True)
class Peer:
    """One system; `goal` is set for those that a goal names, which also get the large run."""

    name: str
    title: str
    store: Store = "none"
    goal: str = ""
    remark: str = ""
    network: Literal["host", "loopback"] = "host"  # see benchmarks.peers.keeper

    @property
    def driver(self) -> Path:
        return HERE / "drivers" / f"run_{self.name}.py"

    @property
    def requirements(self) -> Path | None:
        """What to install; a peer from the standard library has none."""
        path = HERE / "requirements" / f"{self.name}.txt"
        return path if path.exists() else None


POOL: Final = Peer("pool", "multiprocessing pool", remark="no server, nothing kept")
PEERS: Final = (
    Peer("procrastinate", "Procrastinate", "postgres", "at least 3x", "durable"),
    Peer("ray", "Ray", goal="at least 1.2x", network="loopback"),
    Peer("celery", "Celery", "valkey", "at least 2x", "append-only file on"),
    Peer("dask", "dask.distributed", goal="at least 2x"),
    Peer(
        "hyperqueue",
        "HyperQueue",
        goal="at least 2x",
        remark="LocalCluster: no journal",
        network="loopback",
    ),
    Peer("parsl", "Parsl HTEX"),
    Peer("dramatiq", "Dramatiq", "valkey", remark="append-only file on"),
)
