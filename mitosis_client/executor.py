"""`MitosisExecutor`: commands and Python functions on the fleet, as concurrent.futures.

with MitosisExecutor(client, workers=4) as executor:
    list(executor.map(math.factorial, range(100)))
    executor.submit(["./train", "--lr", "0.1"]).result().stdout
"""

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from typing import Any, Final

import msgspec
from typing_extensions import override

from mitosis_client.arrays import submit_rows
from mitosis_client.bars import new_bar
from mitosis_client.calls.tasks import NewTask
from mitosis_client.client import Client
from mitosis_client.errors import MitosisError, NotFound, TaskFailed
from mitosis_client.follow import SUCCEEDED, Ended, Follower, pause_for
from mitosis_client.outage import patiently
from mitosis_client.parcels import Parcels
from mitosis_client.remote_call import (
    BOOT,
    CALL_VARIABLE,
    MAX_INLINE_BYTES,
    TOOLS_FILE,
    as_text,
    decode_value,
    encode_call,
    needs_tools,
    tools,
)
from mitosis_client.task_output import read_output
from mitosis_protocol.specs import WorkerSchedule
from mitosis_protocol.suites import SuiteSpec

TAIL_CHARS: Final = 2000  # of stderr in an exception
Work = Callable[..., Any] | Sequence[str]


class CommandResult(msgspec.Struct, frozen=True):
    """How a command ended and what it said."""

    uuid: str
    exit_code: int
    stdout: str
    stderr: str


class TaskFuture(Future[Any]):
    """A future that knows its task; cancelling it cancels the task."""

    def __init__(self, uuid: str, *, is_call: bool, cancel: Callable[[str], bool]) -> None:
        super().__init__()
        self.uuid = uuid
        self.is_call = is_call
        self._cancel_task = cancel

    @override
    def cancel(self) -> bool:
        if self.done():
            return self.cancelled()
        return self._cancel_task(self.uuid) and super().cancel()


