"""One chaos run from birth to verdict: load and nemesis, then peace, then the reckoning."""

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import boto3
import psycopg
from botocore.exceptions import BotoCoreError, ClientError

from tests.chaos.directed import arming, directed, point_of
from tests.chaos.faultpoints import POINTS
from tests.chaos.fleet import LEASE_S, Fleet
from tests.chaos.history import Evidence, History
from tests.chaos.invariants import (
    ALWAYS,
    DRIFT,
    SETTLED,
    WATCH_OUTCOMES,
    Check,
    Violation,
    World,
    violations,
)
from tests.chaos.leftovers import Host, leftovers, zombies
from tests.chaos.load import Load
from tests.chaos.nemesis import Nemesis
from tests.chaos.strikes import Strike, draw
from tests.chaos.verdict import MAX_SAID, Verdict

# Between two strikes; a slow machine strikes less often, not sooner after each other.
PACE_S: Final = 0.25
CHECK_S: Final = 5.0
# After so many strikes the fleet gets time to do some work, so that the next ones meet it at work.
ROUND: Final = 5
# The plan's bound is three leases; the rest is for a machine that does other things as well.
PEACE_S: Final = 3 * LEASE_S + 120


@dataclass(frozen=True)
class Breath:
    """Between two rounds of strikes: until so many tasks have ended, or so long."""

    tasks: int = 500
    at_most_s: float = 20.0


@dataclass(frozen=True)
class Progress:
    """How far a war has come."""

    faults: int
    random_faults: int  # after the directed part; 0 before its end
    seconds: float
    executed: int  # tasks that ended, and not by a cancel
    silent_points: tuple[str, ...]


