"""Uploads of a group with little room: announced, announced again, superseded, deleted, swept.

After each step the group is charged for exactly what is there. Objects are removed from a real
store; what was announced need not have been uploaded.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from accounts.models import Group
from core.errors import InvalidInput, NotFound, QuotaExceeded, StaleAttempt
from mitosis_protocol.enums import ArtifactContentType, ReportAnswer
from tasks.models import ActiveTask, ArchivedTask, Attachment
from tasks.rows import SettleOp
from tasks.services.artifacts import (
    delete_artifact,
    discard_superseded,
    issue_task_upload,
)
from tasks.services.attachments import delete_attachment, issue_attachment_upload
from tasks.services.attempt_uploads import issue_upload_sync
from tests.property.choices import EITHER, RECENT, Draw, pick
from tests.property.machine_lab import MachineLab
from tests.property.moves import MovesMachine
from tests.property.quota_model import QUOTA, Job, Ledger, OverQuota

KEYS = ("a", "b")
KINDS = tuple(ArtifactContentType)
SIZES = (0, 10, 30, 30, 60, 90, 120)
QUOTAS = (QUOTA, QUOTA, 50, 200, -1)
OLD = """
WITH a AS (UPDATE artifacts SET updated_at = updated_at - interval '2 hours' WHERE group_id = $1)
UPDATE attachments SET updated_at = updated_at - interval '2 hours' WHERE group_id = $1
"""
ROWS = """
SELECT g.storage_used, (
    SELECT coalesce(sum(size), 0) FROM artifacts WHERE group_id = $1
)::bigint, (
    SELECT coalesce(sum(size + reserved), 0) FROM attachments WHERE group_id = $1
)::bigint, (
    SELECT json_agg(json_build_array(task_id, attempt, content_type, size)
        ORDER BY task_id, attempt, content_type)
    FROM artifacts WHERE group_id = $1
)
FROM groups g WHERE g.id = $1
"""
# The sweep looks at all groups: what an earlier example left must not be found.
FRESH = (
    "DELETE FROM artifacts",
    "DELETE FROM attachments",
    "DELETE FROM active_tasks",
    "UPDATE groups SET storage_used = 0 WHERE storage_used > 0",
)


class QuotaMachine(MovesMachine):
    MOVES = (
        "attach attach attach detach submit claim claim upload upload upload upload upload_late"
        " user_upload delete delete give_back give_back commit grow_old grow_old sweep sweep"
        " change_the_quota"
    )
    lab: ClassVar[MachineLab]
    group: ClassVar[Group]

    def __init__(self) -> None:
        super().__init__()
        for sql in FRESH:
            self.lab.run(sql)
        self._set_quota(QUOTA)
        self.ledger = Ledger()
        self.attempts: list[tuple[int, Job]] = []
        for _ in range(2):
            self._submit()

    # --- files of the group ---

    def attach(self, draw: Draw) -> None:
        key, size = draw(KEYS), draw(SIZES)
        self._charged(
            lambda: self.ledger.attach(key, size),
            lambda: issue_attachment_upload(group=self.group, key=key, size=size).exists,
        )

    def detach(self, draw: Draw) -> None:
        key, young = draw(KEYS), draw(EITHER)
        row = Attachment.objects.filter(group_id=self.lab.group_id, key=key).first()
        if row is None:
            return
        expected = self.ledger.detach(key, young=young)
        is_gone = _succeeds(
            lambda: delete_attachment(group=self.group, attachment=row, young=young)
        )
        assert is_gone is expected

    # --- archives of tasks ---

    def upload(self, draw: Draw) -> None:
        """By the runner that has the newest attempt, or had it and lost it."""
        current = [job for job in self.ledger.jobs.values() if job.attempt_id and not job.is_ended]
        if not current:
            self.claim(draw)
            return
        job, kind = pick(current, draw(RECENT)), draw(KINDS)
        for _ in range(draw((1, 2))):
            self._upload(job, kind, draw(SIZES))

    def upload_late(self, draw: Draw) -> None:
        """An attempt that is over is not charged for any more, nor is anybody's else."""
        over = [attempt_id for attempt_id, job in self.attempts if job.attempt_id != attempt_id]
        if over:
            with _refused(StaleAttempt):
                self._issue(pick(over, draw(RECENT)), draw(KINDS), draw(SIZES))
        with _refused(NotFound):
            issue_upload_sync(
                attempt_id=0, runner_id=self.lab.runner_ids[0], content_type=draw(KINDS), size=1
            )

    def user_upload(self, draw: Draw) -> None:
        job, kind, size = self._job(draw), draw(KINDS), draw(SIZES)
        self._charged(
            lambda: self.ledger.upload(job, job.counting(kind.code), kind.code, size),
            lambda: issue_task_upload(task=self._task(job), content_type=kind, size=size).exists,
        )

    def delete(self, draw: Draw) -> None:
        job, kind, young = self._job(draw), draw(KINDS), draw(EITHER)
        expected = self.ledger.delete(job, kind.code, young=young)
        task = self._task(job)
        is_gone = _succeeds(lambda: delete_artifact(task=task, content_type=kind, young=young))
        assert is_gone is expected

    def sweep(self, _: Draw) -> None:
        assert discard_superseded() == self.ledger.sweep()

    # --- attempts ---

    def submit(self, _: Draw) -> None:
        if len(self.ledger.jobs) < 4:
            self._submit()

    def claim(self, _: Draw) -> None:
        claim = self.lab.claim(self.lab.runner_ids[0], claim_id=uuid.uuid4())
        for given in claim.tasks:
            job = self.ledger.jobs[given.task_id]
            job.attempt, job.attempt_id = given.attempt, given.attempt_id
            self.attempts.append((given.attempt_id, job))

    def give_back(self, draw: Draw) -> None:
        """Without a result; a runner that only lost it may still upload and report."""
        held = [job for job in self.ledger.jobs.values() if job.attempt_id and not job.is_ended]
        if held:
            job = pick(held, draw(RECENT))
            op = draw((SettleOp.ABORT, SettleOp.LOST))
            runner_id = self.lab.runner_ids[0]
            answer = self.lab.report(op, job.attempt_id or 0, runner_id, charge=False).answer
            if answer is ReportAnswer.OK and op is SettleOp.ABORT:
                job.attempt_id = None

    def commit(self, draw: Draw) -> None:
        held = [job for job in self.ledger.jobs.values() if job.attempt_id and not job.is_ended]
        if held:
            job = pick(held, draw(RECENT))
            self.lab.commit(job.attempt_id or 0, self.lab.runner_ids[0])
            job.is_ended, job.attempt_id = True, None

    # --- time and operators ---

    def grow_old(self, _: Draw) -> None:
        self.lab.run(OLD, self.lab.group_id)
        self.ledger.grow_old()

    def change_the_quota(self, draw: Draw) -> None:
        self.ledger.quota = draw(QUOTAS)
        self._set_quota(self.ledger.quota)

    # --- truth ---

    def compare(self) -> None:
        [(used, archives, files, rows)] = self.lab.run(ROWS, self.lab.group_id)
        assert used == archives + files == self.ledger.used >= 0
        assert (rows or []) == [
            [job.id, *place, one.size]
            for job in sorted(self.ledger.jobs.values(), key=lambda job: job.id)
            for place, one in sorted(job.archives.items())
        ]

    # --- parts ---

    def _submit(self) -> None:
        task_id = self.lab.submit_one()
        self.ledger.jobs[task_id] = Job(task_id)

    def _job(self, draw: Draw) -> Job:
        return pick(list(self.ledger.jobs.values()), draw(RECENT))

    def _task(self, job: Job) -> ActiveTask | ArchivedTask:
        if job.is_ended:
            return ArchivedTask.objects.get(pk=job.id)
        return ActiveTask.objects.get(pk=job.id)

    def _upload(self, job: Job, kind: ArtifactContentType, size: int) -> None:
        self._charged(
            lambda: self.ledger.upload(job, job.attempt, kind.code, size),
            lambda: self._issue(job.attempt_id or 0, kind, size),
        )

    def _issue(self, attempt_id: int, kind: ArtifactContentType, size: int) -> bool:
        return issue_upload_sync(
            attempt_id=attempt_id,
            runner_id=self.lab.runner_ids[0],
            content_type=kind,
            size=size,
        ).exists

    def _set_quota(self, quota: int) -> None:
        self.lab.run("UPDATE groups SET storage_quota = $2 WHERE id = $1", self.lab.group_id, quota)

    def _charged(self, expect: Callable[[], bool], ask: Callable[[], bool]) -> None:
        """Refused exactly when the model says that it would be too much."""
        try:
            expected = expect()
        except OverQuota:
            with _refused(QuotaExceeded):
                ask()
        else:
            assert ask() is expected


@contextmanager
def _refused(error: type[Exception]) -> Iterator[None]:
    try:
        yield
    except error:
        return
    raise AssertionError(f"{error.__name__} was to be raised")


def _succeeds(ask: Callable[[], Any]) -> bool:
    try:
        ask()
    except (InvalidInput, NotFound):
        return False
    return True


@contextmanager
def storehouse() -> Iterator[None]:
    """The world in which the machine runs."""
    QuotaMachine.lab = MachineLab()
    QuotaMachine.group = Group.objects.get(pk=QuotaMachine.lab.group_id)
    try:
        yield
    finally:
        QuotaMachine.lab.close()
        del QuotaMachine.lab, QuotaMachine.group
