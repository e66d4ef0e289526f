"""Resources of hooks from a real S3: sums, paths, a store that is away, a disk that is full."""

import asyncio
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.to_manager import ResolvedResource
from nodeagent.debt import Debt, DebtBook
from nodeagent.disk import DiskState, disk_room, disk_state
from nodeagent.errors import CoordinatorUnavailable, ResourceRefused
from nodeagent.hooks.directories import Sandbox
from nodeagent.hooks.runner import run_hook, stage
from nodeagent.worker.comm import RemoteLocation
from nodeagent.worker.transfers import StoredSums
from tests.fakes.tiny_http import Answer, Request, TinyHttp
from tests.fakes.worker_process import wait_until
from tests.integration.nodeagent.hook_fixtures import NOBODY, lab, open_dir, sandbox, store
from tests.integration.nodeagent.hook_lab import (
    Lab,
    Store,
    context,
    resource,
    sha256,
    shell,
)
from tests.integration.nodeagent.own_s3 import OwnS3

__all__ = ["lab", "open_dir", "sandbox", "store"]

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can do this")
SCRIPT = b"#!/bin/sh\ncat data/words.txt > out\n"


async def test_resources_are_in_place_before_the_command_runs(lab: Lab, store: Store) -> None:
    words = os.urandom(3 << 20)
    hook = msgspec.structs.replace(
        shell(""),
        args=["./setup.sh"],
        resources=[store.put("setup.sh", SCRIPT), store.put("data/words.txt", words)],
    )
    about = context()
    result = await run_hook(hook, about, lab.host(store.resolve))
    assert (result.kind, result.tries) == ("ok", 1), result
    assert (lab.shared(about) / "out").read_bytes() == words
    assert not list(lab.shared(about).rglob(".incoming-*"))


@needs_root
async def test_a_sandboxed_hook_owns_its_resources(
    lab: Lab, store: Store, sandbox: Sandbox
) -> None:
    hook = msgspec.structs.replace(
        shell(""),
        args=["./setup.sh"],
        resources=[store.put("setup.sh", SCRIPT), store.put("data/words.txt", b"hello")],
    )
    about = context()
    result = await run_hook(hook, about, lab.host(store.resolve, sandbox=sandbox))
    assert result.is_ok, result
    for name in ("setup.sh", "data", "data/words.txt", "out"):
        assert (lab.shared(about) / name).stat().st_uid == NOBODY
        # Tasks of other slots, which are other users, read them too.
        assert (lab.shared(about) / name).stat().st_mode & 0o044 == 0o044


async def test_the_store_tells_a_sum_that_is_checked(lab: Lab, store: Store) -> None:
    """Removing the comparison would make every test of mismatches below vacuous for S3."""
    store.put("f", b"content")
    link = store.links["f"]
    assert link.url is not None
    location = RemoteLocation(url=link.url, size=link.size)
    sums = await lab.transfers.download(location, lambda _: None)
    assert sums == StoredSums(md5="9a0364b9e99bb480dd25e1f0284c8555")


async def test_a_wrong_sha256_is_refused_and_nothing_is_run(lab: Lab, store: Store) -> None:
    hook = shell("touch ran", resources=[store.put("f", b"content", sha256=sha256(b"other"))])
    about = context()
    result = await run_hook(hook, about, lab.host(store.resolve))
    assert (result.kind, result.exit_code, result.tries) == ("command", None, 2)
    assert "SHA-256" in result.stderr_tail
    assert store.asked == 2
    assert list(lab.shared(about).iterdir()) == []


async def test_a_right_sha256_is_accepted_in_either_case(lab: Lab, store: Store) -> None:
    hook = shell("cat f", resources=[store.put("f", b"content", sha256=sha256(b"content").upper())])
    assert (await run_hook(hook, context(), lab.host(store.resolve))).is_ok


