"""Carries out what was drawn (`strikes.py`).

Process faults hit one part at a time, but parts are struck again before others are well: several
may be down at once. Frame faults are ordered at proxies in handfuls and counted when they happen.
"""

import os
import signal
import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Final

import psutil
import psycopg
import redis

from tests.chaos.fleet import Fleet
from tests.chaos.provocation import provocations
from tests.chaos.store_proxy import StoreFault, StoreProxy
from tests.chaos.strikes import AGENTS, COORDINATORS, Strike
from tests.chaos.ws_proxy import FrameFault, WsProxy

HANDFUL: Final = 10
STORE_HANDFUL: Final = 4


class Nemesis:
    """Carries strikes out; what lasts a while is ended by `relent`, called often."""

    def __init__(self, fleet: Fleet) -> None:
        self.done: Counter[str] = Counter()
        self._fleet = fleet
        self._common_s = 0.0  # how wrong the clock is that all coordinators share
        # (when, what to do): ends of pauses and partitions.
        self._ends: list[tuple[float, str, int]] = []

    @property
    def faults(self) -> int:
        """Everything that has happened, counted one by one."""
        return sum(self.counted().values())

    def counted(self) -> Counter[str]:
        fired = Counter({f"point {name}": n for name, n in self._fleet.fired().items()})
        return self.done + self._fleet.house.happened() + fired

    def carry_out(self, strike: Strike) -> None:
        if "@" in strike.target:
            strike = replace(strike, target=self._coordinator_of(strike.target.partition("@")[2]))
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

    def provoke(self) -> None:
        """Once for every part that is armed for something rare."""
        for part in self._fleet.parts.values():
            if part.armed and not part.is_provoked and not part.has_ended():
                for strike in provocations(self._fleet, part):
                    self.carry_out(strike)
                    part.is_provoked = True

    def _coordinator_of(self, link: str) -> str:
        port = self._fleet.house.proxies[link].target
        return f"web{self._fleet.web_ports.index(port)}"

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

    def _store(self, strike: Strike) -> None:
        def order(proxy: WsProxy) -> None:
            assert isinstance(proxy, StoreProxy)
            while proxy.waiting_orders() < STORE_HANDFUL:
                kind: StoreFault = strike.detail  # type: ignore[assignment]
                proxy.order_fault(kind, seconds=strike.seconds)

        self._fleet.house.on(strike.target, order)

    # Time

    def _clock(self, strike: Strike) -> None:
        clocks = self._fleet.clocks
        if strike.target in AGENTS:
            clocks[strike.target].step_to(strike.seconds)
        elif strike.target in COORDINATORS:
            clocks[strike.target].step_to(self._common_s + strike.seconds)
        else:
            if strike.seconds < self._common_s:
                # Tokens it was given are from the future now: it ends, and its next life gets new.
                self._fleet.parts["worker"].is_expected_dead = True
            self._common_s = strike.seconds
            for name in COORDINATORS:
                clocks[name].step_to(strike.seconds)

    def _step(self, strike: Strike) -> None:
        """One clock alone, for a provocation."""
        self._fleet.clocks[strike.target].step_to(strike.seconds)

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


_COUNTED_BY_PROXIES: Final = ("frames", "partition", "half-open", "cut", "move", "store")
