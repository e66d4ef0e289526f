"""The commands of README and docs, executed as a reader would: in order, page by page.

The first page starts a stack as it tells its readers to, and all others use it. A block runs in a
bash of its own, in a directory of its page, with a home of its own.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docs.command_blocks import ROOT, Block, Fate, blocks, pages

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

START = ROOT / "docs" / "quickstart.md"
WRITTEN_URL = "http://127.0.0.1:5000"  # what the pages say; the port may be taken here
BLOCK_TIMEOUT_S = 240


def _in_order() -> list[Block]:
    """The page that starts the stack first, what stops it last."""
    found = [
        block for page in sorted(pages(), key=lambda page: page != START) for block in blocks(page)
    ]
    first = [block for block in found if block.fate is Fate.EXECUTED]
    last = [block for block in found if block.fate is Fate.EXECUTED_LAST]
    return first + sorted(last, key=lambda block: block.page == START)


BLOCKS = _in_order()


@dataclass
class Reader:
    """Somebody with an empty home who types what the pages say."""

    home: Path

    @property
    def data_dir(self) -> Path:
        return self.home / "mitosis"

    def type(self, block: Block) -> None:
        directory = self.home / "pages" / block.page.relative_to(ROOT).with_suffix("")
        directory.mkdir(parents=True, exist_ok=True)
        text = block.text.replace(WRITTEN_URL, self._url())
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=directory,
            env=self._environment(),
            capture_output=True,
            text=True,
            timeout=BLOCK_TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert done.returncode == 0, f"{block.name}\n{text}\n{done.stdout}\n{done.stderr}"

    def stop(self) -> None:
        mitosis = [sys.executable, "-m", "mitosis_client.cli.main"]
        down = [*mitosis, "down", "--data-dir", str(self.data_dir)]
        subprocess.run(down, env=self._environment(), capture_output=True, timeout=90, check=False)

    def _url(self) -> str:
        login = self.data_dir / "admin.json"
        return str(json.loads(login.read_text())["url"]) if login.exists() else WRITTEN_URL

    def _environment(self) -> dict[str, str]:
        programs = self.home / "bin"
        return {
            "PATH": os.pathsep.join(
                [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
            ),
            "HOME": str(self.home),
            "LANG": "C.UTF-8",
            "COLUMNS": "200",
        }


@pytest.fixture(scope="module")
def reader() -> Iterator[Reader]:
    # Not below pytest's private directories: commands in a sandbox have to get there.
    home = Path(tempfile.mkdtemp(prefix="mitosis-reader-"))
    home.chmod(0o755)
    person = Reader(home)
    yield person
    person.stop()
    shutil.rmtree(home, ignore_errors=True)


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.name)
def test_the_commands_of_a_block_work(reader: Reader, block: Block) -> None:
    reader.type(block)


def test_the_last_block_left_nothing_running(reader: Reader) -> None:
    mitosis = [sys.executable, "-m", "mitosis_client.cli.main"]
    status = [*mitosis, "status", "--data-dir", str(reader.data_dir)]
    done = subprocess.run(status, capture_output=True, timeout=60, check=False)
    assert done.returncode == 3, done.stdout
