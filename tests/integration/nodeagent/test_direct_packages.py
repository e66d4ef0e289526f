"""Packages of a direct worker: what is installed, and what never reaches the disk outside."""

import hashlib
import io
import tarfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import PkgInstall, PkgUninstall
from nodeagent.direct import packages as module
from nodeagent.direct.packages import Packages
from nodeagent.worker.transfers import Transfers
from tests.fakes.tiny_http import Answer, Request, TinyHttp


class Store:
    """Serves the archives a test put there."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.http = TinyHttp(self._answer)

    def put(self, data: bytes) -> str:
        path = f"/{len(self.files)}"
        self.files[path] = data
        return f"{self.http.url}{path}"

    def _answer(self, request: Request) -> Answer:
        data = self.files.get(request.path)
        return Answer(404) if data is None else Answer(200, data, "application/octet-stream")


@pytest.fixture
def store() -> Iterator[Store]:
    made = Store()
    made.http.start()
    yield made
    made.http.stop()


@pytest.fixture
async def packages(tmp_path: Path) -> AsyncIterator[Packages]:
    transfers = Transfers()
    yield Packages(tmp_path / "packages", transfers)
    await transfers.close()


def archive(*members: tuple[str, bytes | None], kind: bytes = tarfile.REGTYPE) -> bytes:
    """Members with None are of `kind` and point to /etc/passwd."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            if content is None:
                member.type = kind
                member.linkname = "/etc/passwd"
                tar.addfile(member)
            else:
                member.size = len(content)
                member.mode = 0o755
                tar.addfile(member, io.BytesIO(content))
    return out.getvalue()


def request(store: Store, data: bytes, **changes: object) -> PkgInstall:
    given = {
        "op_id": uuid4(),
        "name": "models",
        "version": "1.0",
        "url": store.put(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "size_bytes": len(data),
        **changes,
    }
    return PkgInstall(**given)  # type: ignore[arg-type]


async def test_a_package_is_unpacked_announced_replaced_and_removed(
    packages: Packages, store: Store
):
    first = request(store, archive(("bin/run", b"one"), ("README", b"r")))
    assert (await packages.install(first)).status == "installed"
    place = packages.root / "models" / "1.0"
    assert (place / "bin" / "run").read_bytes() == b"one"
    assert (place / "bin" / "run").stat().st_mode & 0o777 == 0o700
    [known] = packages.installed()
    assert (known.name, known.version, known.sha256) == ("models", "1.0", first.sha256)
    second = request(store, archive(("bin/run", b"two")))
    assert (await packages.install(second)).status == "installed"
    assert (place / "bin" / "run").read_bytes() == b"two"
    assert not (place / "README").exists()
    gone = PkgUninstall(op_id=uuid4(), name="models", version="1.0")
    assert (await packages.uninstall(gone)).status == "removed"
    assert (await packages.uninstall(gone)).status == "removed", "the wish is fulfilled"
    assert packages.installed() == []


def assert_clean(packages: Packages, folder: Path) -> None:
    assert list(folder.rglob("outside")) == []
    assert not Path("/tmp/outside").exists()
    assert list(packages.root.iterdir()) == [], "nothing half-way is left"


@pytest.mark.parametrize(
    "data",
    [
        archive(("../outside", b"x")),
        archive(("a/../../outside", b"x")),
        archive(("/tmp/outside", b"x")),
        archive(("link", None), ("link/x", b"x"), kind=tarfile.SYMTYPE),
        archive(("hard", None), kind=tarfile.LNKTYPE),
        archive(("pipe", None), kind=tarfile.FIFOTYPE),
        archive(("device", None), kind=tarfile.CHRTYPE),
        archive(("twice", b"1"), ("twice", b"2")),
        b"this is no archive",
        archive(("cut", b"x" * 100_000))[:-20],
    ],
    ids=["up", "up inside", "absolute", "symlink", "hard link", "pipe", "device", "twice", "text",
         "cut"],
)  # fmt: skip
async def test_an_archive_that_could_reach_outside_is_refused_whole(
    packages: Packages, store: Store, data: bytes, tmp_path: Path
):
    event = await packages.install(request(store, data))
    assert (event.status, event.code) == ("failed", ControlCode.PKG_INVALID)
    assert packages.installed() == []
    assert_clean(packages, tmp_path)


async def test_a_wrong_sum_name_size_or_place_is_refused(
    packages: Packages, store: Store, monkeypatch: pytest.MonkeyPatch
):
    good = archive(("a", b"x" * 5000))
    for changes in (
        {"sha256": "0" * 64},
        {"size_bytes": len(good) - 1},
        {"version": "../1"},
        {"version": ".."},
        {"url": f"{store.http.url}/absent"},
        {"size_bytes": 1 << 50},
    ):
        event = await packages.install(request(store, good, **changes))
        assert (event.status, event.code) == ("failed", ControlCode.PKG_INVALID), changes
    monkeypatch.setattr(module, "MAX_PACKAGE_BYTES", 4000)
    bomb = await packages.install(request(store, good))
    assert "larger" in bomb.message
    assert packages.installed() == []


async def test_privileges_and_owners_of_an_archive_are_not_kept(packages: Packages, store: Store):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as tar:
        for name, mode in (("suid", 0o6755), ("sticky", 0o1777), ("open", 0o666)):
            member = tarfile.TarInfo(name)
            member.mode, member.uid, member.gid, member.size = mode, 0, 0, 1
            tar.addfile(member, io.BytesIO(b"x"))
    assert (await packages.install(request(store, out.getvalue()))).status == "installed"
    place = packages.root / "models" / "1.0"
    modes = {path.name: path.stat().st_mode & 0o7777 for path in place.iterdir()}
    assert {modes["suid"], modes["sticky"]} == {0o700}
    assert modes["open"] == 0o600


async def test_more_members_than_anybody_needs_and_a_real_bomb_are_refused(
    packages: Packages, store: Store, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(module, "MAX_MEMBERS", 50)
    crowd = await packages.install(request(store, archive(*((f"f{n}", b"") for n in range(51)))))
    assert (crowd.status, "members" in crowd.message) == ("failed", True)
    monkeypatch.setattr(module, "MAX_PACKAGE_BYTES", 1 << 20)
    zeros = archive(("zeros", bytes(64 << 20)))
    assert len(zeros) < 1 << 20  # small on the way, large on the disk
    bomb = await packages.install(request(store, zeros))
    assert (bomb.status, "larger" in bomb.message) == ("failed", True)
    assert packages.installed() == []


async def test_an_archive_cannot_forge_its_note(packages: Packages, store: Store):
    forged = b'{"name": "other", "version": "9"}'
    data = archive((".mitosis-package.json", forged))
    await packages.install(request(store, data))
    [known] = packages.installed()
    assert (known.name, known.version) == ("models", "1.0")
