"""Real PostgreSQL, Valkey and S3 for the tests, started when the first test needs them.

Loaded as a pytest plugin before Django: it decides the addresses and puts them into the
environment at once, and starts the servers only when a fixture asks. MITOSIS_TEST_DATABASE_URL,
MITOSIS_TEST_REDIS_URL and MITOSIS_TEST_S3_ENDPOINT_URL (+ keys) use running servers instead.
"""

import os
import shutil
import signal
import tempfile
from pathlib import Path

from mitosis_stack.assembly import Backing, build_backing
from mitosis_stack.layout import DataDir, remove_runtime_dir
from mitosis_stack.process import Child, spawn, wait_until
from mitosis_stack.settings import ExternalServices, StackSettings

# The data of a test run is thrown away, so nobody waits for the disk.
THROW_AWAY = {
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "200",
    # The server is killed in the end; its segments go with the data instead of staying in memory.
    "dynamic_shared_memory_type": "mmap",
}

S3_VARIABLES = ("S3_ENDPOINT_URL", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY")


class TestServices:
    """The stores of one test run."""

    __test__ = False

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mitosis-tests-"))
        self._data = DataDir(self.root / "data")
        self._children: list[Child] = []
        self._data.create()
        self._backing: Backing = build_backing(self._data, _settings(self.root), {}, THROW_AWAY)
        os.environ.update(self._backing.environment)
        keys = self.root / "keys"
        keys.mkdir(mode=0o700)
        os.environ["MITOSIS_KEYS_DIR"] = str(keys)
        os.environ["DJANGO_SETTINGS_MODULE"] = "mitosis_site.settings.test"

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to reach the same stores."""
        return dict(self._backing.environment)

    def start(self) -> None:
        if self._children:
            return
        for service in self._backing.services:
            service.prepare()
            self._children.append(spawn(service.spec()))
        for service, child in zip(self._backing.services, self._children, strict=True):
            wait_until(service.is_ready, child=child, timeout_s=service.start_timeout_s)

    def stop(self) -> None:
        for child in reversed(self._children):
            child.kill()
        remove_runtime_dir(self._backing.sockets)
        shutil.rmtree(self.root, ignore_errors=True)


def _settings(root: Path) -> StackSettings:
    environ = os.environ
    s3 = {name: environ.get(f"MITOSIS_TEST_{name}", "") for name in S3_VARIABLES}
    return StackSettings(
        data_dir=root,
        port=None,
        agents=0,
        asgi_server="uvicorn",
        external=ExternalServices(
            database_url=environ.get("MITOSIS_TEST_DATABASE_URL") or None,
            redis_url=environ.get("MITOSIS_TEST_REDIS_URL") or None,
            s3=s3 if s3["S3_ENDPOINT_URL"] else None,
        ),
        inherited={name: environ[name] for name in ("PATH", "HOME") if name in environ},
        service_user=None,
        runtime_base=None,
    )


# A run in the background of a script ignores Ctrl-C, and so would every program it starts; tests
# that press it would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SERVICES = TestServices()


def pytest_unconfigure() -> None:
    SERVICES.stop()
