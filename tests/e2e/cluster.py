"""A coordinator made of real processes on the test stores: web servers, Celery worker and beat.

Logs go to one file per process; leaving the context fails if any process died on the way.
"""

import os
import uuid
from pathlib import Path
from types import TracebackType

from mitosis_stack.assembly import base_url
from mitosis_stack.coordinator import AsgiServer, CeleryProcess
from mitosis_stack.ports import pick_free
from mitosis_stack.process import Child, ChildSpec, log_tail, spawn, wait_until
from mitosis_stack.services import Service
from tests.e2e.ready_database import Admin, create_ready, run_sql, url_of


class Cluster:
    """One deployment with its own database; `with Cluster(root) as cluster: ...`."""

    def __init__(
        self, root: Path, *, coordinators: int = 1, server: str = "uvicorn",
        environment: dict[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.root = root
        self.logs = root / "logs"
        self._server = server
        self._extra = environment or {}
        self._database = f"cluster_{uuid.uuid4().hex[:12]}"
        self._ports = list(pick_free([f"web{n}" for n in range(coordinators)], {}).values())
        self._admin: Admin | None = None
        self._children: dict[str, Child] = {}
        self._expected_dead: set[str] = set()

    @property
    def urls(self) -> list[str]:
        return [base_url(port) for port in self._ports]

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def admin(self) -> tuple[str, str]:
        assert self._admin is not None, "the cluster was not entered"
        return self._admin.username, self._admin.password

    @property
    def database_url(self) -> str:
        return url_of(self._database)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "mitosis_site.settings.prod",
            "DATABASE_URL": self.database_url,
            "MITOSIS_KEYS_DIR": str(self.root / "keys"),
            "MITOSIS_PUBLIC_URL": self.url,
            "PYTHONUNBUFFERED": "1",
            **self._extra,
            # One user of a test does the work of hundreds; a test may name its own number.
            "MITOSIS_POLICY": f"user_requests_per_s=100000,{self._extra.get('MITOSIS_POLICY', '')}",
        }

    def __enter__(self) -> "Cluster":
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.root / "keys").mkdir(exist_ok=True, mode=0o700)
        self._prepare()
        for service in self._services():
            self.start(service)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        dead = self.dead()
        for child in reversed(self._children.values()):
            child.stop()
        run_sql(f'DROP DATABASE "{self._database}" WITH (FORCE)')
        if kind is None:
            assert not dead, "\n".join(dead)

    def start(self, service: Service) -> Child:
        service.prepare()
        child = spawn(service.spec())
        self._children[service.name] = child
        wait_until(service.is_ready, child=child, timeout_s=service.start_timeout_s)
        return child

    def start_program(self, name: str, *argv: str, env: dict[str, str] | None = None) -> Child:
        """Any further process of the deployment, e.g. a worker."""
        spec = ChildSpec(
            name=name, argv=argv, log=self.logs / f"{name}.log", env=env or self.environment
        )
        self._children[name] = child = spawn(spec)
        return child

    def child(self, name: str) -> Child:
        return self._children[name]

    def kill(self, name: str) -> None:
        """kill -9 on purpose; its death is not a failure of the test."""
        self._expected_dead.add(name)
        self._children[name].kill()

    def revive(self, spec: ChildSpec) -> None:
        """Start a killed process again, exactly as before."""
        self._expected_dead.discard(spec.name)
        self._children[spec.name] = spawn(spec)

    def expect_exit(self, name: str) -> None:
        self._expected_dead.add(name)

    def log(self, name: str) -> str:
        return (self.logs / f"{name}.log").read_text()

    def dead(self) -> list[str]:
        """Processes that ended although nobody asked them to, with the end of their logs."""
        return [
            f"{name} died with status {child.poll()}:\n{log_tail(child.spec.log, 20)}"
            for name, child in self._children.items()
            if child.poll() is not None and name not in self._expected_dead
        ]

    def _services(self) -> list[Service]:
        env = self.environment
        web: list[Service] = [
            AsgiServer(port=port, log=self.logs / f"web{n}.log", env=env, kind=self._server,
                       name=f"web{n}")
            for n, port in enumerate(self._ports)
        ]  # fmt: skip
        celery: list[Service] = [
            CeleryProcess(role=role, directory=self.root / "celery",
                          log=self.logs / f"celery-{role}.log", env=env)
            for role in ("worker", "beat")
        ]  # fmt: skip
        return [*web, *celery]

    def _prepare(self) -> None:
        """What `bootstrap` does in an installation, by copying one that was done."""
        log = self.logs / "bootstrap.log"
        self._admin = create_ready(self._database, environment=self.environment, log=log)
