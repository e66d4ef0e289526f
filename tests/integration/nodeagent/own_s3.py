"""An S3 service of one test's own, which it may stop and start again on the same port."""

import os
from pathlib import Path

from mitosis_stack.binaries import find_weed
from mitosis_stack.ports import pick_free
from mitosis_stack.process import Child, spawn, wait_until
from mitosis_stack.seaweed import PORT_NAMES, Seaweed, SeaweedSecrets


class OwnS3:
    def __init__(self, root: Path) -> None:
        directory = root / "s3"
        directory.mkdir()
        self._seaweed = Seaweed(
            program=find_weed(),
            directory=directory,
            sockets=root,
            log=root / "s3.log",
            ports=pick_free(PORT_NAMES, {}),
            secrets=SeaweedSecrets("test-access", "test-secret-key", "test-internal-key"),
            inherited={"PATH": os.environ["PATH"], "HOME": str(root)},
        )
        self._seaweed.prepare()
        self._child: Child | None = None

    @property
    def environment(self) -> dict[str, str]:
        return self._seaweed.environment

    @property
    def pid(self) -> int:
        assert self._child is not None, "not started"
        return self._child.pid

    def start(self) -> None:
        self._child = spawn(self._seaweed.spec())
        wait_until(self._seaweed.is_ready, child=self._child, timeout_s=60)

    def stop(self, *, gently: bool = False) -> None:
        """Killed, as in an accident, or asked, as by `mitosis down`."""
        if self._child is not None:
            if gently:
                self._child.stop()
            self._child.kill()
            self._child = None
