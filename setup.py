"""The one thing pyproject.toml cannot say: the wheel carries the pages that live at the root.

`templates` and `static` stand beside the packages in the source tree; a wheel has no such place,
so they are put into `mitosis_site`, where `mitosis_site.bundled` looks first.
"""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

PAGES = ("templates", "static")


class BuildWithPages(build_py):
    def run(self) -> None:
        super().run()
        if self.editable_mode:  # an editable install runs from the source tree
            return
        for name in PAGES:
            target = Path(self.build_lib) / "mitosis_site" / name
            shutil.rmtree(target, ignore_errors=True)  # nothing of an older build
            shutil.copytree(name, target)


setup(cmdclass={"build_py": BuildWithPages})
