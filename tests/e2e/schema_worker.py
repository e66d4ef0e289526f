"""A direct worker made from docs/schema/ws/*.json alone: websockets, jsonschema, nothing of ours.

It validates every frame in both directions, the envelope first. Used by the control-plane tests,
and as a program it completes one session:

    python schema_worker.py URL TOKEN TENANT WORKER_ID
"""

import asyncio
import json
import re
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jsonschema
import websockets

SCHEMAS = Path(__file__).resolve().parents[2] / "docs" / "schema" / "ws"
WAIT_S = 30.0  # for a frame, on a machine with other things to do

Frame = dict[str, Any]


def _validators() -> dict[str, jsonschema.Draft202012Validator]:
    found = {}
    for path in SCHEMAS.glob("ws.*.schema.json"):
        name = path.name.removeprefix("ws.").removesuffix(".schema.json")
        found[name] = jsonschema.Draft202012Validator(json.loads(path.read_text()))
    return found


VALIDATORS = _validators()


def validate(frame: Frame) -> None:
    VALIDATORS["envelope"].validate(frame)
    VALIDATORS[frame["type"]].validate(frame["payload"])


class Closed(Exception):
    """The scheduler ended the session."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(f"{code} {reason}")
        self.code = code


class SchemaWorker:
    """One session. Acks commands by itself unless told otherwise; the test does the rest."""

    def __init__(self, socket: Any, tenant: str, worker_id: str) -> None:
        self.tenant = tenant
        self.worker_id = worker_id
        self.acks_commands = True
        self.transcript: list[tuple[str, Frame]] = []
        self.inbox: list[Frame] = []
        self.closed: Closed | None = None
        self._socket = socket
        self._arrived = asyncio.Event()
        self._reader = asyncio.create_task(self._read())
        self._beats: asyncio.Task[None] | None = None
        self._orders: set[str] = set()

    # --- frames ---

    def frame(self, kind: str, payload: Frame, **members: Any) -> Frame:
        return {
            "type": kind,
            "id": uuid.uuid4().hex,
            "ts": datetime.now(UTC).isoformat(),
            "tenant": self.tenant,
            "sender": {"role": "worker", "id": self.worker_id},
            "payload": payload,
            **members,
        }

    def recorded(self, names: dict[str, str]) -> list[str]:
        """The transcript with names for what differs from run to run, repetitions left out."""
        lines: list[str] = []
        ids: dict[str, str] = {}
        acked: set[str] = set()
        for who, frame in self.transcript:
            about = (
                frame["payload"].get("for") if (who, frame["type"]) == ("worker", "ack") else None
            )
            if frame["id"] in ids or about in acked:
                continue  # an ack was slow, so an order came twice
            acked |= {about} - {None}
            ids[frame["id"]] = f"{who[0]}{sum(name[0] == who[0] for name in ids.values()) + 1}"
            shown = {**frame, "ts": "…"}
            if who == "scheduler":
                shown["sender"] = {"role": "scheduler", "id": "session"}
            if "corr" in frame:
                shown["corr"] = "1"
            text = re.sub(
                r'"task_id": [0-9]+', '"task_id": 1', json.dumps(shown, ensure_ascii=False)
            )
            for value, name in names.items():
                text = text.replace(value, name)
            for value, name in ids.items():
                text = text.replace(f'"{value}"', f'"{name}"')
            lines.append(f"{who:9} → {text}")
        return lines

    async def send(self, kind: str, payload: Frame, **members: Any) -> str:
        """Validate, send; the id."""
        frame = self.frame(kind, payload, **members)
        validate(frame)
        await self.send_raw(frame)
        return str(frame["id"])

    async def send_raw(self, frame: Frame) -> None:
        self.transcript.append(("worker", frame))
        await self._socket.send(json.dumps(frame))

    async def ask(self, kind: str, payload: Frame, **members: Any) -> Frame:
        """Send and wait for the ack or error about it."""
        return await self.answer_to(
            await self.send(kind, payload, ack={"request": True}, **members)
        )

    async def answer_to(self, message_id: str) -> Frame:
        return await self.next(
            lambda frame: (
                frame["type"] in {"ack", "error"} and frame["payload"].get("for") == message_id
            )
        )

    async def next(self, wanted: str | Callable[[Frame], bool], within_s: float = WAIT_S) -> Frame:
        """The first frame of this type, or that the function wants; others stay in the inbox."""
        matches = (lambda f: f["type"] == wanted) if isinstance(wanted, str) else wanted
        async with asyncio.timeout(within_s):
            while True:
                for frame in self.inbox:
                    if matches(frame):
                        self.inbox.remove(frame)
                        return frame
                if self.closed is not None:
                    raise self.closed
                self._arrived.clear()
                await self._arrived.wait()

    async def ended(self, within_s: float = WAIT_S) -> Closed:
        async with asyncio.timeout(within_s):
            await asyncio.wait({self._reader})
        assert self.closed is not None
        return self.closed

    # --- the session ---

    async def handshake(self, **changes: Any) -> Frame:
        said = {"worker_id": self.worker_id, "process_id": str(uuid.uuid4()), **changes}
        return await self.ask("handshake", said)

    async def register(
        self, node_types: tuple[str, ...] = ("command",), parallel: int = 1, **more: Any
    ) -> Frame:
        capabilities = {
            "node_types": list(node_types),
            "concurrency": {"max_parallel": parallel},
            **more.pop("capabilities", {}),
        }
        return await self.ask("register", {"capabilities": capabilities, **more})

    def keep_beating(self, every_s: float = 1.0) -> None:
        async def beat() -> None:
            while True:
                await asyncio.sleep(every_s)
                await self.send("heartbeat", {"healthy": True})

        self._beats = asyncio.create_task(beat())

    async def stop_beating(self) -> None:
        if self._beats is not None:
            self._beats.cancel()
            await asyncio.gather(self._beats, return_exceptions=True)

    async def result(self, dispatch: Frame, seq: int = 1, **said: Any) -> Frame:
        """End what was dispatched; the scheduler's answer."""
        task_id = dispatch["payload"]["task_id"]
        payload = {"task_id": task_id, "status": "succeeded", **said}
        return await self.ask("result", payload, corr=str(task_id), seq=seq)

    async def close(self) -> None:
        await self.stop_beating()
        await self._socket.close()
        await asyncio.wait({self._reader})

    async def _read(self) -> None:
        try:
            async for text in self._socket:
                frame = json.loads(text)
                validate(frame)
                self.transcript.append(("scheduler", frame))
                is_order = frame["type"].partition(".")[0] in {"cmd", "pkg"}
                if is_order and self.acks_commands:
                    members = {"corr": frame["corr"]} if "corr" in frame else {}
                    await self.send("ack", {"for": frame["id"]}, **members)
                    if frame["id"] in self._orders:
                        continue  # repeated: acked again, begun once
                    self._orders.add(frame["id"])
                self.inbox.append(frame)
                self._arrived.set()
        except websockets.ConnectionClosed:
            pass
        finally:
            self.closed = Closed(self._socket.close_code or 1006, self._socket.close_reason or "")
            self._arrived.set()