@pytest.fixture
def liar() -> Iterator[TinyHttp]:
    """A store whose bytes are not those its ETag is the sum of."""

    def answer(request: Request) -> Answer:
        etag = '"9a0364b9e99bb480dd25e1f0284c8555"'
        if request.path == "/multipart":
            etag = '"9a0364b9e99bb480dd25e1f0284c8555-2"'
        return Answer(body=b"damaged", headers={"ETag": etag})

    http = TinyHttp(answer)
    http.start()
    yield http
    http.stop()


async def test_bytes_that_do_not_match_the_stores_sum_are_refused(lab: Lab, liar: TinyHttp) -> None:
    async def resolve(_: object) -> list[ResolvedResource]:
        return [ResolvedResource(url=f"{liar.url}/whole", size=7)]

    about = context()
    result = await run_hook(shell("true", resources=[resource("f")]), about, lab.host(resolve))
    assert result.kind == "command"
    assert "MD5" in result.stderr_tail
    assert not (lab.shared(about) / "f").exists()


async def test_the_etag_of_a_multi_part_object_is_no_sum(lab: Lab, liar: TinyHttp) -> None:
    async def resolve(_: object) -> list[ResolvedResource]:
        return [ResolvedResource(url=f"{liar.url}/multipart", size=7)]

    result = await run_hook(shell("true", resources=[resource("f")]), context(), lab.host(resolve))
    assert result.is_ok


async def test_a_missing_resource_is_not_waited_for(lab: Lab, store: Store) -> None:
    hook = shell("true", resources=[resource("nowhere")])
    result = await run_hook(hook, context(), lab.host(store.resolve))
    assert (result.kind, result.tries) == ("command", 1)
    assert "nowhere" in result.stderr_tail


async def test_a_refusal_of_the_coordinator_is_not_tried_again(lab: Lab) -> None:
    async def resolve(_: object) -> list[ResolvedResource]:
        raise ResourceRefused("the engagement is over")

    hook = shell("true", resources=[resource("f")])
    result = await run_hook(hook, context(), lab.host(resolve))
    assert (result.kind, result.stderr_tail) == ("command", "the engagement is over")


async def test_a_planted_link_is_not_followed(lab: Lab, store: Store, tmp_path: Path) -> None:
    about = context()
    await run_hook(shell(f"ln -s {tmp_path} sub; ln -s {tmp_path}/x f"), about, lab.host())
    hook = shell("true", resources=[store.put("sub/evil", b"x")])
    assert (await run_hook(hook, about, lab.host(store.resolve))).kind == "command"
    hook = shell("true", resources=[store.put("f", b"x")])
    assert (await run_hook(hook, about, lab.host(store.resolve))).is_ok
    assert not list_names(tmp_path)
    assert not (lab.shared(about) / "f").is_symlink()


async def test_a_coordinator_that_is_away_is_asked_again(lab: Lab, store: Store) -> None:
    ref = store.put("f", b"content")
    troubles: list[object] = [
        CoordinatorUnavailable("link lost"),
        ResolvedResource(error=ErrorCode.STORAGE_UNAVAILABLE),
    ]

    async def resolve(wanted: object) -> list[ResolvedResource]:
        if not troubles:
            return await store.resolve([ref.remote_file])
        trouble = troubles.pop()
        if isinstance(trouble, ResolvedResource):
            return [trouble]
        raise trouble  # type: ignore[misc]

    result = await run_hook(shell("cat f", resources=[ref]), context(), lab.host(resolve))
    assert (result.kind, result.tries) == ("ok", 3)


async def test_network_trouble_ends_at_the_deadline(lab: Lab, store: Store) -> None:
    ref = store.put("f", b"content")
    store.links["f"] = ResolvedResource(url="http://127.0.0.1:9/f", size=7)
    about = context()
    result = await run_hook(
        shell("touch ran", resources=[ref]), about, lab.host(store.resolve, network_deadline_s=1.5)
    )
    assert result.kind == "network"
    assert result.tries > 1
    assert result.seconds < 20
    assert "X-Amz" not in result.stderr_tail
    assert list(lab.shared(about).iterdir()) == []


