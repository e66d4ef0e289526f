"""A whole deployment that expects to be hurt: stores, two coordinators, Celery, agents, a worker.

Every part is a real process with a log of its own. Whatever ends is started again by `tend`; an
agent that dies is not helped by us: what it leaves behind is its own and its next life's business.
Agents and clients reach their coordinator through proxies, and everybody the object store. Every
coordinator process and every agent has a wall clock of its own, which may be wrong.
"""

import contextlib
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import psutil
import psycopg

from mitosis_stack.agents import NodeAgent
from mitosis_stack.assembly import (
    base_url,
    bootstrap_spec,
    build_backing,
    coordinator_environment,
)
from mitosis_stack.coordinator import AsgiServer, CeleryProcess
from mitosis_stack.layout import DataDir, remove_runtime_dir
from mitosis_stack.ports import pick_free
from mitosis_stack.process import log_tail, spawn, wait_until
from mitosis_stack.services import Service
from mitosis_stack.settings import ExternalServices, StackSettings
from nodeagent.marker import marker_value
from tests.chaos.clocks import Clock
from tests.chaos.firings import Firings
from tests.chaos.parts import Part, flag_of, marked_processes, worker_spec
from tests.chaos.proxies import ProxyHouse
from tests.chaos.store_proxy import StoreProxy

LEASE_S = 6.0
# An agent stops what it must at five sixths of the lease. The reaper comes four seconds after its
# end: so late may a starved or stopped agent be, and still nothing runs twice at a time.
POLICY = (
    f"heartbeat_s=1,lease_ttl_s={LEASE_S:g},reaper_grace_s=4,sweep_s=1,idle_poll_s=3,"
    f"pool_wait_s=1,existing_worker_lease_s={LEASE_S:g},"
    # A fleet of three loses a third of itself with every strike, and clones itself with every cut.
    "mass_expiry_ratio=1,mass_expiry_patience_s=10,supersedes_per_minute=1000000,"
    "user_requests_per_s=100000,login_per_minute=100000,retry_backoff_s=0.1,retry_backoff_max_s=1"
)
# No link is good for long here; agents that wait for a minute would leave nothing to hurt.
RECONNECT_MAX = "1500ms"
# Killing workers at random looks like a bad host; a quarantine would end the run early.
NO_QUARANTINE = (
    "INSERT INTO manager_config (id, quarantine_failures) VALUES (1, 1000000)"
    " ON CONFLICT (id) DO UPDATE SET quarantine_failures = 1000000"
)
STORES = ("postgres", "valkey", "s3")
STORE_LINK = "store"  # the proxy in front of the object store
START_S = 120.0


