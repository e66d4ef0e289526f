"""`core` does not become a drawer for everything: a decision record names each of its modules.

The list stands in docs/adr/0001-layout-and-import-order.md; later records may add to it.
"""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_module_of_core_is_named_in_a_decision_record() -> None:
    records = " ".join(path.read_text() for path in (ROOT / "docs" / "adr").glob("0*.md"))
    listed = {
        name for line in re.findall(r"closed list: `([^`]+)`", records) for name in line.split()
    }
    added = set(re.findall(r"`core\.(\w+)`", records))
    modules = {path.stem for path in (ROOT / "core").glob("[a-z]*.py")}
    packages = {path.parent.name for path in (ROOT / "core").glob("[a-z]*/__init__.py")}
    assert (modules | packages) - listed - added == set()
