"""Paths a stranger chose, archives, credentials and the workspace: no network, no processes."""

import os
import stat
import tarfile
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from nodeagent.errors import ResourceRefused
from nodeagent.worker.archives import ArchiveAborted, Spool, archive_folder, has_entries
from nodeagent.worker.credentials import Credential, find_credential, store_credential
from nodeagent.worker.follow_up import FollowUpUnreadable, read_follow_up
from nodeagent.worker.resource_files import IncomingFile, local_parts
from nodeagent.worker.workspace import Workspace


@pytest.mark.parametrize(
    "path",
    ["", ".", "./", "/", "/etc/x", "..", "../x", "a/../b", "a/..", "a\0b", "\ud800", "x/" * 3000],
)
def test_unsafe_paths_are_refused(path: str) -> None:
    with pytest.raises(ResourceRefused):
        local_parts(path)


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("a", ["a"]),
        ("./a//b/", ["a", "b"]),
        ("...", ["..."]),
        ("a..b", ["a..b"]),
        ("~/x", ["~", "x"]),
    ],
)
def test_safe_paths_are_split(path: str, parts: list[str]) -> None:
    assert local_parts(path) == parts


def write(root: Path, path: str, data: bytes = b"x") -> None:
    with IncomingFile(root, path) as file:
        file.write(data)
        file.commit()


def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    with IncomingFile(tmp_path, "a/b/c") as file:
        file.write(b"half")
        assert not (tmp_path / "a/b/c").exists()
    assert list((tmp_path / "a/b").iterdir()) == []
    write(tmp_path, "a/b/c", b"whole")
    assert (tmp_path / "a/b/c").read_bytes() == b"whole"


def test_a_later_resource_replaces_an_earlier_one(tmp_path: Path) -> None:
    write(tmp_path, "f", b"long first")
    write(tmp_path, "f", b"second")
    assert (tmp_path / "f").read_bytes() == b"second"


def test_a_restarted_download_keeps_nothing_of_the_first_try(tmp_path: Path) -> None:
    with IncomingFile(tmp_path, "f") as file:
        file.write(b"a long first try")
        file.restart()
        file.write(b"ok")
        file.commit()
    assert (tmp_path / "f").read_bytes() == b"ok"


@pytest.mark.parametrize("where", ["link/f", "a/link/f", "link"])
def test_planted_links_are_not_followed(tmp_path: Path, where: str) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "a").mkdir(parents=True)
    outside.mkdir()
    (root / "link").symlink_to(outside)
    (root / "a" / "link").symlink_to(outside)
    if where == "link":
        write(root, where)
        assert (root / "link").read_bytes() == b"x"
        assert not (root / "link").is_symlink()
    else:
        with pytest.raises(ResourceRefused):
            write(root, where)
    assert list(outside.iterdir()) == []


def test_a_root_that_became_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "root").symlink_to("/")
    with pytest.raises(ResourceRefused):
        write(tmp_path / "root", "f")


def test_a_file_in_the_way_is_refused(tmp_path: Path) -> None:
    write(tmp_path, "f")
    with pytest.raises(ResourceRefused):
        write(tmp_path, "f/below")
    (tmp_path / "d").mkdir()
    with pytest.raises(ResourceRefused):
        write(tmp_path, "d")


def test_an_archive_can_be_stopped(tmp_path: Path) -> None:
    folder = tmp_path / "top"
    folder.mkdir()
    (folder / "f").write_bytes(b"x" * 100_000)
    abort = threading.Event()
    abort.set()
    with pytest.raises(ArchiveAborted):
        archive_folder(folder, "result", Spool(tmp_path / "t.tar.gz"), abort)


def test_names_that_are_not_utf8_survive_in_an_archive(tmp_path: Path) -> None:
    folder = tmp_path / "top"
    folder.mkdir()
    (folder / os.fsdecode(b"\xff\xfe")).write_bytes(b"x")
    target = tmp_path / "t.tar.gz"
    archive_folder(folder, "result", Spool(target, most_bytes=0), threading.Event())
    with tarfile.open(target) as tar:
        assert os.fsencode(tar.getnames()[1]) == b"result/\xff\xfe"


def test_only_a_real_directory_has_entries(tmp_path: Path) -> None:
    assert not has_entries(tmp_path / "none")
    (tmp_path / "link").symlink_to("/")
    assert not has_entries(tmp_path / "link")
    assert has_entries(tmp_path)


def test_the_line_of_the_named_user_is_found(tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.write_text("\nbroken\nbob:t1\nada:t2=:x\n")
    assert find_credential(file, "ada") == Credential("ada", "t2=:x")
    assert find_credential(file, None) == Credential("bob", "t1")
    assert find_credential(file, "eve") is None
    assert find_credential(tmp_path / "none", "ada") is None


def test_storing_a_credential_keeps_the_others_and_the_mode(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "credentials"
    store_credential(file, Credential("ada", "one"))
    file.write_text("bob:t1\nada:one\n")
    file.chmod(0o644)
    store_credential(file, Credential("ada", "two"))
    assert file.read_text() == "bob:t1\nada:two\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "two" not in repr(Credential("ada", "two"))


def test_a_workspace_is_emptied_whatever_a_task_did_to_it(tmp_path: Path) -> None:
    space = Workspace.create(tmp_path, uuid4())
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "keep").touch()
    (space.result_dir / "d").mkdir()
    space.exec_dir.rmdir()
    space.exec_dir.symlink_to(outside)
    os.mkfifo(space.root / "pipe")
    space.resource_dir.chmod(0o755)
    space.reset()
    assert sorted(path.name for path in space.root.iterdir()) == [
        *(".lock", "exec", "resource", "result", "spool", "std"),
    ]
    assert not space.exec_dir.is_symlink()
    assert stat.S_IMODE(space.resource_dir.stat().st_mode) == 0o700
    assert list(space.result_dir.iterdir()) == []
    assert (outside / "keep").exists()
    space.remove()
    assert not space.root.exists()


def test_only_abandoned_directories_of_workers_are_removed(tmp_path: Path) -> None:
    live = Workspace.create(tmp_path, uuid4())
    foreign = tmp_path / "mitosis" / str(uuid4())
    foreign.mkdir()
    dead = tmp_path / "mitosis" / str(uuid4())
    dead.mkdir()
    (dead / ".lock").touch()
    (tmp_path / "mitosis" / "worker").mkdir()
    second = Workspace.create(tmp_path, uuid4())
    left = set((tmp_path / "mitosis").iterdir())
    assert left == {live.root, second.root, foreign, tmp_path / "mitosis" / "worker"}
    live.remove()
    second.remove()


def test_a_follow_up_is_one_json_object(tmp_path: Path) -> None:
    file = tmp_path / "new"
    assert read_follow_up(file) is None
    file.write_text(" \n")
    assert read_follow_up(file) is None
    file.write_text(' {"a": 1} ')
    assert bytes(read_follow_up(file) or b"").strip() == b'{"a": 1}'
    for bad in (b"[]", b"{", b'"x"', b"\xff", b'{"a": 1} {}', b"{}" + b" " * 3_000_000):
        file.write_bytes(bad)
        with pytest.raises(FollowUpUnreadable):
            read_follow_up(file)
    file.unlink()
    file.symlink_to("/etc/passwd")
    with pytest.raises(FollowUpUnreadable):
        read_follow_up(file)
