"""Where the console's templates and static files lie: in the wheel, or at the root of a clone.

Read by the settings. The package comes first: in an installation the directory beside it is
`site-packages`, where a folder called `static` may belong to anybody.
"""

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).resolve().parent


def bundled(name: str) -> Path:
    """The directory `name` of this installation (setup.py puts it into the package)."""
    packaged = _PACKAGE / name
    return packaged if packaged.is_dir() else _PACKAGE.parent / name
