"""The agent's process is killed: whatever it had started is gone soon after."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import psutil
import pytest

from tests.fakes.worker_process import living, wait_until

AGENT = """
import asyncio, sys
from tests.fakes.pool_lab import PoolLab

async def main():
    lab = PoolLab(instance=sys.argv[1], use_cgroups=sys.argv[3] == "cgroups")
    await lab.pool.open()
    for _ in range(3):
        worker = await lab.spawn()
        script = "setsid sh -c 'trap \\"\\" TERM; while :; do sleep 1; done' & sleep 600"
        worker.tell(argv=["sh", "-c", script], env={"PATH": "/bin:/usr/bin", "MARK": sys.argv[2]})
    print(lab.pool._link.pid, *(worker.pid for worker in lab.workers), flush=True)
    await asyncio.sleep(600)

asyncio.run(main())
"""


class Agent:
    """A process with a pool of three busy workers."""

    def __init__(self, marker: str, cgroups: str) -> None:
        self.marker = marker
        self.instance = f"test-agent-{uuid4().hex[:8]}"
        self.process = subprocess.Popen(
            [sys.executable, "-c", AGENT, self.instance, marker, cgroups],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path.cwd())},
            text=True,
        )

    def wait_busy(self) -> None:
        self.server, *self.workers = (int(word) for word in iter_first_line(self.process))
        wait_until(lambda: len(living(self.marker)) >= 9, within_s=60)
        self.launchers = [c.pid for p in self.workers for c in psutil.Process(p).children()]

    def is_gone(self) -> bool:
        everybody = [self.server, *self.workers, *self.launchers]
        return not living(self.marker) and not any(map(is_alive, everybody))

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.mark.parametrize("cgroups", ["cgroups", "none"])
@pytest.mark.parametrize("stopped", ["nobody", "server", "workers"])
def test_kill_9_of_the_agent_leaves_nothing(marker: str, cgroups: str, stopped: str) -> None:
    agent = Agent(marker, cgroups)
    try:
        agent.wait_busy()
        stop = {"nobody": [], "server": [agent.server], "workers": agent.workers}
        for pid in stop[stopped]:
            os.kill(pid, signal.SIGSTOP)
    finally:
        agent.kill()
    wait_until(agent.is_gone, within_s=2 * slowness())
    wait_until(lambda: not find_groups(f"mitosis-{agent.instance}"), within_s=10)


def test_kill_9_of_the_fork_server_ends_the_workers_also_when_the_agent_does_nothing(
    marker: str,
) -> None:
    agent = Agent(marker, "none")
    try:
        agent.wait_busy()
        agent.process.send_signal(signal.SIGSTOP)
        os.kill(agent.server, signal.SIGKILL)
        wait_until(agent.is_gone, within_s=2 * slowness())
    finally:
        agent.kill()


def iter_first_line(agent: "subprocess.Popen[str]") -> list[str]:
    assert agent.stdout is not None
    for line in agent.stdout:
        if line.strip() and all(word.isdigit() for word in line.split()):
            return line.split()
    raise AssertionError("the agent has ended")


def slowness() -> float:
    """A promise of seconds is kept on an idle machine; a busy one gets what it needs."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1)) * 2


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def find_groups(name: str) -> list[Path]:
    return [path for path in Path("/sys/fs/cgroup").rglob(name) if path.is_dir()]
