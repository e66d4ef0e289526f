"""Statements about a suite with 30,000 waiting tasks find what they want by index."""

import json
from typing import Any
from uuid import uuid4

import pytest
from django.db import connection, transaction

from mitosis_protocol.specs import TaskSpec
from suites.services.lifecycle import accept_submits
from tasks import store
from tasks.new_task import NewTask
from tasks.services.array import ArrayRow, submit_array
from tasks.services.submit import Target
from tasks.statements import Params, Statement, array, compose
from tests.integration.suites.campaign import make_suite, make_user
from tests.integration.suites.hosts import Host

pytestmark = pytest.mark.django_db(transaction=True)

TASKS = 30_000


def scans(statement: Statement[Any], params: Params) -> set[str]:
    """Tables that the plan reads as a whole."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (FORMAT JSON) {compose(statement.parts)}", params)
        answer = cursor.fetchone()[0]
    plan = json.loads(answer) if isinstance(answer, str) else answer
    found: set[str] = set()

    def walk(node: dict[str, Any]) -> None:
        if node["Node Type"] == "Seq Scan":
            found.add(node["Relation Name"])
        for inner in node.get("Plans", []):
            walk(inner)

    walk(plan[0]["Plan"])
    return found


def test_claims_leftovers_and_reruns_do_not_read_the_queue() -> None:
    user = make_user()
    suite = make_suite(user)
    with transaction.atomic():
        accept_submits([suite.pk])
        submit_array(
            target=Target(suite.group_id, suite.pk),
            creator_id=user.pk,
            template=NewTask(spec=TaskSpec(args=["true"]), timeout_s=60),
            rows=[ArrayRow()] * TASKS,
        )
    host = Host(user)
    assignment_id = host.engage(suite).pk
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE active_tasks, archived_tasks, task_attempts, task_suites")
    claim: Params = {
        "runner_ids": array([host.id]),
        "session_epochs": array([None]),
        "claim_ids": array([uuid4()]),
        "wants": array([64]),
        "assignment_ids": array([assignment_id]),
    }
    assert "active_tasks" not in scans(store.CLAIM_FOR_SUITE, claim)
    leftovers: Params = {"age_s": "30", "batch": "1000"}
    assert "active_tasks" not in scans(store.SUITE_LEFTOVERS, leftovers)
    assert len(host.claim(64)) == 64
