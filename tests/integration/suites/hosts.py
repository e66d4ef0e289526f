"""Managers that work for suites, driven by hand through the services."""

from uuid import UUID, uuid4

from django.conf import settings

from accounts.actors import SYSTEM
from accounts.models import User
from managers.models import NodeManager, SuiteAssignment
from managers.services.engagement import begin_preparation, finish_preparation
from managers.services.registration import NewManager, register_manager
from managers.services.scheduler import run_pass
from mitosis_protocol.enums import ConnState, ManagerState
from runners.models import Runner
from suites.models import TaskSuite
from tasks.rows import ClaimedTask
from tasks.services.report import commit_report, settle_sync
from tasks.services.suite_claim import SuiteClaim, claim_for_manager_sync

LEASE_S = 3600.0  # nobody beats here, and a long storm outlasts the policy's lease


class Host:
    """A connected manager of `owner`'s own group, or of `groups`."""

    def __init__(self, owner: User, *tags: str, groups: list[str] | None = None) -> None:
        policy = settings.MITOSIS
        new = NewManager(
            tags=tags,
            labels=[],
            groups=groups or [],
            lease_ttl_s=LEASE_S,
            access_s=policy.manager_access_s,
            lifetime_s=policy.token_lifetime_max_s,
        )
        self.runner = register_manager(actor=SYSTEM, owner=owner, new=new).runner
        self.set(conn_state=ConnState.CONNECTED)

    @property
    def id(self) -> int:
        return self.runner.pk

    @property
    def uuid(self) -> UUID:
        return self.runner.uuid

    def set(self, **columns: object) -> None:
        Runner.objects.filter(pk=self.runner.pk).update(**columns)

    @property
    def engagement(self) -> SuiteAssignment | None:
        rows = SuiteAssignment.objects.filter(manager_id=self.id, released_at__isnull=True)
        return rows.first()

    def engage(self, suite: TaskSuite) -> SuiteAssignment:
        """The scheduler gives it the suite, and it prepares without trouble."""
        run_pass()
        row = self.engagement
        assert row is not None
        assert row.suite_id == suite.pk
        begin_preparation(manager_id=self.id, assignment_id=row.pk)
        finish_preparation(manager_id=self.id, assignment_id=row.pk)
        NodeManager.objects.filter(pk=self.id).update(state=ManagerState.EXECUTING)
        row.refresh_from_db()
        return row

    def claim(self, want: int = 1, *, claim_id: UUID | None = None) -> tuple[ClaimedTask, ...]:
        row = SuiteAssignment.objects.filter(manager_id=self.id).order_by("-pk").first()
        assert row is not None
        return claim_for_manager_sync(
            SuiteClaim(
                runner_id=self.id,
                assignment_id=row.pk,
                claim_id=claim_id or uuid4(),
                want=want,
            )
        )

    def commit(self, claimed: ClaimedTask, exit_status: int = 0) -> None:
        report = commit_report(
            attempt_id=claimed.attempt_id, runner_id=self.id, exit_status=exit_status, msg=None
        )
        settle_sync([report])

    def run(self, count: int = 1, exit_status: int = 0) -> list[UUID]:
        claimed = self.claim(count)
        for one in claimed:
            self.commit(one, exit_status)
        return [one.uuid for one in claimed]