class Campaign:
    """`run` until `is_over` says so; `say` hears one line now and then."""

    def __init__(
        self,
        root: Path,
        open_dir: Path,
        *,
        seed: int,
        breath: Breath = Breath(),
        say: Callable[[str], None] = print,
    ) -> None:
        self.fleet = Fleet(root)
        self.verdict = Verdict()
        self._seed = seed
        self._breath = breath
        self._say = say
        self._evidence = open_dir / "executions"
        self._evidence.touch()
        self._evidence.chmod(0o666)
        self._executions = Evidence(self._evidence)
        self._history = History(root / "history.jsonl")
        self._seen: set[Violation] = set()
        self._ended = 0
        self._held = 0
        self._check_at = 0.0

    def run(self, is_over: Callable[[Progress], bool]) -> Verdict:
        """`is_over` is asked before each strike."""
        with self.fleet as fleet:
            with psycopg.connect(fleet.database_url, autocommit=True) as connection:
                connection.execute(WATCH_OUTCOMES)
            load = Load(fleet.client_url, fleet.admin, self._history, self._evidence, self._seed)
            load.start()
            nemesis = Nemesis(fleet)
            self._war(nemesis, load, is_over)
            self._peace(nemesis, load)
            fleet.stop_agents()
            self._look_around()
            self.verdict.by_kind = nemesis.counted()
            self.verdict.faults = nemesis.faults
            # A war that ended before the directed part did had no other.
            self.verdict.directed = self.verdict.directed or nemesis.faults
            self.verdict.points = frozenset(fleet.firings.points())
        self.verdict.tasks = len(self._history.tasks)
        self.verdict.unexpected = fleet.unexpected
        return self.verdict

    # War

    def _war(self, nemesis: Nemesis, load: Load, is_over: Callable[[Progress], bool]) -> None:
        strikes = self._strikes(nemesis)
        began = time.monotonic()
        self._check_at = began + CHECK_S
        while not is_over(progress := self._progress(nemesis, began)):
            load.raise_trouble()
            self._count(load)
            self.verdict.strikes += 1
            self.verdict.in_flight += self._held > 0
            strike = next(strikes)
            self._history.note("strike", number=self.verdict.strikes, strike=str(strike))
            nemesis.carry_out(strike)
            self._linger(nemesis, PACE_S)
            self._check_if_due()
            if self.verdict.strikes % ROUND == 0:
                self._breathe(nemesis, load)
                self._say(
                    f"  {progress.seconds:5.0f} s  {progress.faults} faults, "
                    f"{len(self._history.tasks)} tasks acknowledged, {load.backlog} waiting"
                )
        self.verdict.seconds_of_war = time.monotonic() - began

    def _strikes(self, nemesis: Nemesis) -> Iterator[Strike]:
        """The directed ones, then random ones; between these, points that have not fired yet."""
        yield from directed(self._seed)
        self.verdict.directed = nemesis.faults
        dice = random.Random(self._seed)
        for number, strike in enumerate(draw(self._seed)):
            yield strike
            # Whoever is armed already is given time.
            armed = {point_of(part.armed) for part in self.fleet.parts.values()}
            silent = [point for point in self._silent_points() if point not in armed]
            if silent and number % 2:
                yield arming(silent[number // 2 % len(silent)], dice)

    def _progress(self, nemesis: Nemesis, began: float) -> Progress:
        faults = nemesis.faults
        return Progress(
            faults=faults,
            random_faults=faults - self.verdict.directed if self.verdict.directed else 0,
            seconds=time.monotonic() - began,
            executed=self.verdict.executed_in_war,
            silent_points=self._silent_points(),
        )

    def _silent_points(self) -> tuple[str, ...]:
        fired = self.fleet.firings.points()
        return tuple(point for point in POINTS if point not in fired)

    def _linger(self, nemesis: Nemesis, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while True:
            nemesis.relent()
            self.fleet.tend()
            if time.monotonic() >= deadline:
                return
            time.sleep(0.05)

    def _breathe(self, nemesis: Nemesis, load: Load) -> None:
        """Until some tasks have ended, or there was time enough for that."""
        before = self._ended
        deadline = time.monotonic() + self._breath.at_most_s
        while self._ended - before < self._breath.tasks and time.monotonic() < deadline:
            self.fleet.disarm(only_met=True)
            nemesis.provoke()
            self._linger(nemesis, 0.25)
            self._count(load)
            self._check_if_due()

    def _check_if_due(self) -> None:
        began = time.monotonic()
        if began > self._check_at and not self.fleet.parts["postgres"].is_stopped():
            self._check(ALWAYS)
            took_s = time.monotonic() - began
            # In an hour so much is promised that looking takes long; it must not be all we do.
            self._check_at = time.monotonic() + max(CHECK_S, 3 * took_s)

    def _count(self, load: Load) -> None:
        self._held = 0
        rows = self._ask(
            "SELECT (SELECT count(*) FROM active_tasks WHERE state >= 2), count(*),"
            " count(*) FILTER (WHERE outcome <> 4) FROM archived_tasks"
        )
        if rows:
            self._held, self._ended, self.verdict.executed_in_war = rows[0]
            load.ended = self.verdict.in_war = self._ended

    # Peace

    def _peace(self, nemesis: Nemesis, load: Load) -> None:
        began = time.monotonic()
        nemesis.relent(at_once=True)
        self.fleet.house.heal()
        self.fleet.disarm()
        self.fleet.wait_ready()
        load.halt()
        while load.is_alive() or not self._is_settled():
            self.fleet.tend()
            if time.monotonic() - began > PEACE_S:
                break
            load.join(0.2)
        self.verdict.seconds_to_peace = time.monotonic() - began
        load.raise_trouble()
        self._check(ALWAYS)
        self._check(SETTLED)
        for part in self.fleet.agents():
            self._note(DRIFT, zombies(part.pid))

    def _is_settled(self) -> bool:
        rows = self._ask(
            "SELECT (SELECT count(*) FROM active_tasks) + (SELECT count(*) FROM task_suites"
            " WHERE state IN (0, 1) AND submit_count > 0) + (SELECT count(*)"
            " FROM suite_assignments WHERE released_at IS NULL)"
        )
        return bool(rows) and rows[0][0] == 0

    def _look_around(self) -> None:
        hosts = []
        for part, marker in zip(self.fleet.agents(), self.fleet.markers(), strict=True):
            argv = part.spec.argv
            hosts.append(
                Host(
                    marker,
                    argv[argv.index("--instance") + 1],
                    Path(argv[argv.index("--data-dir") + 1]),
                )
            )
        self._note(DRIFT, leftovers(hosts))

    # Asking

    def _ask(self, sql: str) -> list[tuple[Any, ...]]:
        """Nothing while the database is away."""
        if self.fleet.parts["postgres"].is_stopped():
            return []  # whoever waited for it could not let it go on
        try:
            with psycopg.connect(
                self.fleet.database_url, autocommit=True, connect_timeout=3
            ) as connection:
                return connection.execute(sql).fetchall()
        except psycopg.OperationalError:
            return []

    def _check(self, checks: tuple[tuple[str, str, Check], ...]) -> None:
        # The promises first: what is acknowledged after this is not looked for.
        tasks, accepted = self._history.snapshot(), list(self.fleet.house.accepted.attempt_ids)
        began = time.monotonic()
        try:
            with psycopg.connect(
                self.fleet.database_url, autocommit=True, connect_timeout=3
            ) as connection:
                world = World(
                    connection=connection,
                    tasks=tasks,
                    suites=dict(self._history.suites),
                    cancelled=set(self._history.cancelled),
                    executions=self._executions.read(),
                    accepted_attempts=accepted,
                    lease_s=LEASE_S,
                    read_object=self._read_object,
                )
                found = violations(world, checks)
        except psycopg.OperationalError:
            if checks is SETTLED:
                raise
            return
        self.verdict.checks += 1
        took_s = time.monotonic() - began
        self.verdict.slowest_check_s = max(self.verdict.slowest_check_s, took_s)
        for one in found:
            self._add(one)

    @cached_property
    def _store(self) -> Any:
        """Straight to the real one, past the proxy."""
        env = self.fleet.environment
        return boto3.client(
            "s3",
            endpoint_url=self.fleet.store_url,
            aws_access_key_id=env["S3_ACCESS_KEY_ID"],
            aws_secret_access_key=env["S3_SECRET_ACCESS_KEY"],
            region_name=env.get("S3_REGION", "us-east-1"),
        )

    def _read_object(self, key: str) -> bytes | None:
        try:
            body: bytes = self._store.get_object(Bucket="mitosis-artifacts", Key=key)["Body"].read()
        except (BotoCoreError, ClientError):
            return None
        return body

    def _note(self, counts_as: str, texts: list[str]) -> None:
        for text in texts:
            self._add(Violation("system", counts_as, text))

    def _add(self, one: Violation) -> None:
        if one not in self._seen:
            self._seen.add(one)
            self.verdict.found.append(one)
            if len(self.verdict.found) <= MAX_SAID:
                self._say(f"  VIOLATION {one}")
