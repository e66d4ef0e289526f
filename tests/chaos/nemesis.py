"""What is done to a fleet, drawn from a seed. The same seed draws the same strikes in order.

Process faults hit one part at a time, but parts are struck again before others are well: several
may be down at once. Frame faults are ordered at proxies in handfuls and counted when they happen.
"""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import psutil
import psycopg
import redis

from tests.chaos.faultpoints import AGENT, COORDINATOR, WORKER
from tests.chaos.fleet import LEASE_S, STORES, Fleet
from tests.chaos.ws_proxy import BOTH, Direction, FrameFault, WsProxy

WEB: Final = ("web0", "web1")
CELERY: Final = ("celery-worker", "celery-beat")
AGENTS: Final = ("agent-1", "agent-2")
LINKS: Final = (*AGENTS, "worker", "client")
PARTS: Final = (*STORES, *WEB, *CELERY, *AGENTS, "worker")
FRAME_FAULTS: Final[tuple[FrameFault, ...]] = ("delay", "drop", "duplicate", "reorder")
HANDFUL: Final = 10
# How often each kind is in the deck. Frames are cheap; a store costs seconds of everything.
WEIGHTS: Final = {
    "frames": 10,
    "kill": 3,
    "pause": 2,
    "kill-managed": 2,
    "arm": 2,
    "pause-managed": 1,
    "partition": 1,
    "half-open": 1,
    "cut": 1,
    "move": 1,
    "restart": 1,
    "flush": 1,
    "terminate": 1,
}
# Dropping is hard on latency (a lost answer costs its timeout), so it is drawn less often.
FRAME_WEIGHTS: Final = (4, 1, 4, 3)


@dataclass(frozen=True)
class Strike:
    """One order. `seconds`: how long it lasts, or how late a frame is."""

    kind: str
    target: str
    seconds: float = 0.0
    detail: str = ""
    directions: tuple[Direction, ...] = ()

    def __str__(self) -> str:
        words = (self.kind, self.target, self.detail, "+".join(self.directions))
        return " ".join(word for word in words if word)


TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    "kill": PARTS,
    "pause": PARTS,
    "half-open": LINKS,
    "cut": LINKS,
    "move": LINKS,
    "restart": (*WEB, *AGENTS),
    "flush": ("valkey",),
    "terminate": ("postgres",),
}


class Deck:
    """Deals every card once before any comes again, so that a short run hits everything."""

    def __init__(self, cards: Sequence[str], dice: random.Random) -> None:
        self._cards = list(cards)
        self._dice = dice
        self._left: list[str] = []

    def deal(self) -> str:
        if not self._left:
            self._left = self._dice.sample(self._cards, len(self._cards))
        return self._left.pop()


def draw(seed: int) -> Iterator[Strike]:
    """Strikes without end."""
    dice = random.Random(seed)
    kinds = Deck([kind for kind, count in WEIGHTS.items() for _ in range(count)], dice)
    decks = {kind: Deck(targets, dice) for kind, targets in TARGETS.items()}
    while True:
        kind = kinds.deal()
        if kind in decks:
            yield Strike(kind, decks[kind].deal(), dice.uniform(0.3, 2.0))
        else:
            yield _MAKERS[kind](kind, dice)


def _frames(kind: str, dice: random.Random) -> Strike:
    detail = dice.choices(FRAME_FAULTS, FRAME_WEIGHTS)[0]
    direction = dice.choice(BOTH)
    return Strike(kind, dice.choice(AGENTS), dice.uniform(0.02, 0.3), detail, (direction,))


def _partition(kind: str, dice: random.Random) -> Strike:
    """Most are shorter than a lease, some are longer: then the fleet has to part with work."""
    longest = LEASE_S * 2.2 if dice.random() < 0.25 else 2.0
    ways: tuple[Direction, ...] = dice.choice((BOTH, ("up",), ("down",)))
    return Strike(kind, dice.choice(LINKS), dice.uniform(0.3, longest), directions=ways)


def _managed(kind: str, dice: random.Random) -> Strike:
    return Strike(kind, "managed", dice.uniform(0.2, 1.5), detail=f"{dice.random():.6f}")


def _armed(kind: str, dice: random.Random) -> Strike:
    home, points = dice.choice(
        ((WEB, COORDINATOR), (CELERY[:1], COORDINATOR), (AGENTS, AGENT), (AGENTS, WORKER))
    )
    point = dice.choice(list(points))
    hit = dice.randint(1, points[point])
    return Strike(kind, dice.choice(home), detail=f"{point}=kill9#{hit}")


_MAKERS: Final[dict[str, Callable[[str, random.Random], Strike]]] = {
    "frames": _frames,
    "partition": _partition,
    "kill-managed": _managed,
    "pause-managed": _managed,
    "arm": _armed,
}


