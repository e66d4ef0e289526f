"""A worker for tests of the pool: runs what the test sends over its socket, in its slot.

Forked by the real fork server, with the real launcher and slot; only the agent's side is the test.
"""

import asyncio
import json
import os
import signal
import socket
from pathlib import Path
from typing import Any

import msgspec

from mitosis_protocol.suites import ResourceLimits
from nodeagent.errors import AgentError
from nodeagent.pool.launch import WorkerStart, decode_start
from nodeagent.worker import executor
from nodeagent.worker.control import StopReason, TaskControl
from nodeagent.worker.executor import run_command
from nodeagent.worker.launcher import Command
from nodeagent.worker.slot import SlotRunner, prepare_launcher


def main(data: bytes, descriptors: list[int]) -> int:
    """The fork server's target."""
    start = decode_start(data, descriptors)
    launcher = prepare_launcher(start.setup)
    asyncio.run(_work(start, SlotRunner(start.setup, launcher)))
    return 0


def end_badly(data: bytes, descriptors: list[int]) -> int:
    """A target that ends as its environment says: `signal:11`, `exit:3`, `raise`."""
    how = decode_start(data, descriptors).launch.env["END"]
    if how == "raise":
        raise RuntimeError("as asked")
    kind, _, number = how.partition(":")
    if kind == "signal":
        os.kill(os.getpid(), int(number))
        signal.pause()
    return int(number)


async def _work(start: WorkerStart, runner: SlotRunner) -> None:
    fd = start.launch.endpoint.fd
    assert fd is not None
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=fd), limit=1 << 24)
    await runner.open()
    inherited = dict(start.launch.env)
    _say(writer, {"ready": os.getpid(), "trouble": runner.trouble()})
    running: asyncio.Task[None] | None = None
    control = TaskControl(0)
    while line := await reader.readline():
        request = {"env": inherited or {"PATH": os.defpath}, **json.loads(line)}
        request["env"] = request["env"] or inherited
        if "stop" in request:
            control.stop(StopReason.CANCELLED)
            continue
        if running is not None:
            await running
        control = TaskControl(0)
        running = asyncio.create_task(_run(runner, request, control, writer))
    if running is not None:
        running.cancel()
    await runner.close()


async def _run(
    runner: SlotRunner,
    request: dict[str, Any],
    control: TaskControl,
    writer: asyncio.StreamWriter,
) -> None:
    executor.TIMEOUT_GRACE_S = executor.STOP_GRACE_S = request.get("grace_s", 0.5)
    try:
        output = request.get("output")
        command = Command(
            argv=request["argv"],
            env=request["env"],
            stdout=Path(output) if output else None,
            stderr=Path(output) if output else None,
            limits=msgspec.convert(request["limits"], ResourceLimits)
            if request.get("limits")
            else None,
        )
        end = await run_command(
            runner, command, timeout_s=request.get("timeout_s", 60), control=control
        )
    except AgentError as error:
        _say(writer, {"error": type(error).__name__, "reason": str(error)})
        return
    _say(writer, {"cause": end.cause.value, **msgspec.to_builtins(end.exit)})


def _say(writer: asyncio.StreamWriter, message: dict[str, Any]) -> None:
    writer.write(json.dumps(message).encode() + b"\n")