class MitosisExecutor(Executor):
    """Runs work in one suite, which is closed at the end. Results of functions are unpickled:
    use it with hosts you trust."""

    def __init__(
        self, client: Client, *, name: str = "executor", group: str | None = None,
        workers: int = 4, python: str = "python3", progress: bool = False,
    ) -> None:  # fmt: skip
        self._client = client
        self._group = group or client.accounts.whoami()
        self._python = python
        schedule = WorkerSchedule(worker_count=workers, task_prefetch_count=workers)
        spec = SuiteSpec(group_name=self._group, name=name, worker_schedule=schedule)
        self.suite_uuid = client.suites.create(spec).uuid
        self._parcels = Parcels(client, self._group)
        self._tool_resource: dict[str, Any] | None = None
        self._follower = Follower(client)
        self._futures: dict[str, TaskFuture] = {}
        self._bar = new_bar(name) if progress else None
        self._taken = self._failed = 0
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._is_over = False
        self._thread = threading.Thread(target=self._collect, name="mitosis-executor", daemon=True)
        self._thread.start()

    @override
    def submit(self, fn: Work, /, *args: Any, **kwargs: Any) -> TaskFuture:
        """A function with its arguments, or a command as a list of words."""
        self._refuse_after_end()
        if not callable(fn):
            return self._take(self._client.tasks.submit(self._task(list(fn))).uuid, is_call=False)
        call = encode_call(fn, args, kwargs)
        resources = self._tools([call])
        if len(call) > MAX_INLINE_BYTES:
            task = self._task(self._boot, resources=[*resources, self._parcels.send(call)])
        else:
            envs = {CALL_VARIABLE: as_text(call)}
            task = self._task(self._boot, envs=envs, resources=resources)
        return self._take(self._client.tasks.submit(task).uuid, is_call=True)

    @override
    def map(
        self, fn: Callable[..., Any], *iterables: Iterable[Any], timeout: float | None = None,
        chunksize: int = 1,
    ) -> Iterator[Any]:  # fmt: skip
        """As the built-in map, all calls at once in one request; results in order."""
        self._refuse_after_end()
        calls = [encode_call(fn, args, {}) for args in zip(*iterables, strict=False)]
        small = [call for call in calls if len(call) <= MAX_INLINE_BYTES]
        if len(small) < len(calls) or not calls:
            return super().map(fn, *iterables, timeout=timeout, chunksize=chunksize)
        template = self._task(
            self._boot, envs={CALL_VARIABLE: "{call}"}, resources=self._tools(calls)
        )
        rows = [{"call": as_text(call)} for call in calls]
        made = submit_rows(self._client, template, rows)
        futures = [self._take(uuid, is_call=True) for uuid in made.uuids]
        return (future.result(timeout) for future in futures)

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        with self._lock:
            was_over, self._is_over = self._is_over, True
            pending = list(self._futures.values())
        if cancel_futures:
            for future in pending:
                future.cancel()
        self._wake.set()
        if wait:
            _wait_all(pending)
            self._thread.join()
        if self._bar is not None:
            self._bar.close()
        if not was_over:
            self._client.suites.close(self.suite_uuid)

    def _tools(self, calls: Sequence[bytes]) -> list[dict[str, Any]]:
        """What hosts need beside Python to read these calls; sent once."""
        if not any(needs_tools(call) for call in calls):
            return []
        if self._tool_resource is None:
            self._tool_resource = self._parcels.send(tools(), TOOLS_FILE)
        return [self._tool_resource]

    @property
    def _boot(self) -> list[str]:
        return [self._python, "-c", BOOT]

    def _task(self, args: list[str], **members: Any) -> NewTask:
        return NewTask(args=args, group_name=self._group, suite_uuid=self.suite_uuid, **members)

    def _take(self, uuid: str, *, is_call: bool) -> TaskFuture:
        future = TaskFuture(uuid, is_call=is_call, cancel=self._cancel)
        with self._lock:
            self._futures[uuid] = future
            self._taken += 1
        self._wake.set()
        return future

    def _cancel(self, uuid: str) -> bool:
        return self._client.tasks.cancel_many([uuid]).cancelled_count == 1

    def _refuse_after_end(self) -> None:
        if self._is_over:
            raise RuntimeError("cannot schedule new futures after shutdown")

    def _collect(self) -> None:
        """Until shutdown and the last future: give each its result."""
        heard = time.monotonic()
        while True:
            with self._lock:
                waiting = list(self._futures)
                if self._is_over and not waiting:
                    return
            if not waiting:
                self._wake.wait()
                self._wake.clear()
                heard = time.monotonic()
                continue
            try:
                found = self._poll(waiting)
            except MitosisError as error:
                self._fail_all(error)
                continue
            if found:
                heard = time.monotonic()
            self._wake.wait(pause_for(time.monotonic() - heard))
            self._wake.clear()

    def _poll(self, waiting: list[str]) -> int:
        self._follower.add(waiting)
        found = list(self._follower.look())
        for ended in found:
            with self._lock:
                future = self._futures.pop(ended.uuid, None)
            if future is not None and future.set_running_or_notify_cancel():
                self._settle(future, ended)
            self._failed += ended.outcome != SUCCEEDED
        self._draw()
        return len(found)

    def _draw(self) -> None:
        if self._bar is not None:
            done = self._taken - len(self._futures)
            self._bar.update(done=done, total=self._taken, failed=self._failed)

    def _settle(self, future: TaskFuture, ended: Ended) -> None:
        try:
            future.set_result(self._result(future, ended))
        except BaseException as error:  # noqa: BLE001 - whatever the call raised is its result
            future.set_exception(error)

    def _result(self, future: TaskFuture, ended: Ended) -> Any:
        if future.is_call:
            try:
                archive = patiently(lambda: self._client.files.artifact(future.uuid, "result"))
            except NotFound:  # it was killed before it could leave a value
                raise self._failure(future.uuid, ended.outcome) from None
            return decode_value(archive)
        if ended.outcome != SUCCEEDED:
            raise self._failure(future.uuid, ended.outcome)
        return CommandResult(future.uuid, 0, self._said(future.uuid, "stdout"),
                             self._said(future.uuid, "stderr"))  # fmt: skip

    def _failure(self, uuid: str, outcome: str) -> TaskFailed:
        code = patiently(lambda: self._client.tasks.show(uuid)).info.exit_code
        return TaskFailed(uuid, outcome, code, self._said(uuid, "stderr")[-TAIL_CHARS:].strip())

    def _said(self, uuid: str, stream: str) -> str:
        said = patiently(lambda: b"".join(read_output(self._client, uuid, stream)))
        return said.decode(errors="replace")

    def _fail_all(self, error: MitosisError) -> None:
        """The coordinator refuses, or is gone for good: nobody may wait for ever."""
        with self._lock:
            futures, self._futures = list(self._futures.values()), {}
        for future in futures:
            if future.set_running_or_notify_cancel():
                future.set_exception(error)


def _wait_all(futures: Sequence[Future[Any]]) -> None:
    wait(futures)
