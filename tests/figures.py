"""The figures that hold our goals: checked where they are measured, shown in one table at the end.

Loaded as a pytest plugin. A test takes the fixture `figure` and says
`figure("revoked: socket closed", took_s, "s", at_most=5)`; the goal is missed, the test fails. The
table of docs/guarantees.md names every goal with its test, and an architecture test compares.
Figures travel with the reports of their tests, so they come together from several processes.
"""

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

_PROPERTY = "figure"


class Figure(Protocol):
    def __call__(
        self,
        goal: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None: ...


@pytest.fixture
def figure(request: pytest.FixtureRequest) -> Figure:
    """Notes a value under the name of its goal, then fails the test if it is beyond the bound."""

    def note(
        goal: str,
        value: float,
        unit: str = "",
        *,
        at_most: float | None = None,
        at_least: float | None = None,
    ) -> None:
        assert (at_most is None) != (at_least is None), "a goal has one bound"
        bound = f"<= {_text(at_most)}" if at_most is not None else f">= {_text(at_least)}"
        line = [goal, _text(value), bound, unit]
        request.node.user_properties.append((_PROPERTY, line))
        kept = value <= at_most if at_most is not None else value >= (at_least or 0)
        assert kept, f"{goal}: {_text(value)} {unit}, the goal is {bound}"

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    lines = sorted(_lines(terminalreporter))
    if not lines:
        return
    terminalreporter.section("figures")
    widths = [max(len(line[n]) for line in lines) for n in range(3)]
    for goal, value, bound, unit in lines:
        terminalreporter.line(
            f"{goal:<{widths[0]}}  {value:>{widths[1]}}  {bound:<{widths[2]}}  {unit}".rstrip()
        )


def _lines(terminalreporter: Any) -> Iterator[tuple[str, str, str, str]]:
    for reports in terminalreporter.stats.values():
        for report in reports:
            if getattr(report, "when", "") == "call":
                yield from (
                    tuple(value) for name, value in report.user_properties if name == _PROPERTY
                )


def _text(value: float | None) -> str:
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}"
