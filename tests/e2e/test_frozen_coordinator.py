"""A coordinator that stands still for longer than a lease, as in a frozen virtual machine."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.agent_lab import BRISK, AgentLab
from tests.e2e.cluster import Cluster
from tests.harness import TestServices
from tests.integration.workers.live_user import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]


@pytest.fixture
def lab(services: TestServices, tmp_path: Path) -> Iterator[AgentLab]:
    with Cluster(tmp_path / "pair", coordinators=2, environment=BRISK) as cluster:
        found = AgentLab(cluster)
        yield found
        found.close()


def test_it_costs_no_agent_and_no_run(lab: AgentLab, open_dir: Path) -> None:
    """Its leases end elsewhere meanwhile; what it hears first afterwards are beats."""
    go = open_dir / "go"
    script = f"echo ran >> {open_dir}/$MITO_TASK_UUID; until [ -e {go} ]; do sleep 0.1; done"
    suite = lab.suite(tags=["frozen"], workers=1)
    task = lab.sh(suite, script)
    frozen = lab.cluster.child("web1")
    with lab.agent("patient", "--tags", "frozen", url=lab.cluster.urls[1]) as agent:
        lab.user.running(task, within_s=60)
        frozen.signal(signal.SIGSTOP)
        try:
            eventually(lambda: lab.user.task(task)["state"] == "Ready", within_s=60)
        finally:
            frozen.signal(signal.SIGCONT)
        lab.user.running(task, within_s=60)
        go.touch()
        info = lab.user.ended(task, within_s=60)
        assert (info["outcome"], info["attempt"]) == ("succeeded", 1)
        assert agent.child.poll() is None
        assert lab.cluster.log("patient").count('"agent.started"') == 1
    assert (open_dir / task).read_text() == "ran\n"
