"""`make demo`: starts the stack with one node agent, runs a real suite, shows it, stops all."""

import argparse
import io
import sys
import tarfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx2
from rich.console import Console
from rich.panel import Panel
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

from mitosis_stack.commands import down, read_credentials, up_detached
from mitosis_stack.demo_client import DemoClient, SuiteProgress
from mitosis_stack.errors import StackError
from mitosis_stack.layout import DataDir
from mitosis_stack.settings import StackSettings, read_settings

TASKS = 200
WORKERS = 4
# Generous: on a loaded laptop a task takes a tenth of a second, not one.
DEADLINE_S = 240.0

CONSOLE = Console()

PREPARATION = """
echo "preparing for $MITOSIS_TASK_SUITE_NAME with $MITOSIS_WORKER_COUNT workers"
seq 1 1000 > "$MITOSIS_SUITE_DIR/numbers.txt"
"""
CLEANUP = 'rm "$MITOSIS_SUITE_DIR/numbers.txt"'
# Reads what the preparation left on the host: made once, used by every task.
TASK = """
awk -v n={number} '$1 % n == 0 {{ sum += $1 }} END {{ print "multiples of", n, "sum to", sum }}' \
    "$MITOSIS_SUITE_DIR/numbers.txt" > "$MITO_RESULT_DIR/sum.txt"
"""
FAILING_TASK = "echo 'this one fails on purpose' >&2; exit 3"


def main() -> int:
    parser = argparse.ArgumentParser(prog="make demo")
    parser.add_argument("--data-dir", type=Path, required=True)
    flags = parser.parse_args()
    settings = read_settings(data_dir=flags.data_dir, port=None, agents=1, asgi_server="uvicorn")
    try:
        return _run(settings)
    except (StackError, httpx2.HTTPError) as error:
        CONSOLE.print(f"demo: {error}", style="red")
        return 1
    except KeyboardInterrupt:
        return 130


def _run(settings: StackSettings) -> int:
    began = time.monotonic()
    CONSOLE.print(f"Starting Mitosis in {settings.data_dir}", highlight=False)
    up_detached(settings, CONSOLE.print, lambda _credentials: None)
    CONSOLE.print(f"Ready after {time.monotonic() - began:.1f} s\n", highlight=False)
    client = DemoClient(read_credentials(DataDir(settings.data_dir)))
    try:
        good = _campaign(client)
    finally:
        client.close()
        down(settings.data_dir, CONSOLE.print)
    return 0 if good else 1


def _campaign(client: DemoClient) -> bool:
    with _Watch() as watch:
        watch.show("waiting for a host", 0)
        client.wait_for_manager(within_s=60)
        watch.show("submitting", 0)
        suite = client.create_suite(_suite(client.group))
        began = time.monotonic()
        uuids = client.submit(
            [_task(client.group, suite, number) for number in range(1, TASKS + 1)]
        )
        client.close_suite(suite)
        progress = _follow(client, suite, watch)
    seconds = time.monotonic() - began
    tasks = client.tasks(suite)
    _summarise(client, tasks, progress, seconds)
    _show_one(client, uuids[6])
    outcomes = Counter(task["outcome"] for task in tasks)
    return outcomes == {"succeeded": TASKS - 1, "failed": 1}


def _suite(group: str) -> dict[str, Any]:
    return {
        "group_name": group,
        "name": "demo",
        "description": "Sums of multiples, from a file that every host prepares once",
        "worker_schedule": {"worker_count": WORKERS, "task_prefetch_count": 16},
        "env_preparation": {"args": ["sh", "-ec", PREPARATION], "timeout": "1m"},
        "env_cleanup": {"args": ["sh", "-ec", CLEANUP], "timeout": "1m"},
        "linger_seconds": 0,
    }


def _task(group: str, suite: str, number: int) -> dict[str, Any]:
    """Each writes a result file; the last one fails on purpose."""
    command = FAILING_TASK if number == TASKS else TASK.format(number=number)
    return {
        "group_name": group,
        "suite_uuid": suite,
        "tags": [],
        "labels": ["demo"],
        "timeout": "1m",
        "priority": 0,
        "task_spec": {"args": ["sh", "-ec", command], "terminal_output": True},
    }


class _Watch(Progress):
    """A bar from the first moment on; where no bar can be drawn, a line for every phase."""

    def __init__(self) -> None:
        columns = (
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        super().__init__(*columns, console=CONSOLE)
        self._bar = self.add_task("", total=TASKS)
        self._phase = ""

    def show(self, phase: str, ended: int) -> None:
        self.update(self._bar, description=phase, completed=ended)
        if phase != self._phase and not CONSOLE.is_terminal:
            CONSOLE.print(f"{phase} ({ended} of {TASKS} tasks ended)", highlight=False)
        self._phase = phase


def _follow(client: DemoClient, suite: str, watch: _Watch) -> SuiteProgress:
    """Show the progress until the suite is complete and its host is cleaned up."""
    deadline = time.monotonic() + DEADLINE_S
    while True:
        progress = client.progress(suite)
        watch.show(progress.phase, progress.ended)
        if progress.is_over:
            return progress
        if time.monotonic() > deadline:
            msg = f"only {progress.ended} of {TASKS} tasks ended within {DEADLINE_S:.0f} s"
            raise StackError(msg)
        time.sleep(0.1)


def _summarise(
    client: DemoClient, tasks: list[dict[str, Any]], progress: SuiteProgress, seconds: float
) -> None:
    table = Table(title=f"{TASKS} tasks in {seconds:.1f} s, suite {progress.state}")
    for column in ("outcome", "tasks", "exit status", "what it said"):
        table.add_column(column)
    for outcome, count in Counter(task["outcome"] for task in tasks).most_common():
        example = next(task for task in tasks if task["outcome"] == outcome)
        said = "" if outcome == "succeeded" else client.stderr_of(example["uuid"])
        table.add_row(outcome, str(count), client.exit_status_of(example), said.strip())
    CONSOLE.print(table)


def _show_one(client: DemoClient, task_uuid: str) -> None:
    text = _first_file(client.download(task_uuid, "result")).strip()
    CONSOLE.print(Panel(text, title=f"result of task {task_uuid}", expand=False))


def _first_file(archive: bytes) -> str:
    with tarfile.open(fileobj=io.BytesIO(archive)) as members:
        for member in members:
            source = members.extractfile(member)
            if source is not None:
                return source.read(200).decode()
    return ""


if __name__ == "__main__":
    sys.exit(main())
