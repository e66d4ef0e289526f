"""The agent's side of a hook's process: start it, stop it, and make sure that nothing is left.

Called by runner. Whatever happens to the hook's process, the answer comes: what it started is
killed by its launcher, by itself, or in the end by the mark in its environment.
"""

import asyncio
import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import uuid4

import msgspec
import structlog

from nodeagent.hooks.command_main import HookEnd, HookRequest, frame, read_frame
from nodeagent.hooks.context import Phase
from nodeagent.hooks.directories import Sandbox, SuiteDirs
from nodeagent.worker.executor import STOP_GRACE_S, TIMEOUT_GRACE_S
from nodeagent.worker.process_tree import kill_by_environment
from nodeagent.worker.threads import run_blocking

log = structlog.stdlib.get_logger(__name__)

# structlog loads both where they are installed, for logs that this process hardly writes: half of
# the CPU of its start, and every suite waits for it twice.
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); sys.modules.update(rich=None, twisted=None);"
    "from nodeagent.hooks.command_main import main; main()"
)
_PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
_DROP_MAIN = str(Path(__file__).resolve().with_name("drop_main.py"))
_RUN_MARK = "MITOSIS_HOOK_RUN"
# The launcher gives up on unkillable processes after 60 s, its user after 75; then it is our turn.
_LAST_WORD_S = 90.0
# From the end of the channel to the end of the process, when there is nothing unkillable in it.
_LEAVE_S = 20.0


class HookCommand(msgspec.Struct, frozen=True, kw_only=True):
    """One command in its suite's directory."""

    argv: Sequence[str]
    env: Mapping[str, str]
    timeout_s: float
    phase: Phase
    dirs: SuiteDirs
    sandbox: Sandbox | None = None
    cgroup_procs: Sequence[str] = ()


async def run_hook_command(command: HookCommand, cancel: asyncio.Event) -> HookEnd:
    """Run it to its end, or until `cancel`; raises OSError if its files cannot be written.

    Cancelling the calling task kills the command and everything it started as well.
    """
    mark = uuid4().hex
    request = await run_blocking(_prepare, command, mark)
    ours, theirs = socket.socketpair()
    with theirs:
        # From this thread, which lives as long as the loop: parent-death signals are per thread.
        process = _start_process(theirs.fileno(), command.dirs.shared)
    writer: asyncio.StreamWriter | None = None
    try:
        reader, writer = await asyncio.open_connection(sock=ours)
        return await _converse(reader, writer, request, cancel)
    finally:
        if writer is None:
            ours.close()
        else:
            writer.close()
        killed = await run_blocking(_end, process, mark)
        if killed:
            log.warning("hook.strays_killed", phase=command.phase, killed=killed)


async def _converse(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    request: HookRequest,
    cancel: asyncio.Event,
) -> HookEnd:
    answering = asyncio.create_task(_answer(reader))
    cancelled = asyncio.create_task(cancel.wait())
    try:
        writer.write(frame(msgspec.to_builtins(request)))
        limit_s = request.timeout_s + TIMEOUT_GRACE_S + _LAST_WORD_S
        await asyncio.wait(
            {answering, cancelled}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED
        )
        if not answering.done() and cancel.is_set():
            writer.write(b"s")
            await asyncio.wait({answering}, timeout=STOP_GRACE_S + _LAST_WORD_S)
        if not answering.done():
            return HookEnd(kind="lost", reason="the hook's process does not answer")
        return answering.result()
    finally:
        answering.cancel()
        cancelled.cancel()


async def _answer(reader: asyncio.StreamReader) -> HookEnd:
    try:
        return msgspec.json.decode(await read_frame(reader), type=HookEnd)
    except (asyncio.IncompleteReadError, ConnectionError, msgspec.MsgspecError):
        return HookEnd(kind="lost", reason="the hook's process was killed")


def _prepare(command: HookCommand, mark: str) -> HookRequest:
    """Write the files the hook's process needs; in a thread."""
    outputs = [command.dirs.output(command.phase, stream) for stream in ("stdout", "stderr")]
    for path in outputs:
        _make_output(path, command.sandbox)
    env = {**command.env, _RUN_MARK: mark}
    argv = list(command.argv)
    if command.sandbox is not None:
        env_file = command.dirs.environment(command.phase)
        _write_environment(env_file, env)
        identity = (str(command.sandbox.uid), str(command.sandbox.gid))
        argv = [sys.executable, "-I", "-S", _DROP_MAIN, str(env_file), *identity, *argv]
        env = {"PATH": os.defpath, _RUN_MARK: mark}
    return HookRequest(
        argv=argv,
        env=env,
        stdout=str(outputs[0]),
        stderr=str(outputs[1]),
        timeout_s=command.timeout_s,
        cgroup_procs=list(command.cgroup_procs),
    )


def _make_output(path: Path, sandbox: Sandbox | None) -> None:
    """An empty file of the command's user, so that it may also be opened as /dev/stderr."""
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        if sandbox is not None:
            os.fchown(fd, sandbox.uid, sandbox.gid)
    finally:
        os.close(fd)


def _write_environment(path: Path, env: Mapping[str, str]) -> None:
    path.unlink(missing_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as file:
        # Lone surrogates stand for undecodable bytes; escaped they survive any encoding.
        file.write(json.dumps(dict(env)))


def _start_process(channel_fd: int, directory: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(  # noqa: S603 - a fixed command line of our own
        [
            *(sys.executable, "-I", "-X", "utf8", "-c", _BOOT),
            *(_PACKAGE_ROOT, str(channel_fd), str(os.getpid())),
        ],
        env={"PATH": os.defpath},
        cwd=directory,
        stdin=subprocess.DEVNULL,
        pass_fds=(channel_fd,),
        start_new_session=True,
    )


def _end(process: "subprocess.Popen[bytes]", mark: str) -> int:
    try:
        process.wait(timeout=_LEAVE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return kill_by_environment(f"{_RUN_MARK}={mark}".encode())
