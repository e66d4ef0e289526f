"""One chaos run from birth to verdict: load and nemesis, then peace, then the reckoning."""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import boto3
import psycopg
from botocore.exceptions import BotoCoreError, ClientError

from tests.chaos.fleet import LEASE_S, Fleet
from tests.chaos.history import History, read_executions
from tests.chaos.invariants import (
    ALWAYS,
    DOUBLED,
    DRIFT,
    LOST,
    SETTLED,
    STUCK,
    WATCH_OUTCOMES,
    Check,
    Violation,
    World,
    violations,
)
from tests.chaos.leftovers import Host, leftovers, zombies
from tests.chaos.load import Load
from tests.chaos.nemesis import Nemesis
from tests.chaos.strikes import draw

# Between two strikes; a slow machine strikes less often, not sooner after each other.
PACE_S: Final = 0.25
CHECK_S: Final = 5.0
# After so many strikes the fleet gets time to do some work, so that there is work to hurt.
ROUND: Final = 10
BREATH_S: Final = 12.0
PROGRESS: Final = 20
# The plan's bound is three leases; the rest is for a machine that does other things as well.
MAX_SAID: Final = 20
PEACE_S: Final = 3 * LEASE_S + 120


@dataclass
class Verdict:
    """All but the first two must be zero."""

    faults: int = 0
    tasks: int = 0
    by_kind: Counter[str] = field(default_factory=Counter)
    found: list[Violation] = field(default_factory=list)
    unexpected: list[str] = field(default_factory=list)
    seconds_to_peace: float = 0.0
    checks: int = 0

    def count(self, what: str) -> int:
        return sum(1 for one in self.found if one.counts_as == what)

    @property
    def is_clean(self) -> bool:
        return not self.found and not self.unexpected

    def __str__(self) -> str:
        return (
            f"faults={self.faults} tasks={self.tasks} lost={self.count(LOST)} "
            f"doubled={self.count(DOUBLED)} stuck={self.count(STUCK)} drift={self.count(DRIFT)}"
        )


class Campaign:
    """`run` until `is_over` says so; `say` hears one line now and then."""

    def __init__(
        self, root: Path, open_dir: Path, *, seed: int, say: Callable[[str], None] = print
    ) -> None:
        self.fleet = Fleet(root)
        self.verdict = Verdict()
        self._seed = seed
        self._say = say
        self._evidence = open_dir / "executions"
        self._evidence.touch()
        self._evidence.chmod(0o666)
        self._history = History(root / "history.jsonl")
        self._seen: set[Violation] = set()
        self._ended = 0

    def run(self, is_over: Callable[[int, float], bool]) -> Verdict:
        """`is_over` is asked with the faults so far and the seconds since the first strike."""
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
        self.verdict.tasks = len(self._history.tasks)
        self.verdict.unexpected = fleet.unexpected
        return self.verdict

    # War

    def _war(self, nemesis: Nemesis, load: Load, is_over: Callable[[int, float], bool]) -> None:
        strikes = draw(self._seed)
        began = time.monotonic()
        check_at = began + CHECK_S
        number = 0
        while not is_over(nemesis.faults, time.monotonic() - began):
            number += 1
            strike = next(strikes)
            self._history.note("strike", number=number, strike=str(strike))
            nemesis.carry_out(strike)
            self._linger(nemesis, PACE_S)
            if number % ROUND == 0:
                self._breathe(nemesis, load)
            if time.monotonic() > check_at:
                self._check(ALWAYS)
                self._say(
                    f"  {time.monotonic() - began:5.0f} s  {nemesis.faults} faults, "
                    f"{len(self._history.tasks)} tasks acknowledged, {load.backlog} waiting"
                )
                check_at = time.monotonic() + CHECK_S

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
        deadline = time.monotonic() + BREATH_S
        while self._ended - before < PROGRESS and time.monotonic() < deadline:
            self._linger(nemesis, 0.25)
            self._count(load)

    def _count(self, load: Load) -> None:
        rows = self._ask("SELECT count(*), (SELECT count(*) FROM archived_tasks) FROM active_tasks")
        if rows:
            load.backlog, self._ended = rows[0]

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
        if load.trouble is not None:
            raise load.trouble
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
        try:
            with psycopg.connect(
                self.fleet.database_url, autocommit=True, connect_timeout=3
            ) as connection:
                world = World(
                    connection=connection,
                    tasks=tasks,
                    suites=dict(self._history.suites),
                    cancelled=set(self._history.cancelled),
                    executions=read_executions(self._evidence),
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
        for one in found:
            self._add(one)

    def _read_object(self, key: str) -> bytes | None:
        env = self.fleet.environment
        client = boto3.client(
            "s3",
            endpoint_url=self.fleet.store_url,
            aws_access_key_id=env["S3_ACCESS_KEY_ID"],
            aws_secret_access_key=env["S3_SECRET_ACCESS_KEY"],
            region_name=env.get("S3_REGION", "us-east-1"),
        )
        try:
            body: bytes = client.get_object(Bucket="mitosis-artifacts", Key=key)["Body"].read()
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