class Fleet:
    """`with Fleet(root) as fleet:`; leaving ends every process, politely first."""

    def __init__(self, root: Path, *, agents: int = 3, coordinators: int = 2) -> None:
        self.root = root
        self.data = DataDir(root / "data")
        self.house = ProxyHouse()
        self._sockets: Path | None = None
        self.parts: dict[str, Part] = {}
        self.clocks: dict[str, Clock] = {}
        self.firings = Firings()
        self.unexpected: list[str] = []
        self._agents = agents
        self._ports = list(pick_free([f"web{n}" for n in range(coordinators)], {}).values())
        self._inherited = {
            **{name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            "PYTHONPATH": str(Path.cwd()),
            "MITOSIS_POLICY": POLICY,
            "MITO_AGENT_RECONNECT_MAX": RECONNECT_MAX,
        }

    def __enter__(self) -> "Fleet":
        self.data.create()
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Addresses

    @property
    def database_url(self) -> str:
        return str(self.environment["DATABASE_URL"])

    @property
    def admin(self) -> tuple[str, str]:
        stored = json.loads(self.data.admin.read_text())
        return stored["username"], stored["password"]

    @property
    def client_url(self) -> str:
        return base_url(self.house.proxies["client"].port)

    @property
    def web_ports(self) -> list[int]:
        return list(self._ports)

    def agents(self) -> list[Part]:
        return [part for name, part in self.parts.items() if name.startswith("agent-")]

    def markers(self) -> list[str]:
        """By which everything an agent has started can be told."""
        return [
            marker_value(flag_of(part, "--instance"), Path(flag_of(part, "--data-dir")))
            for part in self.agents()
        ]

    def managed_processes(self) -> list[psutil.Process]:
        """Workers, launchers, hooks and commands; oldest first."""
        return marked_processes(self.markers())

    # Life

    def fired(self) -> Counter[str]:
        """How often each faultpoint has done what it was armed for, as `point action`."""
        return self.firings.read(part.spec.log for part in self.parts.values())

    def tend(self) -> None:
        """Bury and start again whatever has ended."""
        for part in self.parts.values():
            if not part.has_ended():
                continue
            status = part.bury()
            self._note_end(part, status)
            part.start()

    def arm(self, name: str, plan: str) -> None:
        """End a part and start it with a fault in it."""
        part = self.parts[name]
        part.is_expected_dead = True
        part.signal(signal.SIGKILL)
        part.bury()
        part.deaths_before = self._deaths_at(plan)
        part.start(plan)

    def disarm(self, *, only_met: bool = False) -> None:
        """What still carries a fault ends; `tend` starts it without. A fault in an agent's workers
        would otherwise kill every one of them, and no work would ever end there.
        """
        for name, part in self.parts.items():
            if part.armed and not part.has_ended() and (self._was_met(part) or not only_met):
                self.kill(name)

    def _was_met(self, part: Part) -> bool:
        return self._deaths_at(part.armed) > part.deaths_before

    def _deaths_at(self, plan: str) -> int:
        return self.fired()[f"{plan.partition('=')[0]} kill9"]

    def kill(self, name: str) -> None:
        part = self.parts[name]
        part.is_expected_dead = True
        part.signal(signal.SIGKILL)
        part.signal(signal.SIGCONT)

    def is_ready(self) -> bool:
        return all(part.is_ready() for part in self.parts.values())

    def wait_ready(self, within_s: float = START_S) -> None:
        deadline = time.monotonic() + within_s
        while not self.is_ready():
            self.tend()
            late = [name for name, part in self.parts.items() if not part.is_ready()]
            assert time.monotonic() < deadline, f"not ready: {late}\n{self.tails(late)}"
            time.sleep(0.1)

    def tails(self, names: list[str], lines: int = 8) -> str:
        return "\n".join(f"--- {n}\n{log_tail(self.parts[n].spec.log, lines)}" for n in names)

    def stop_agents(self) -> None:
        """As an operator would, so that what stays afterwards is a leak."""
        runners = [*self.agents(), self.parts["worker"]]
        for part in runners:
            part.is_expected_dead = True
            part.signal(signal.SIGTERM)
        deadline = time.monotonic() + 60
        for part in runners:
            while not part.has_ended() and time.monotonic() < deadline:
                time.sleep(0.05)

    def stop(self) -> None:
        for part in reversed(self.parts.values()):
            if part.child is not None:
                part.signal(signal.SIGCONT)
                part.child.kill()
        for process in self.managed_processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        self.house.close()
        if self._sockets is not None:
            remove_runtime_dir(self._sockets)

    def _note_end(self, part: Part, status: int) -> None:
        if part.is_expected_dead or (part.armed and status == -signal.SIGKILL):
            return
        tail = log_tail(part.spec.log, 12)
        if part.name == "postgres" and "pre-existing shared memory" in tail:
            return  # it was killed, and waits for the last of its old processes to go
        self.unexpected.append(f"{part.name} ended with status {status}:\n{tail}")

    # Birth

    def _start(self) -> None:
        settings = StackSettings(
            data_dir=self.data.root,
            port=None,
            agents=0,
            asgi_server="uvicorn",
            external=ExternalServices(),
            inherited=self._inherited,
            service_user=None,
            runtime_base=None,
        )
        # PostgreSQL keeps its own defaults: synchronous, with a disk behind it.
        backing = build_backing(
            self.data,
            settings,
            {},
            {"dynamic_shared_memory_type": "mmap", "max_connections": "150"},
        )
        self._sockets = backing.sockets
        for service in backing.services:
            self._add(service)
        self._wait_for(backing.services)
        url = base_url(self._ports[0])
        self.environment = coordinator_environment(self.data, settings, backing, url)
        self.store_url = self.environment["S3_ENDPOINT_URL"]
        port = self.house.open(STORE_LINK, urlsplit(self.store_url).port or 80, StoreProxy)
        self.environment["S3_ENDPOINT_URL"] = base_url(port)
        setup = spawn(bootstrap_spec(self.data, self.environment, url))
        wait_until(lambda: setup.poll() == 0, child=setup, timeout_s=START_S)
        with psycopg.connect(self.database_url, autocommit=True) as connection:
            connection.execute(NO_QUARANTINE)
        for service in self._coordinators():
            self._add(service)
        self._add_runners()
        self.wait_ready()

    def _coordinators(self) -> list[Service]:
        logs = self.data.logs

        def env(name: str) -> dict[str, str]:
            return {**self.environment, **self._clock(name)}

        web: list[Service] = [
            AsgiServer(port=port, log=logs / f"web{n}.log", env=env(f"web{n}"), name=f"web{n}")
            for n, port in enumerate(self._ports)
        ]
        celery: list[Service] = [
            CeleryProcess(
                role=role,
                directory=self.data.celery,
                log=logs / f"celery-{role}.log",
                env=env(f"celery-{role}"),
            )
            for role in ("worker", "beat")
        ]
        return [*web, *celery]

    def _add_runners(self) -> None:
        self.house.open("client", self._ports[0])
        for number in range(1, self._agents + 1):
            port = self.house.open(f"agent-{number}", self._ports[number % len(self._ports)])
            agent = NodeAgent(
                number=number, data=self.data, url=base_url(port), admin=self.admin,
                inherited={**self._inherited, **self._clock(f"agent-{number}")},
            )  # fmt: skip
            self._add(agent, is_group=False)
        port = self.house.open("worker", self._ports[-1])
        spec = worker_spec(self.data, base_url(port), self.admin, self._inherited)
        self.parts["worker"] = part = Part("worker", spec, is_group=False)
        part.start()

    def _clock(self, name: str) -> dict[str, str]:
        """A new clock, as the environment of whoever goes by it."""
        self.clocks[name] = clock = Clock(self.root / f"clock-{name}")
        return clock.environment(self._inherited["PYTHONPATH"])

    def _add(self, service: Service, *, is_group: bool = True) -> None:
        service.prepare()
        part = Part(service.name, service.spec(), service.prepare, service.is_ready, is_group)
        self.parts[service.name] = part
        part.start()

    def _wait_for(self, services: tuple[Service, ...]) -> None:
        for service in services:
            child = self.parts[service.name].child
            assert child is not None
            wait_until(service.is_ready, child=child, timeout_s=START_S)