@asynccontextmanager
async def session(
    url: str, token: str, tenant: str, worker_id: str, **headers: str
) -> AsyncIterator[SchemaWorker]:
    """Connected and not yet known; raises websockets.InvalidStatus when the upgrade is refused."""
    address = url.replace("http", "ws", 1) + "/ws/workers"
    bearer = {"Authorization": f"Bearer {token}", **headers}
    async with websockets.connect(address, additional_headers=bearer, max_size=1 << 20) as socket:
        worker = SchemaWorker(socket, tenant, worker_id)
        try:
            yield worker
        finally:
            await worker.close()


async def one_session(url: str, token: str, tenant: str, worker_id: str) -> None:
    """Handshake, register, one task with feedback, result, goodbye."""
    async with session(url, token, tenant, worker_id) as worker:
        terms = (await worker.handshake())["payload"]["session"]
        assert terms["tenant"] == tenant
        await worker.register()
        dispatch = await worker.next("cmd.dispatch")
        task_id = dispatch["payload"]["task_id"]
        said = {"task_id": task_id, "stage": "running", "progress": 0.5}
        await worker.ask("feedback", said, corr=str(task_id), seq=1)
        ended = await worker.result(dispatch, seq=2, outputs={"answer": 42})
        assert ended["type"] == "ack", ended
        sys.stdout.write(f"{dispatch['payload']['task_uuid']}\n")


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        asyncio.run(one_session(*sys.argv[1:5]))
