"""The cleanup debt on a real disk: synced before preparation, and there after any `kill -9`."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from uuid import UUID

import msgspec
import pytest

from mitosis_protocol.specs import AttachmentRef, EnvHookSpec, RemoteResource, ResourceRef
from nodeagent.debt import Debt, DebtBook

SUITE = UUID("11111111-2222-3333-4444-555555555555")
MANAGER = UUID("99999999-2222-3333-4444-555555555555")

# Owes, "prepares", "cleans up" and settles, leaving a file at each step; faults are armed by argv.
LIFE = """
import sys
from pathlib import Path
import msgspec
from mitosis_protocol import faults
from nodeagent.debt import Debt, DebtBook

root = Path(sys.argv[1])
debt = msgspec.json.decode(sys.argv[2], type=Debt)
faults.configure(sys.argv[3])
book = DebtBook(root / "debts")
book.owe(debt)
(root / "prepared").touch()
(root / "cleaned").touch()
book.settle(debt.assignment_id)
"""


def debt(assignment_id: int = 7) -> Debt:
    script = ResourceRef(RemoteResource(attachment=AttachmentRef("tidy.sh")), "tidy.sh")
    return Debt(
        assignment_id=assignment_id,
        suite_uuid=SUITE,
        suite_name="Übung",
        group_name="ml-team",
        worker_count=4,
        manager_uuid=MANAGER,
        hook=EnvHookSpec(args=["./tidy.sh"], timeout="2m", envs={"A": "b"}, resources=[script]),
    )


def live(root: Path, plan: str) -> int:
    owed = msgspec.json.encode(debt()).decode()
    command = [sys.executable, "-c", LIFE, str(root), owed, plan]
    return subprocess.run(command, check=False, timeout=60).returncode


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_debt_is_read_back_as_it_was_owed(tmp_path: Path) -> None:
    book = DebtBook(tmp_path / "debts")
    book.owe(debt(9))
    book.owe(debt(7))
    book.owe(debt(7))
    assert DebtBook(tmp_path / "debts").open_debts() == [debt(7), debt(9)]
    assert (tmp_path / "debts").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "debts" / "7.json").stat().st_mode & 0o777 == 0o600
    book.settle(7)
    book.settle(7)
    assert book.open_debts() == [debt(9)]


def test_nobody_owes_anything_before_the_first_preparation(tmp_path: Path) -> None:
    book = DebtBook(tmp_path / "debts")
    assert book.open_debts() == []
    book.settle(1)


@pytest.mark.parametrize(
    ("point", "is_owed"),
    [
        ("debt.before_write", False),
        ("debt.written", False),
        ("debt.renamed", True),
        ("debt.owed", True),
        ("debt.before_settle", True),
        ("debt.unlinked", False),
        ("debt.settled", False),
    ],
)
def test_a_process_killed_at_any_step_leaves_the_truth(
    tmp_path: Path, point: str, is_owed: bool
) -> None:
    assert live(tmp_path, f"{point}=kill9") == -signal.SIGKILL
    open_debts = DebtBook(tmp_path / "debts").open_debts()
    assert open_debts == ([debt()] if is_owed else [])
    is_dirty = (tmp_path / "prepared").exists() and not (tmp_path / "cleaned").exists()
    assert not is_dirty or is_owed
    assert not (tmp_path / "debts" / "unreadable").exists()
    # And the next life starts from there.
    book = DebtBook(tmp_path / "debts")
    book.owe(debt())
    book.settle(7)
    assert names(tmp_path / "debts") == []


def test_file_and_directory_are_synced_before_preparation_may_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Power may fail at any moment: the order of system calls is the promise."""
    steps: list[str] = []
    real_sync, real_rename, real_unlink = os.fsync, os.rename, os.unlink

    def sync(fd: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{fd}').readlink().name}")
        real_sync(fd)

    def rename(old: Path, new: Path, **more: int) -> None:
        steps.append(f"rename {Path(old).name} {Path(new).name}")
        real_rename(old, new, **more)

    def unlink(path: Path, **more: int) -> None:
        steps.append(f"unlink {Path(path).name}")
        real_unlink(path, **more)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "rename", rename)
    monkeypatch.setattr(os, "unlink", unlink)
    book = DebtBook(tmp_path / "debts")
    book.owe(debt())
    assert steps == [
        f"sync {tmp_path.name}",
        "sync 7.new",
        "rename 7.new 7.json",
        "sync debts",
    ]
    steps.clear()
    book.settle(7)
    assert steps == ["unlink 7.json", "sync debts"]


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"\xff\xfe", b"[]", b'{"assignment_id": 7}', b"null", bytes(4096)],
)
def test_a_corrupt_debt_is_moved_aside_and_does_not_block(tmp_path: Path, content: bytes) -> None:
    book = DebtBook(tmp_path / "debts")
    book.owe(debt(9))
    for _ in range(2):
        (tmp_path / "debts" / "7.json").write_bytes(content)
        assert book.open_debts() == [debt(9)]
    aside = tmp_path / "debts" / "unreadable"
    assert names(aside) == ["7.json", "7.json.1"]
    assert (aside / "7.json").read_bytes() == content
    book.owe(debt(7))
    assert book.open_debts() == [debt(7), debt(9)]


def test_a_debt_under_a_wrong_name_is_moved_aside(tmp_path: Path) -> None:
    """Settling goes by name, so it could never be settled."""
    book = DebtBook(tmp_path / "debts")
    book.owe(debt(7))
    (tmp_path / "debts" / "7.json").rename(tmp_path / "debts" / "8.json")
    assert book.open_debts() == []
    assert (tmp_path / "debts" / "unreadable" / "8.json").exists()


def test_what_is_no_debt_is_left_alone(tmp_path: Path) -> None:
    book = DebtBook(tmp_path / "debts")
    book.owe(debt(7))
    (tmp_path / "debts" / "README").write_text("hello")
    (tmp_path / "debts" / "8.json").mkdir()
    assert book.open_debts() == [debt(7)]
    assert (tmp_path / "debts" / "README").exists()


def test_a_directory_that_is_none_does_not_stop_the_start(tmp_path: Path) -> None:
    (tmp_path / "debts").write_text("in the way")
    book = DebtBook(tmp_path / "debts")
    assert book.open_debts() == []
    with pytest.raises(OSError, match="7"):
        book.owe(debt(7))


def test_a_debt_of_another_version_can_be_paid(tmp_path: Path) -> None:
    """Members of a newer agent are ignored, those an older one did not know have defaults."""
    book = DebtBook(tmp_path / "debts")
    book.owe(debt(7))
    file = tmp_path / "debts" / "7.json"
    document = msgspec.json.decode(file.read_bytes())
    document["invented_later"] = {"x": [1]}
    document["hook"]["invented_later"] = True
    file.write_bytes(msgspec.json.encode(document))
    assert book.open_debts() == [debt(7)]
    del document["hook"]
    file.write_bytes(msgspec.json.encode(document))
    assert book.open_debts() == [msgspec.structs.replace(debt(7), hook=None)]


def test_the_context_of_a_debt_is_that_of_its_cleanup() -> None:
    about = debt().context
    assert about.phase == "cleanup"
    assert about.variables()["MITOSIS_TASK_SUITE_UUID"] == str(SUITE)
    assert about.variables()["MITOSIS_WORKER_COUNT"] == "4"
