"""Every number an operator can set does something."""

import re
from dataclasses import fields
from pathlib import Path

from mitosis_site.policy import Policy

ROOT = Path(__file__).resolve().parents[2]
NOT_READERS = {"tests", "benchmarks", "docs", "build", "dist"}


def test_every_number_of_the_policy_is_read_by_the_product() -> None:
    readers = [
        path
        for path in ROOT.glob("*/**/*.py")
        if path.relative_to(ROOT).parts[0] not in NOT_READERS
        and not path.relative_to(ROOT).parts[0].startswith(".")
        and path.name != "policy.py"
    ]
    text = "\n".join(path.read_text() for path in readers)
    unread = [f.name for f in fields(Policy) if not re.search(rf"\b{f.name}\b", text)]
    assert unread == []
