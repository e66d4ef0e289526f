"""Without Valkey there are no hints: work goes on, found by those who ask, and nothing is lost."""

import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mitosis_stack.binaries import find_valkey
from mitosis_stack.process import Child, spawn, wait_until
from mitosis_stack.valkey import Valkey
from tests.e2e.agent_lab import AgentLab
from tests.e2e.cluster import Cluster
from tests.figures import Figure
from tests.harness import TestServices

# Ten minutes on demand; what is found by asking is found the same way after half a minute.
ABSENCE_S = float(os.environ.get("VALKEY_AWAY_SECONDS", "30"))
PICKUP_S = 15.0

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300 + 2 * ABSENCE_S)]


@pytest.fixture
def valkey() -> Iterator[Valkey]:
    """One that nobody else needs."""
    with tempfile.TemporaryDirectory(prefix="mv-") as home:
        yield Valkey(
            program=find_valkey(),
            directory=Path(home) / "data",
            socket=Path(home) / "valkey.sock",
            log=Path(home) / "valkey.log",
            inherited={"PATH": os.environ["PATH"]},
        )


def _start(valkey: Valkey) -> Child:
    valkey.prepare()
    child = spawn(valkey.spec())
    wait_until(valkey.is_ready, child=child, timeout_s=valkey.start_timeout_s)
    return child


def test_tasks_are_picked_up_while_valkey_is_dead_and_after_it_is_back(
    services: TestServices, tmp_path: Path, valkey: Valkey, figure: Figure
) -> None:
    """With the numbers of an installation, not with those of tests: polls take their 15 s."""
    server = _start(valkey)
    with Cluster(tmp_path, environment={"REDIS_URL": valkey.url}) as cluster:
        lab = AgentLab(cluster)
        with lab.agent("one"):
            lab.wait_for_managers(1)
            suite = lab.suite(settle_seconds=3600)
            tasks = [lab.sh(suite, "true")]
            lab.user.ended(tasks[0], within_s=60)
            server.kill()
            killed_at = time.monotonic()
            waits = []
            while not waits or time.monotonic() - killed_at < ABSENCE_S:
                began = time.monotonic()
                tasks.append(lab.sh(suite, "true"))
                assert lab.user.ended(tasks[-1], within_s=60)["outcome"] == "succeeded"
                waits.append(time.monotonic() - began)
            server = _start(valkey)
            tasks.append(lab.sh(suite, "true"))
            lab.user.ended(tasks[-1], within_s=60)
            lab.post(f"/suites/{suite}/close", {})
            info = lab.wait_complete(suite)
        lab.close()
    server.kill()
    assert info["succeeded_tasks"] == info["total_tasks"] == len(tasks)
    figure("dead Valkey: a task submitted and done", max(waits), "s", at_most=PICKUP_S)
