"""What a handler is given beside its parameters: where to put things and whom to tell.

Public by way of `nodeagent.handlers`. Nothing here waits for the coordinator: news goes out in the
background and is left out when too much of it waits.
"""

from pathlib import Path
from typing import Any, Final, Protocol
from uuid import UUID

from mitosis_protocol.control_payloads import MAX_CHUNK_BYTES, Chunk, Dispatch, Feedback
from mitosis_protocol.node_calls import WorkerResource
from nodeagent.direct.shelf import Shelf
from nodeagent.worker.control import TaskControl
from nodeagent.worker.workspace import Workspace

_STREAMS: Final = frozenset({"stdout", "stderr"})


class Teller(Protocol):
    """Who passes news on (DirectComm)."""

    def tell(self, feedback: Feedback) -> bool: ...


class Context:
    """One run of a handler."""

    def __init__(
        self,
        dispatch: Dispatch,
        workspace: Workspace,
        *,
        teller: Teller,
        control: TaskControl,
        shelf: Shelf,
    ) -> None:
        self._dispatch = dispatch
        self._workspace = workspace
        self._teller = teller
        self._control = control
        self._shelf = shelf
        self.left: list[WorkerResource] = []

    @property
    def task_uuid(self) -> UUID:
        return self._dispatch.task_uuid

    @property
    def attempt(self) -> int:
        """1 for the first time the task runs, then 2 ..."""
        return self._dispatch.attempt

    @property
    def dispatch(self) -> Dispatch:
        """All that was said about the task: affinity, middleware, references."""
        return self._dispatch

    @property
    def result_dir(self) -> Path:
        """Files left here are the task's `result` artifact."""
        return self._workspace.result_dir

    @property
    def resource_dir(self) -> Path:
        """The task's resources, downloaded before the handler runs."""
        return self._workspace.resource_dir

    @property
    def packages_dir(self) -> Path:
        """Installed packages, as `<name>/<version>`."""
        return self._shelf.packages_dir

    @property
    def is_cancelled(self) -> bool:
        """For loops that never wait: everything that awaits is interrupted anyway."""
        return self._control.reason is not None

    def feedback(
        self,
        *,
        stage: str | None = None,
        progress: float | None = None,
        message: str | None = None,
        metrics: dict[str, float] | None = None,
    ) -> bool:
        """Tell watchers how far the task is; False if it was left out for too much else."""
        return self._teller.tell(
            Feedback(
                task_id=self._dispatch.task_id,
                stage=stage,
                progress=None if progress is None else min(1.0, max(0.0, progress)),
                message=None if message is None else message[:1024],
                metrics=metrics or {},
            )
        )

    def emit(self, channel: str, text: str, *, mime: str | None = None) -> bool:
        """A fragment of a channel of the handler's own, such as the tokens of a model."""
        if channel in _STREAMS:
            raise ValueError(f"{channel} is written with print(), which keeps it")
        if len(text.encode()) > MAX_CHUNK_BYTES:
            raise ValueError(f"a fragment has at most {MAX_CHUNK_BYTES} bytes")
        chunk = Chunk(channel=channel, text=text, mime=mime)
        return self._teller.tell(Feedback(task_id=self._dispatch.task_id, chunks=[chunk]))

    def print(self, *values: object, stream: str = "stdout") -> None:
        """A line of output: watched while the task runs, kept in its log afterwards."""
        files = {"stdout": self._workspace.stdout_file, "stderr": self._workspace.stderr_file}
        with files[stream].open("a", encoding="utf-8", errors="replace") as out:
            out.write(" ".join(str(value) for value in values) + "\n")

    def keep(
        self,
        resource_id: str,
        value: object,
        *,
        type: str,
        scope: str | None = None,
        expires_at: str | None = None,
        metadata: dict[str, Any] | None = None,
    ) -> WorkerResource:
        """Leave `value` (a session, a model) in this process for tasks that refer to it."""
        resource = WorkerResource(
            resource_id=resource_id,
            worker_id=self._shelf.worker_uuid,
            type=type,
            scope=scope,
            expires_at=expires_at,
            metadata=metadata or {},
        )
        self._shelf.put(resource, value)
        self.left.append(resource)
        return resource

    def resource(self, resource_id: str) -> Any:
        """What an earlier run kept. Raises KeyError if it is gone or its time is over."""
        return self._shelf.get(resource_id)

    def discard(self, resource_id: str) -> None:
        """Forget a resource; no error if it is gone."""
        self._shelf.discard(resource_id)
