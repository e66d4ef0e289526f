"""`make audit`: the licence of every package that an installation brings along is one we accept.

Reads the metadata of the installed packages that the lock file of the largest installation names.
"""

import importlib.metadata
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = ROOT / "requirements" / "embedded.txt"
NAME = re.compile(r"^([A-Za-z0-9._-]+)==", re.MULTILINE)

# Permissive ones, and weak copyleft that a library may have without touching our code.
ACCEPTED = re.compile(
    r"\b(MIT|BSD|Apache|ISC|PSF|Python Software Foundation|MPL|Mozilla|LGPL|Lesser|Zope|ZPL"
    r"|Unlicense|0BSD|PostgreSQL|HPND|CNRI)",
    re.IGNORECASE,
)
# Packages whose metadata names no licence; each was looked up by hand.
KNOWN: dict[str, str] = {}


def licence_of(name: str) -> str:
    """What the package says of itself, the precise form first."""
    metadata = importlib.metadata.metadata(name)
    said = metadata.get("License-Expression")
    if said:
        return said
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in metadata.get_all("Classifier", [])
        if text.startswith("License ::")
    ]
    short = (metadata.get("License") or "").strip().partition("\n")[0]
    return ", ".join(classifiers) or short or KNOWN.get(name, "")


def problems() -> list[str]:
    """Packages with a licence that we do not accept, or none that we know."""
    found = []
    for name in sorted(set(NAME.findall(LOCK.read_text()))):
        try:
            licence = licence_of(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # for another platform
        if not ACCEPTED.search(licence):
            found.append(f"{name}: {licence or 'says nothing'}")
    return found


def main() -> int:
    found = problems()
    for line in found:
        print(line)
    print("licences: " + ("not accepted, see above" if found else "all accepted"))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
