"""Files and functions stay small enough to be read in one sitting.

Style asks for 300 lines a file and 40 statements a function (ruff counts those); this test draws
the line that nobody may cross. Migrations are left out: they are generated.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    *("accounts", "console", "core", "managers", "mitosis_client", "mitosis_protocol"),
    *(
        "mitosis_site",
        "mitosis_stack",
        "nodeagent",
        "notifications",
        "runners",
        "suites",
        "tasks",
        "websocket",
    ),
    *("workers", "tests", "benchmarks"),
)
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_CONSUMER_LINES = 120  # a consumer moves bytes and decides nothing


def _sources() -> Iterator[Path]:
    for package in PACKAGES:
        for path in (ROOT / package).rglob("*.py"):
            if package == "tests" or path.parent.name != "migrations":
                yield path


def _functions(path: Path) -> Iterator[tuple[str, int]]:
    """Name and lines of the body: a command's signature has a line or more per flag."""
    for node in ast.walk(ast.parse(path.read_text(), filename=str(path))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = node.body[0].lineno
            yield node.name, (node.end_lineno or first) - first + 1


def test_no_file_is_longer_than_the_limit() -> None:
    lengths = {path: len(path.read_text().splitlines()) for path in _sources()}
    too_long = {str(p.relative_to(ROOT)): n for p, n in lengths.items() if n > MAX_FILE_LINES}
    assert not too_long


def test_no_function_is_longer_than_the_limit() -> None:
    too_long = {
        f"{path.relative_to(ROOT)}:{name}": lines
        for path in _sources()
        for name, lines in _functions(path)
        if lines > MAX_FUNCTION_LINES
    }
    assert not too_long


def test_a_websocket_consumer_stays_a_pipe() -> None:
    lengths = {
        path.name: len(path.read_text().splitlines())
        for path in (ROOT / "websocket").glob("*consumer*.py")
    }
    assert all(lines <= MAX_CONSUMER_LINES for lines in lengths.values()), lengths
