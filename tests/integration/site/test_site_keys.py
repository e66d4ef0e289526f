"""Keys: made once, whole or not at all, readable by us alone."""

import multiprocessing
import os
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from mitosis_site.keys import KeysError, ephemeral_keys, load_or_create_keys, write_atomically

KEY_FILES = ("private.pem", "public.pem", "django_secret")


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_absent_keys_are_made_with_closed_permissions(tmp_path: Path):
    directory = tmp_path / "deep" / "keys"
    keys = load_or_create_keys(directory)
    assert keys.private_pem.startswith(b"-----BEGIN PRIVATE KEY-----")
    assert keys.public_pem.startswith(b"-----BEGIN PUBLIC KEY-----")
    assert len(keys.django_secret) > 50
    assert mode_of(directory / "private.pem") == 0o600
    assert mode_of(directory / "django_secret") == 0o600
    assert mode_of(directory / "public.pem") == 0o644


def test_a_second_start_finds_the_same_keys(tmp_path: Path):
    assert load_or_create_keys(tmp_path) == load_or_create_keys(tmp_path)


def test_complete_keys_are_read_without_writing_anything(tmp_path: Path):
    """As a mounted secret has it, which nobody may write."""
    keys = load_or_create_keys(tmp_path)
    for path in set(tmp_path.iterdir()) - {tmp_path / name for name in KEY_FILES}:
        path.unlink()
    assert load_or_create_keys(tmp_path) == keys
    assert {path.name for path in tmp_path.iterdir()} == set(KEY_FILES)


@pytest.mark.parametrize("lost", ["private.pem", "public.pem", "django_secret"])
def test_a_start_that_was_killed_in_between_is_completed(tmp_path: Path, lost: str):
    before = load_or_create_keys(tmp_path)
    (tmp_path / lost).unlink()
    after = load_or_create_keys(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        ".lock",
        "django_secret",
        "private.pem",
        "public.pem",
    ]
    assert (after.private_pem == before.private_pem) is (lost != "private.pem")
    assert (after.django_secret == before.django_secret) is (lost != "django_secret")
    private = load_pem_private_key(after.private_pem, password=None)
    public = load_pem_public_key(after.public_pem)
    assert private.public_key().public_bytes_raw() == public.public_bytes_raw()


def _load(directory: Path) -> bytes:
    return load_or_create_keys(directory).private_pem


def test_processes_that_start_together_agree_on_the_keys(tmp_path: Path):
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        found = pool.map(_load, [tmp_path] * 8)
    assert len(set(found)) == 1


def test_a_foreign_key_is_refused_by_name(tmp_path: Path):
    pem = rsa.generate_private_key(65537, 2048).private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    (tmp_path / "private.pem").write_bytes(pem)
    with pytest.raises(KeysError, match=r"private\.pem"):
        load_or_create_keys(tmp_path)


def test_a_directory_that_cannot_be_made_is_named(tmp_path: Path):
    (tmp_path / "file").touch()
    with pytest.raises(KeysError, match="file"):
        load_or_create_keys(tmp_path / "file" / "keys")


def test_secrets_stay_out_of_the_repr():
    keys = ephemeral_keys()
    assert keys.django_secret not in repr(keys)
    assert "PRIVATE" not in repr(keys)


def test_a_failed_write_leaves_the_old_file_and_no_rubbish(tmp_path: Path, monkeypatch):
    target = tmp_path / "file"
    write_atomically(target, b"old", mode=0o600)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomically(target, b"new", mode=0o600)
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
