"""Prints the table and keeps the figures: one JSON document per run, plus `latest.json`."""

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.measure import Figure, Row

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("Django", "psycopg", "uvicorn", "celery", "msgspec")


def print_table(rows: list[Row]) -> None:
    table = Table(title="median of three (spread); ratios within this run")
    for column in ("benchmark", "ours", "limit", "ours/limit", "peer", "ours/peer", "goal"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row.name,
            _figure(row.ours),
            _figure(row.limit),
            _ratio(row.ratio(row.limit)),
            _peer(row),
            _ratio(row.ratio(row.peer)),
            row.goal,
        )
    Console(width=160).print(table)
    for row in rows:
        for note in row.notes:
            print(f"{row.name}: {note}")


def write_results(rows: list[Row], failures: Mapping[str, str]) -> Path:
    """Also after failures: what was measured until then is kept, and what is missing is named."""
    at = datetime.now(UTC)
    document = {
        "at": at.isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(terse=True),
            "python": platform.python_version(),
        },
        "versions": {name: version(name) for name in PACKAGES},
        "failures": dict(failures),
        "rows": [asdict(row) for row in rows],
    }
    text = json.dumps(document, indent=1)
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{at:%Y%m%d-%H%M%S}-{document['commit']}.json"
    path.write_text(text + "\n")
    (RESULTS / "latest.json").write_text(text + "\n")
    return path


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip() or "unknown"


def _figure(figure: Figure | None) -> str:
    if figure is None:
        return "-"
    # Three digits; a large figure would become an exponent.
    median = f"{figure.median:,.0f}" if figure.median >= 100 else f"{figure.median:.3g}"
    return f"{median} {figure.unit} (±{figure.spread / 2:.0%})"


def _peer(row: Row) -> str:
    """A peer that was asked and has no figure is missing; the row's notes say why."""
    if row.peer_name and row.peer is None:
        return f"{row.peer_name} missing"
    return f"{row.peer_name} {_figure(row.peer)}".strip()


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
