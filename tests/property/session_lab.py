"""The lab of the session machine: two managers at work for one suite, and time that is moved."""

import uuid
from collections.abc import Sequence
from typing import Any

from django.db import connection

from core.pg import load_sql
from managers.models import NodeManager, SuiteAssignment
from runners.services.presence import gap_s
from suites.models import TaskSuite
from tasks.dispatcher import Claim, claims_of
from tasks.rows import ClaimRequest
from tasks.statements import array
from tasks.store import CLAIM_FOR_SUITE, claim_params
from tests.property.machine_lab import MachineLab
from tests.property.session_model import TTL_S, Manager, Session

RESET = """
UPDATE runners SET revoked_at = NULL, desired_state = 0, conn_state = 0 WHERE id = ANY ($1)
RETURNING id, session_epoch, token_generation
"""
RESET_LEASES = """
UPDATE runner_leases l SET session_epoch = r.session_epoch,
    expires_at = clock_timestamp() + make_interval(secs => $2)
FROM runners r WHERE r.id = l.runner_id AND r.id = ANY ($1)
"""
RESET_STATES = "UPDATE node_managers SET state = 0, is_forced = false WHERE runner_id = ANY ($1)"
MANAGERS = """
SELECT json_agg(json_build_array(r.id, r.token_generation, r.conn_state, r.desired_state,
    r.revoked_at IS NOT NULL, l.session_epoch, l.expires_at > clock_timestamp(), m.state, a.id)
    ORDER BY r.id)
FROM runners r
JOIN runner_leases l ON l.runner_id = r.id
JOIN node_managers m ON m.runner_id = r.id
LEFT JOIN suite_assignments a ON a.manager_id = r.id AND a.released_at IS NULL
WHERE r.id = ANY ($1)
"""
LATER = """
UPDATE runner_leases SET expires_at = expires_at - make_interval(secs => $1)
WHERE runner_id = ANY ($2)
"""
AWAY = "UPDATE ingest_presence SET seen_at = clock_timestamp() - make_interval(secs => $1)"


class SessionLab(MachineLab):
    """Both runners are managers, engaged with the suite and prepared for it."""

    def __init__(self) -> None:
        # Sweeps look at the whole fleet: what an earlier lab left must not be found.
        self.run("UPDATE runner_leases SET expires_at = '-infinity'")
        self.run("UPDATE node_managers SET state = 4")
        super().__init__()
        for runner_id in self.runner_ids:
            NodeManager.objects.get_or_create(runner_id=runner_id)
        self.mark_served()

    def begin(self) -> None:
        super().begin()
        self.engage(self.runner_ids[1])
        self.suite_uuid = TaskSuite.objects.values_list("uuid", flat=True).get(pk=self.suite_id)
        self.run(
            "UPDATE suite_assignments SET prepared_at = clock_timestamp() WHERE suite_id = $1",
            self.suite_id,
        )
        self.reset = self.run(RESET, self.runner_ids)
        self.run(RESET_LEASES, self.runner_ids, TTL_S)
        self.run(RESET_STATES, self.runner_ids)

    def managers(self) -> dict[int, Manager]:
        engaged = dict(
            SuiteAssignment.objects.filter(suite_id=self.suite_id).values_list("manager_id", "pk")
        )
        return {
            runner: Manager(epoch, generation, engaged[runner], lease_epoch=epoch)
            for runner, epoch, generation in sorted(self.reset)
        }

    def call(self, package: str, name: str, parameters: dict[str, Any]) -> list[tuple[Any, ...]]:
        """One of the statements that serving processes send through their pool."""
        with connection.cursor() as cursor:
            cursor.execute(load_sql(package, name), parameters)
            return cursor.fetchall() if cursor.description else [(cursor.rowcount,)]

    def claim_as(self, session: Session, assignment_id: int, want: int) -> tuple[Claim, uuid.UUID]:
        claim_id = uuid.uuid4()
        request = ClaimRequest(
            runner_id=session.runner, claim_id=claim_id, want=want, session_epoch=session.epoch
        )
        params = {**claim_params([request]), "assignment_ids": array([assignment_id])}
        return claims_of(self.fetch(CLAIM_FOR_SUITE, params), 1)[0], claim_id

    def later(self, seconds: float, runner_ids: Sequence[int] | None = None) -> None:
        self.run(LATER, seconds, self.runner_ids if runner_ids is None else list(runner_ids))

    def be_away(self, seconds: float) -> None:
        """So long ago somebody served for the last time."""
        self.later(seconds)
        self.run(AWAY, seconds)

    def mark_served(self) -> list[tuple[Any, ...]]:
        parameters = {"gap_s": gap_s(TTL_S), "lease_ttl_s": TTL_S}
        return self.call("runners", "mark_served", parameters)

    def rows(self) -> list[list[Any]]:
        """As Manager.row gives them."""
        [(rows,)] = self.run(MANAGERS, self.runner_ids)
        return rows