async def test_a_download_can_be_cancelled_while_it_waits(lab: Lab, store: Store) -> None:
    cancel = asyncio.Event()
    ref = store.put("f", b"content")
    store.links["f"] = ResolvedResource(url="http://127.0.0.1:9/f", size=7)
    hook = shell("true", resources=[ref])
    running = asyncio.create_task(run_hook(hook, context(), lab.host(store.resolve), cancel))
    await asyncio.to_thread(wait_until, lambda: store.asked, within_s=20)
    cancel.set()
    assert (await asyncio.wait_for(running, 20)).kind == "cancelled"


async def test_a_store_that_goes_down_and_comes_back_is_waited_for(
    lab: Lab, tmp_path: Path
) -> None:
    own = OwnS3(tmp_path)
    try:
        await asyncio.to_thread(own.start)
        store = Store(own.environment)
        store.make_bucket()
        data = os.urandom(200_000)
        hook = shell("cat f > out", resources=[store.put("f", data, sha256=sha256(data))])
        own.stop()
        about = context()
        running = asyncio.create_task(run_hook(hook, about, lab.host(store.resolve)))
        await asyncio.to_thread(wait_until, lambda: store.asked >= 2, within_s=30)
        await asyncio.to_thread(own.start)
        result = await asyncio.wait_for(running, 80)
        assert result.is_ok, result
        assert result.tries >= 2
        assert (lab.shared(about) / "out").read_bytes() == data
    finally:
        own.stop()


async def test_staged_files_let_cleanup_run_without_a_coordinator(lab: Lab, store: Store) -> None:
    hook = msgspec.structs.replace(
        shell(""), args=["./tidy.sh"], resources=[store.put("tidy.sh", b"#!/bin/sh\nexit 0\n")]
    )
    about = context("cleanup")
    assert (await run_hook(hook, about, lab.host(None))).kind == "network"
    assert (await stage(hook, about, lab.host(store.resolve))).is_ok
    assert (await run_hook(hook, about, lab.host(None))).is_ok
    store.links.clear()
    assert (await run_hook(hook, about, lab.host(store.resolve))).is_ok


@pytest.fixture
def small_disk(open_dir: Path) -> Iterator[Path]:
    """24 MiB of tmpfs as the data directory's disk."""
    place = open_dir / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=24m,mode=711", "tmpfs", str(place)]
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount a tmpfs")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


async def test_a_full_disk_is_told_and_leaves_no_half_files(
    lab: Lab, store: Store, small_disk: Path
) -> None:
    lab.data_dir = small_disk
    assert disk_state(small_disk, low_below=1 << 20) is DiskState.OK
    assert disk_state(small_disk, low_below=1 << 30) is DiskState.LOW
    hook = shell("true", resources=[store.put("big", bytes(30 << 20))])
    about = context()
    result = await run_hook(hook, about, lab.host(store.resolve))
    assert (result.kind, result.tries) == ("command", 1)
    assert "No space left" in result.stderr_tail
    assert list(lab.shared(about).iterdir()) == []
    _fill(small_disk / "filler")
    room = disk_room(small_disk)
    assert room.state is DiskState.FULL
    assert "disk full" in room.reason
    with pytest.raises(OSError, match="No space left"):
        DebtBook(small_disk / "debts").owe(_debt())
    # A cleanup can still run, and it is what makes room.
    tidy = shell("rm ../../../filler")
    assert (await run_hook(tidy, context("cleanup", about.suite_uuid), lab.host())).is_ok
    assert disk_state(small_disk, low_below=0) is DiskState.OK


def list_names(folder: Path) -> list[str]:
    return [path.name for path in folder.iterdir()]


def _fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(1 << 20))
        except OSError:
            while shutil.disk_usage(path).free:
                file.write(bytes(4096))


def _debt() -> Debt:
    about = context("cleanup")
    return Debt(
        assignment_id=about.assignment_id,
        suite_uuid=about.suite_uuid,
        suite_name=about.suite_name,
        group_name=about.group_name,
        worker_count=1,
        manager_uuid=about.manager_uuid,
    )
