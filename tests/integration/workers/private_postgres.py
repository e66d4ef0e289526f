"""A PostgreSQL of one test module, which may be killed without hurting anybody else."""

import os
from pathlib import Path

from mitosis_stack.assembly import build_backing
from mitosis_stack.layout import DataDir, remove_runtime_dir
from mitosis_stack.process import Child, spawn, wait_until
from mitosis_stack.settings import ExternalServices, StackSettings
from tests.harness import S3_VARIABLES


class PrivatePostgres:
    """Durable as in production: fsync is on."""

    def __init__(self, root: Path) -> None:
        data = DataDir(root / "data")
        data.create()
        settings = StackSettings(
            data_dir=root,
            port=None,
            agents=0,
            asgi_server="uvicorn",
            external=ExternalServices(
                database_url=None,
                redis_url=os.environ["REDIS_URL"],
                s3={name: os.environ[name] for name in S3_VARIABLES},
            ),
            inherited={name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ},
            service_user=None,
            runtime_base=None,
        )
        backing = build_backing(data, settings, {})
        [self._service] = backing.services
        self._sockets = backing.sockets
        self.url = backing.environment["DATABASE_URL"]
        self._child: Child | None = None

    def start(self) -> None:
        self._service.prepare()
        self._child = spawn(self._service.spec())
        wait_until(self._service.is_ready, child=self._child, timeout_s=60)

    def kill(self) -> None:
        """The postmaster and every backend, at once."""
        assert self._child is not None
        self._child.kill()

    def stop(self) -> None:
        assert self._child is not None
        self._child.stop()
        remove_runtime_dir(self._sockets)
