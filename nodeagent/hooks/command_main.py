"""The process that runs one hook: a launcher, its command, one answer, the end.

A process of its own because a launcher that was lost is answered by killing everything below the
process that used it, and below the agent that would be the workers. Ends when the agent does (end
of the channel) and leaves nothing behind. Frames: 4-byte length, then JSON.
"""

import asyncio
import json
import os
import signal
import socket
import struct
import sys
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import structlog

from nodeagent.errors import AgentError, SpawnRefused
from nodeagent.worker.control import StopReason, TaskControl
from nodeagent.worker.executor import CommandEnd, run_command
from nodeagent.worker.launcher import Command, Launcher
from nodeagent.worker.process_tree import hide_memory, signal_on_parent_death

log = structlog.stdlib.get_logger(__name__)

HEADER = struct.Struct(">I")
MAX_FRAME_BYTES = 1 << 20
EndKind: TypeAlias = Literal["exited", "timed_out", "stopped", "refused", "lost"]


class HookRequest(msgspec.Struct, frozen=True, kw_only=True):
    """What the agent asks for."""

    argv: list[str]
    env: dict[str, str]
    stdout: str
    stderr: str
    timeout_s: float
    cgroup_procs: list[str] = []


class HookEnd(msgspec.Struct, frozen=True, kw_only=True):
    """What became of it; `status` is the raw wait status."""

    kind: EndKind
    status: int = 0
    reason: str = ""
    leftovers: int = 0
    survivors: int = 0


def main() -> None:
    """Serve one request. argv: channel descriptor, pid of the agent."""
    channel = socket.socket(fileno=int(sys.argv[-2]))
    channel.set_inheritable(False)
    hide_memory()
    # Only SIGCONT gets a stopped process going again; it then sees the end of the channel.
    signal_on_parent_death(signal.SIGCONT)
    # The agent alone decides about the end; a terminal's Ctrl-C is not meant for us.
    for signum in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(signum, signal.SIG_IGN)
    if os.getppid() != int(sys.argv[-1]):
        return
    asyncio.run(_serve(channel))


async def _serve(channel: socket.socket) -> None:
    reader, writer = await asyncio.open_connection(sock=channel)
    try:
        # The environment may hold lone surrogates, which only the standard library's JSON carries.
        request = msgspec.convert(json.loads(await read_frame(reader)), HookRequest)
        end = await _run(request, reader)
        writer.write(frame(msgspec.to_builtins(end)))
        await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        # The agent is gone; whatever ran has been ended.
        return
    finally:
        writer.close()


async def _run(request: HookRequest, reader: asyncio.StreamReader) -> HookEnd:
    control = TaskControl(attempt_id=0)
    listening = asyncio.create_task(_listen(reader, control))
    launcher: Launcher | None = None
    try:
        for path in request.cgroup_procs:
            await asyncio.to_thread(Path(path).write_text, "0")
        launcher = Launcher()
        command = Command(request.argv, request.env, Path(request.stdout), Path(request.stderr))
        end = await run_command(launcher, command, timeout_s=request.timeout_s, control=control)
        return _described(end)
    except SpawnRefused as error:
        return HookEnd(kind="refused", reason=str(error))
    except (AgentError, OSError) as error:
        return HookEnd(kind="lost", reason=f"{type(error).__name__}: {error}")
    finally:
        listening.cancel()
        if launcher is not None:
            await launcher.close()


async def _listen(reader: asyncio.StreamReader, control: TaskControl) -> None:
    """A byte means: stop it gently. The end of the channel means: at once."""
    try:
        while await reader.read(1):
            control.stop(StopReason.CANCELLED)
    except ConnectionError:
        pass
    control.stop(StopReason.SHUTDOWN)


def _described(end: CommandEnd) -> HookEnd:
    return HookEnd(
        kind=end.cause.value,
        status=end.exit.status,
        leftovers=end.exit.leftovers,
        survivors=end.exit.survivors,
    )


def frame(message: object) -> bytes:
    body = json.dumps(message).encode()
    return HEADER.pack(len(body)) + body


async def read_frame(reader: asyncio.StreamReader) -> bytes:
    (size,) = HEADER.unpack(await reader.readexactly(HEADER.size))
    return await reader.readexactly(size)
