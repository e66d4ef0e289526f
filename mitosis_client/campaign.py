"""A suite as a context: made at the start, closed at the end, cancelled if the block fails."""

from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any

from mitosis_client.arrays import submit_rows
from mitosis_client.bars import new_bar
from mitosis_client.calls.tasks import NewTask
from mitosis_client.client import Client
from mitosis_client.follow import wait_for_suite
from mitosis_client.models import SubmittedArray, Suite, Task
from mitosis_protocol.suites import SuiteSpec


class Campaign:
    """`with Campaign(client, spec) as campaign: campaign.submit([...]); campaign.wait()`."""

    def __init__(self, client: Client, spec: SuiteSpec) -> None:
        self._client = client
        self._spec = spec
        self.uuid = ""

    def __enter__(self) -> "Campaign":
        self.uuid = self._client.suites.create(self._spec).uuid
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._client.suites.close(self.uuid)
        else:
            self._client.suites.cancel(self.uuid, reason=f"{kind.__name__} in the client")

    def submit(
        self, command: Sequence[str], rows: Iterable[Mapping[str, Any]] = ({},), **members: Any
    ) -> SubmittedArray:
        """One task per row; `{name}` in the command is the row's value of that name."""
        template = NewTask(
            args=command, group_name=self._spec.group_name, suite_uuid=self.uuid, **members
        )
        return submit_rows(self._client, template, [dict(row) for row in rows])

    def wait(self, *, timeout_s: float | None = None, progress: bool = False) -> Suite:
        """Until no task is left; with a bar, also in a notebook, if asked for."""
        if not progress:
            return wait_for_suite(self._client, self.uuid, timeout_s=timeout_s)
        bar = new_bar(self._spec.name or self.uuid)

        def tick(suite: Suite) -> None:
            bad = suite.failed_tasks + suite.cancelled_tasks
            bar.update(done=suite.ended_tasks, total=suite.total_tasks, failed=bad)

        try:
            return wait_for_suite(self._client, self.uuid, tick=tick, timeout_s=timeout_s)
        finally:
            bar.close()

    def tasks(self) -> Iterable[Task]:
        return self._client.tasks.list(group_name=self._spec.group_name, suite_uuid=self.uuid)
