"""A bar with rate and time left, failures above it as they happen; no bar without a terminal."""

import time

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text
from typing_extensions import override

from mitosis_client.cli.output import clean
from mitosis_client.cli.tables import new_console
from mitosis_client.follow import SUCCEEDED, Ended


class RateColumn(ProgressColumn):
    """Tasks a second, over the last half minute."""

    @override
    def render(self, task: Task) -> Text:
        speed = task.speed
        return Text("" if speed is None else f"{speed:.1f}/s")


class RunProgress:
    """What `run --wait` draws, on stderr so that stdout stays for results."""

    def __init__(self, total: int, *, quiet: bool) -> None:
        self._total = total
        self._quiet = quiet
        self._began = time.monotonic()
        self.failed = 0
        self.done = 0
        self.console = new_console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            RateColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=self.console,
            disable=quiet or not self.console.is_terminal,
        )
        self._task = self._bar.add_task("running", total=total)

    def start(self) -> None:
        self._bar.start()

    def stop(self) -> None:
        self._bar.stop()

    def ended(self, one: Ended) -> None:
        self.done += 1
        if one.outcome != SUCCEEDED:
            self.failed += 1
            if not self._quiet:
                line = Text(f"{one.uuid} {clean(one.outcome)}{_detail(one)}")
                self.console.print(line, soft_wrap=True)
        failed = f", {self.failed} failed" if self.failed else ""
        self._bar.update(self._task, completed=self.done, description=f"running{failed}")

    def note(self, text: str) -> None:
        """Something to know while waiting, above the bar."""
        if not self._quiet:
            self.console.print(Text(clean(text)), soft_wrap=True)

    def summary(self, outcomes: dict[str, int]) -> str:
        seconds = time.monotonic() - self._began
        parts = ", ".join(f"{count} {clean(name)}" for name, count in sorted(outcomes.items()))
        return f"{self.done} of {self._total} tasks ended in {seconds:.1f} s: {parts or 'none'}"


def _detail(one: Ended) -> str:
    data = one.event.data if isinstance(one.event.data, dict) else {}
    shown = [f"{name}={data[name]}" for name in ("exit_status", "msg", "reason") if data.get(name)]
    return f" ({clean(', '.join(shown))})" if shown else ""
