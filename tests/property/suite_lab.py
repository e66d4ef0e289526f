"""The lab of the suite machine: two suites, two managers, and time that is moved."""

from collections.abc import Sequence
from typing import Any
from uuid import uuid4

from django.conf import settings

from accounts.actors import SYSTEM
from accounts.models import Group, User
from managers.models import NodeManager
from mitosis_protocol.specs import WorkerSchedule
from mitosis_protocol.suites import SuiteSpec
from suites.models import TaskSuite
from suites.services.create import create_suite
from suites.services.lifecycle import accept_submits
from tasks import store
from tasks.dispatcher import Claim, claims_of
from tasks.new_task import NewTask
from tasks.rows import ClaimRequest, TaskRef
from tasks.services.submit import BatchItem, Taken, Target, submit_batch, submit_tasks
from tasks.statements import array
from tests.property.lab import SPEC, retry_policy
from tests.property.machine_lab import MachineLab
from tests.property.suite_model import SETTLE_S

FRESH = (
    "DELETE FROM active_tasks",
    "DELETE FROM suite_count_deltas",
    """
    UPDATE suite_assignments SET released_at = clock_timestamp(), state = 5, release_reason = 0
    WHERE released_at IS NULL
    """,
    "UPDATE task_suites SET state = 3 WHERE state <> 3",
)
ROWS = """
SELECT (
    SELECT json_agg(json_build_array(id, state, generation, submit_count, paused_at IS NOT NULL,
        blocked_at IS NOT NULL, closed_at IS NOT NULL, completed_at IS NOT NULL,
        cancelled_at IS NOT NULL, forgiven_failed) ORDER BY id)
    FROM task_suites WHERE id = ANY ($1)
), (
    SELECT json_agg(json_build_array(id, suite_id, runner_id, cancel_requested_at IS NOT NULL)
        ORDER BY id)
    FROM active_tasks WHERE suite_id = ANY ($1)
), (
    SELECT json_agg(json_build_array(id, suite_id, outcome) ORDER BY id)
    FROM archived_tasks WHERE suite_id = ANY ($1)
)
"""


class SuiteLab(MachineLab):
    """Suites are their ids; runner 0 and 1 are managers."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group.objects.get(pk=self.group_id)
        self.creator = User.objects.get(pk=self.creator_id)
        for runner_id in self.runner_ids:
            NodeManager.objects.create(runner_id=runner_id)

    def begin(self) -> None:
        for sql in FRESH:
            self.run(sql)

    def create(self, *, max_running: int | None, max_failures: int | None) -> TaskSuite:
        spec = SuiteSpec(
            group_name=self.group.name,
            worker_schedule=WorkerSchedule(worker_count=1),
            max_running=max_running,
            max_failures=max_failures,
            settle_seconds=SETTLE_S,
        )
        return create_suite(
            actor=SYSTEM,
            creator=self.creator,
            group=self.group,
            spec=spec,
            defaults=settings.MITOSIS,
        )

    def engage_with(self, suite: TaskSuite, runner_id: int) -> int:
        self.suite_id = suite.pk
        return self.engage(runner_id)

    def submit_to(self, suite_id: int, count: int) -> list[TaskRef]:
        """As the API does it: the suite opens in the transaction of the tasks."""
        return submit_tasks(
            target=Target(self.group_id, suite_id),
            creator_id=self.creator_id,
            tasks=[_task() for _ in range(count)],
            prepare=lambda: accept_submits([suite_id]) and None,
        )

    def submit_to_all(self, suite_ids: Sequence[int]) -> list[Any]:
        """A batch: one task for each suite, all of them or none."""
        targets = [Target(self.group_id, suite_id) for suite_id in suite_ids]
        answers = submit_batch(
            creator_id=self.creator_id,
            items=[BatchItem(target, _task()) for target in targets],
            prepare=lambda: accept_submits(suite_ids) and None,
        )
        assert all(isinstance(answer, Taken) for answer in answers)
        return [answer.uuid for answer in answers if isinstance(answer, Taken)]

    def claim_with(self, assignment_id: int, runner_id: int, want: int) -> Claim:
        request = ClaimRequest(runner_id=runner_id, claim_id=uuid4(), want=want)
        params = {**store.claim_params([request]), "assignment_ids": array([assignment_id])}
        return claims_of(self.fetch(store.CLAIM_FOR_SUITE, params), 1)[0]

    def age(self, suite_ids: Sequence[int], seconds: float) -> None:
        """So much later: what the sweeps compare with the clock lies further back."""
        self.run(
            "UPDATE task_suites SET opened_at = opened_at - make_interval(secs => $2),"
            " last_task_submitted_at = last_task_submitted_at - make_interval(secs => $2)"
            " WHERE id = ANY ($1)",
            list(suite_ids),
            seconds,
        )

    def rows(self, suite_ids: Sequence[int]) -> list[list[Any]]:
        """Suites, active tasks, archived tasks."""
        [found] = self.run(ROWS, list(suite_ids))
        return [rows or [] for rows in found]

    def counts_of(self, suite_ids: Sequence[int]) -> dict[int, dict[str, int]]:
        names = ("total", "pending", "succeeded", "failed", "cancelled")
        rows = self.fetch(store.SUITE_COUNTS, {"suite_ids": array(suite_ids)})
        found = {row.suite_id: {name: getattr(row, name) for name in names} for row in rows}
        return {suite_id: found.get(suite_id, dict.fromkeys(names, 0)) for suite_id in suite_ids}

    def ids_of(self, uuids: Sequence[Any]) -> list[int]:
        rows = self.run("SELECT uuid, id FROM active_tasks WHERE uuid = ANY ($1)", list(uuids))
        return [dict(rows)[uuid] for uuid in uuids]


def _task() -> NewTask:
    return NewTask(spec=SPEC, timeout_s=60, retry=retry_policy(3))