class Nemesis:
    """Carries strikes out; what lasts a while is ended by `relent`, called often."""

    def __init__(self, fleet: Fleet) -> None:
        self.done: Counter[str] = Counter()
        self._fleet = fleet
        # (when, what to do): ends of pauses and partitions.
        self._ends: list[tuple[float, str, int]] = []

    @property
    def faults(self) -> int:
        """Everything that has happened, counted one by one."""
        return sum(self.counted().values())

    def counted(self) -> Counter[str]:
        return self.done + self._fleet.house.happened() + self._fleet.fired

    def carry_out(self, strike: Strike) -> None:
        action = getattr(self, f"_{strike.kind.replace('-', '_')}")
        if action(strike) is not False and strike.kind not in _COUNTED_BY_PROXIES:
            self.done[f"{strike.kind} {strike.target}"] += 1

    def relent(self, *, at_once: bool = False) -> None:
        now = time.monotonic()
        due = [end for end in self._ends if at_once or end[0] <= now]
        for end in due:
            self._ends.remove(end)
            _, name, pid = end
            if pid:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            else:
                self._fleet.house.on(name, WsProxy.heal)

    # Processes

    def _kill(self, strike: Strike) -> None:
        self._fleet.kill(strike.target)

    def _pause(self, strike: Strike) -> bool:
        part = self._fleet.parts[strike.target]
        if part.has_ended():
            return False
        return self._stop_for(part.pid, strike.seconds)

    def _restart(self, strike: Strike) -> None:
        part = self._fleet.parts[strike.target]
        part.is_expected_dead = True
        part.signal(signal.SIGTERM)

    def _arm(self, strike: Strike) -> None:
        self._fleet.arm(strike.target, strike.detail)

    def _kill_managed(self, strike: Strike) -> bool:
        victim = self._managed(strike)
        if victim is None:
            return False
        with suppress(psutil.Error):
            victim.kill()
        return True

    def _pause_managed(self, strike: Strike) -> bool:
        victim = self._managed(strike)
        return victim is not None and self._stop_for(victim.pid, strike.seconds)

    def _managed(self, strike: Strike) -> psutil.Process | None:
        """A worker, a launcher, a hook or a command: whatever an agent has started."""
        found = self._fleet.managed_processes()
        return found[int(float(strike.detail) * len(found))] if found else None

    def _stop_for(self, pid: int, seconds: float) -> bool:
        try:
            os.kill(pid, signal.SIGSTOP)
        except ProcessLookupError:
            return False
        self._ends.append((time.monotonic() + seconds, "", pid))
        return True

    # The network

    def _frames(self, strike: Strike) -> None:
        def order(proxy: WsProxy) -> None:
            # Orders nobody came for belong to a link without traffic; they do not pile up.
            if proxy.waiting_orders() > HANDFUL:
                return
            for _ in range(1 if strike.detail == "drop" else HANDFUL):
                kind: FrameFault = strike.detail  # type: ignore[assignment]
                proxy.order(kind, strike.directions[0], seconds=strike.seconds)

        self._fleet.house.on(strike.target, order)

    def _partition(self, strike: Strike) -> None:
        self._fleet.house.on(strike.target, lambda proxy: proxy.partition(*strike.directions))
        self._ends.append((time.monotonic() + strike.seconds, strike.target, 0))

    def _half_open(self, strike: Strike) -> None:
        self._fleet.house.on(strike.target, WsProxy.half_open)
        self._ends.append((time.monotonic() + strike.seconds, strike.target, 0))

    def _cut(self, strike: Strike) -> None:
        self._fleet.house.on(strike.target, WsProxy.cut)

    def _move(self, strike: Strike) -> None:
        """As a load balancer does: the next connection goes to the other coordinator."""

        def move(proxy: WsProxy) -> None:
            ports = self._fleet.web_ports
            proxy.target = ports[(ports.index(proxy.target) + 1) % len(ports)]
            proxy.cut()

        self._fleet.house.on(strike.target, move)

    # The stores from inside

    def _flush(self, _strike: Strike) -> bool:
        try:
            with redis.Redis.from_url(
                self._fleet.environment["REDIS_URL"], socket_timeout=1
            ) as one:
                one.flushall()
        except redis.RedisError:
            return False
        return True

    def _terminate(self, _strike: Strike) -> bool:
        """Every session of the database is ended, wherever its transaction is."""
        try:
            with psycopg.connect(
                self._fleet.database_url, autocommit=True, connect_timeout=2
            ) as connection:
                connection.execute(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                    " WHERE datname = current_database() AND pid <> pg_backend_pid()"
                )
        except psycopg.OperationalError:
            return False
        return True


_COUNTED_BY_PROXIES: Final = ("frames", "partition", "half-open", "cut", "move")
