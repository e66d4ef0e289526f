"""Which part of a stack spends the processor: CPU time of its processes, added up by role."""

from collections import defaultdict

import psutil


class Costs:
    """From now on; the processes are those below `supervisor`."""

    def __init__(self, supervisor: psutil.Process) -> None:
        self._supervisor = supervisor
        self._before = self._spent()

    def per_task(self, tasks: int) -> str:
        """Microseconds by role, the dearest first."""
        used = {role: now - self._before.get(role, 0.0) for role, now in self._spent().items()}
        parts = sorted(((round(1e6 * s / tasks), role) for role, s in used.items()), reverse=True)
        return ", ".join(f"{role} {us}" for us, role in parts if us > 0)

    def _spent(self) -> dict[str, float]:
        spent: dict[str, float] = defaultdict(float)
        for process in self._supervisor.children(recursive=True):
            try:
                times, role = process.cpu_times(), _role(process)
            except psutil.NoSuchProcess:
                continue
            spent[role] += times.user + times.system
            if role == "launcher":
                spent["command"] += times.children_user + times.children_system
        return spent


def _role(process: psutil.Process) -> str:
    """By command line; a fork server's children have its own, so their place in the tree says."""
    words = process.cmdline()
    line = " ".join(words)
    if "fork_server" in line:
        depth = sum("fork_server" in " ".join(one.cmdline()) for one in process.parents())
        return ("fork server", "worker", "launcher")[min(depth, 2)]
    for word, role in (
        ("postgres", "postgres"), ("nodeagent", "agent"), ("uvicorn", "web"), ("celery", "celery"),
    ):  # fmt: skip
        if word in line:
            return role
    return process.name()
