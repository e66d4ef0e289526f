"""Packages of a direct worker: fetched, compared with their sum, unpacked, or refused.

A package is a tar archive (plain or gzip) that becomes `<root>/<name>/<version>/`. Nothing in it
can reach outside: no absolute names, no `..`, no links, no devices. Used by `worker` only with
`--allow-packages`; everything here that blocks runs in a thread.
"""

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

import msgspec
import structlog

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    InstalledPackage,
    PkgEvent,
    PkgInstall,
    PkgUninstall,
)
from mitosis_protocol.limits import GIB
from nodeagent.errors import AgentError
from nodeagent.worker.comm import RemoteLocation
from nodeagent.worker.retry import persist
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.transfers import Transfers

log = structlog.stdlib.get_logger(__name__)

MAX_PACKAGE_BYTES: Final = 2 * GIB  # as it comes, and again unpacked
MAX_MEMBERS: Final = 100_000
_NOTE: Final = ".mitosis-package.json"
_BLOCK: Final = 1 << 20


class PackageInvalid(Exception):
    """The archive is not what was announced, or not safe to unpack."""


class Packages:
    """The packages below one directory."""

    def __init__(self, root: Path, transfers: Transfers) -> None:
        self.root = root
        self._transfers = transfers

    def installed(self) -> list[InstalledPackage]:
        """What is there, by the notes that complete installations left."""
        found: list[InstalledPackage] = []
        for note in sorted(self.root.glob(f"*/*/{_NOTE}")):
            try:
                found.append(msgspec.json.decode(note.read_bytes(), type=InstalledPackage))
            except (OSError, msgspec.MsgspecError) as error:
                log.warning("package.unreadable", path=str(note), error=str(error))
        return found

    async def install(self, request: PkgInstall) -> PkgEvent:
        """How it ended; the event says so."""
        if not _is_safe_version(request.version):
            return _failed(request, "install", "the version cannot be a directory's name")
        if request.size_bytes > MAX_PACKAGE_BYTES:
            return _failed(request, "install", f"larger than {MAX_PACKAGE_BYTES} bytes")
        await run_blocking(self.root.mkdir, parents=True, exist_ok=True, mode=0o700)
        work = Path(await run_blocking(tempfile.mkdtemp, prefix=".incoming-", dir=str(self.root)))
        try:
            archive = work / "archive"
            _compare(await self._download(request, archive), request.sha256)
            await run_blocking(_unpack, archive, work / "tree")
            await run_blocking(_put_in_place, work / "tree", self._place(request), request)
        except (PackageInvalid, AgentError, tarfile.TarError, OSError, EOFError) as error:
            log.warning("package.failed", name=request.name, error=str(error))
            return _failed(request, "install", str(error) or type(error).__name__)
        finally:
            await run_blocking(shutil.rmtree, work, ignore_errors=True)
        log.info("package.installed", name=request.name, version=request.version)
        return _event(request, "install", "installed")

    async def uninstall(self, request: PkgUninstall) -> PkgEvent:
        """Absent is removed: the wish is fulfilled."""
        if not _is_safe_version(request.version):
            return _failed(request, "uninstall", "the version cannot be a directory's name")
        place = self._place(request)
        try:
            if place.exists():
                await run_blocking(shutil.rmtree, place)
        except OSError as error:
            return _failed(request, "uninstall", str(error))
        log.info("package.removed", name=request.name, version=request.version)
        return _event(request, "uninstall", "removed")

    def _place(self, request: PkgInstall | PkgUninstall) -> Path:
        return self.root / request.name / request.version

    async def _download(self, request: PkgInstall, archive: Path) -> str:
        source = RemoteLocation(request.url, request.size_bytes)

        async def fetch() -> str:
            total = hashlib.sha256()
            with archive.open("wb") as out:

                def write(block: bytes) -> None:
                    total.update(block)
                    out.write(block)

                await self._transfers.download(source, write)
            return total.hexdigest()

        return await persist(fetch, what="package")


def _compare(found: str, announced: str) -> None:
    if found != announced:
        raise PackageInvalid(f"its sha256 is {found}")


def _unpack(archive: Path, tree: Path) -> None:
    tree.mkdir(mode=0o700)
    with tarfile.open(archive, "r:*") as tar:
        left = MAX_PACKAGE_BYTES
        for number, member in enumerate(tar):
            if number >= MAX_MEMBERS:
                raise PackageInvalid(f"more than {MAX_MEMBERS} members")
            left -= member.size
            if left < 0:
                raise PackageInvalid(f"unpacked it is larger than {MAX_PACKAGE_BYTES} bytes")
            _unpack_one(tar, member, tree)


def _unpack_one(tar: tarfile.TarFile, member: tarfile.TarInfo, tree: Path) -> None:
    target = tree.joinpath(*_parts(member.name))
    if member.isdir():
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        return
    if not member.isreg():
        raise PackageInvalid(f"{member.name!r} is neither a file nor a directory")
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    # Nothing but what we made ourselves is in the tree: no link can be on the way.
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    mode = 0o700 if member.mode & stat.S_IXUSR else 0o600
    try:
        out_fd = os.open(target, flags, mode)
    except FileExistsError as error:
        raise PackageInvalid(f"{member.name!r} comes twice") from error
    with source, os.fdopen(out_fd, "wb") as out:
        shutil.copyfileobj(source, out, _BLOCK)


def _parts(name: str) -> Iterator[str]:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\0" in name:
        raise PackageInvalid(f"{name!r} leads outside")
    return iter(path.parts)


def _put_in_place(tree: Path, place: Path, request: PkgInstall) -> None:
    """Complete or not at all: the note is inside before the name exists."""
    note = InstalledPackage(name=request.name, version=request.version, sha256=request.sha256)
    (tree / _NOTE).unlink(missing_ok=True)  # an archive does not speak for itself
    (tree / _NOTE).write_bytes(msgspec.json.encode(note))
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if place.exists():
        shutil.rmtree(place)
    tree.rename(place)


def _is_safe_version(version: str) -> bool:
    return version not in ("", ".", "..") and not {"/", "\0"} & set(version)


def _failed(request: PkgInstall | PkgUninstall, op: str, why: str) -> PkgEvent:
    event = _event(request, op, "failed")
    return msgspec.structs.replace(event, code=ControlCode.PKG_INVALID, message=why[:1024])


def _event(request: PkgInstall | PkgUninstall, op: str, status: str) -> PkgEvent:
    return msgspec.convert(
        {
            "op_id": request.op_id,
            "op": op,
            "name": request.name,
            "version": request.version,
            "status": status,
            "sha256": request.sha256 if isinstance(request, PkgInstall) else None,
        },
        PkgEvent,
    )
