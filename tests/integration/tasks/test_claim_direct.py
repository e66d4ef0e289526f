"""What only the control plane asks of a claim: tenants, node types, affinity."""

import uuid
from collections.abc import Sequence

import pytest
from django.db import connection

from core.errors import InvalidInput
from mitosis_protocol.enums import Outcome
from mitosis_protocol.node_calls import NodeCall, node_tag
from mitosis_protocol.specs import TaskSpec
from tasks.models import ActiveTask, ArchivedTask
from tasks.new_task import NewTask, refuse_node_call, row_of
from tasks.rows import ClaimRequest
from tasks.services.unreachable import end_unreachable
from tests.property.lab import Lab, lab_fixture
from workers.models import AffinityOwner, Worker

lab = pytest.fixture(name="lab")(lab_fixture)


def direct(lab: Lab, *node_types: str) -> int:
    runner = lab.add_runner()
    tags = [node_tag(name) for name in node_types]
    Worker.objects.create(runner_id=runner, lease_ttl_s=60, tenant_id=lab.group_id, node_tags=tags)
    return runner


def claimed(lab: Lab, runner: int, want: int = 9) -> list[int]:
    return [task.task_id for task in lab.claim(runner, want=want).tasks]


def near(key: str, **more: object) -> dict[str, object]:
    return {"key": key, **more}


def test_node_calls_go_to_workers_with_the_handler_and_commands_to_those_that_take_them(lab: Lab):
    command = lab.submit_one()
    model = lab.submit_one(tags=[node_tag("model")])
    other = lab.submit_one(tags=[node_tag("other")])
    assert claimed(lab, direct(lab, "model")) == [model]
    assert claimed(lab, direct(lab, "command")) == [command]
    assert claimed(lab, lab.runner_ids[0]) == []
    assert claimed(lab, direct(lab, "command", "other")) == [other]


def test_a_direct_worker_serves_its_tenant_alone(lab: Lab):
    runner, elsewhere = direct(lab, "command"), Lab(runners=0)
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO group_runners (group_id, runner_id, role, consent) VALUES (%s, %s, 2, 1)",
            [elsewhere.group_id, runner],
        )
    elsewhere.submit_one()
    own = lab.submit_one()
    assert claimed(lab, runner) == [own]


def test_a_sticky_key_stays_with_its_owner_as_long_as_it_lives(lab: Lab):
    owner, other = direct(lab, "command"), direct(lab, "command")
    first = lab.submit_one(affinity=near("k"))
    assert claimed(lab, owner) == [first]
    assert AffinityOwner.objects.get(group_id=lab.group_id, key="k").runner_id == owner
    # However short its patience: that is for preferred ones.
    more = [lab.submit_one(affinity=near("k", wait_s=0)) for _ in range(2)]
    free = lab.submit_one()
    assert claimed(lab, other) == [free]
    assert claimed(lab, owner) == more
    last = lab.submit_one(affinity=near("k"))
    lab.expire_lease(owner)
    assert claimed(lab, other) == [last]
    lab.renew_lease(owner)
    lab.submit_one(affinity=near("k"))
    assert claimed(lab, owner) == []  # it moved


def test_a_preferred_key_waits_so_long_and_no_longer(lab: Lab):
    owner, other = direct(lab, "command"), direct(lab, "command")
    first = lab.submit_one(affinity=near("k"))
    assert claimed(lab, owner) == [first]
    patient = lab.submit_one(affinity=near("k", mode="preferred", wait_s=3600))
    hasty = lab.submit_one(affinity=near("k", mode="preferred", wait_s=0))
    assert claimed(lab, other) == [hasty]
    assert patient not in claimed(lab, lab.runner_ids[0])


@pytest.mark.parametrize("wants", [(4, 4), (1, 1)])
def test_a_new_key_goes_to_one_worker_even_when_many_ask_at_once(lab: Lab, wants: Sequence[int]):
    workers = [direct(lab, "command") for _ in wants]
    tasks = [lab.submit_one(affinity=near("k")) for _ in range(4)]
    done: list[tuple[int, int]] = []
    for _ in range(8):
        requests = [
            ClaimRequest(runner_id=runner, claim_id=uuid.uuid4(), want=want)
            for runner, want in zip(workers, wants, strict=True)
        ]
        for runner, claim in zip(workers, lab.claim_all(requests), strict=True):
            done += [(runner, task.task_id) for task in claim.tasks]
    assert sorted(task for _, task in done) == sorted(tasks)
    assert len({runner for runner, _ in done}) == 1


def test_a_node_call_gets_its_tag_however_it_is_submitted(lab: Lab):
    spec = TaskSpec(args=[], node=NodeCall(type="model"))
    task = NewTask(spec=spec, timeout_s=60, tags=["gpu"])
    assert row_of(task, uuid.uuid4())["tags"] == ["gpu", "node:model"]
    with pytest.raises(InvalidInput, match="suites"):
        refuse_node_call(spec)


def test_a_pinned_task_ends_when_its_runner_refused_it_or_left(lab: Lab):
    """Any other task goes on waiting, and so does one whose runner may come back."""
    here, gone, silent = (direct(lab, "command") for _ in range(3))
    refused, orphan, waiting = (
        lab.submit_one(pinned_runner_id=runner) for runner in (here, gone, silent)
    )
    free = lab.submit_one()
    with connection.cursor() as cursor:
        cursor.execute("UPDATE runners SET revoked_at = now() WHERE id = %s", [gone])
        cursor.execute(
            "UPDATE active_tasks SET excluded_runner_ids = ARRAY[%s]::bigint[] WHERE id = ANY (%s)",
            [here, [refused, free]],
        )
        cursor.execute("UPDATE runner_leases SET expires_at = now() WHERE runner_id = %s", [silent])
    assert end_unreachable(max_tasks=10) == 2
    assert end_unreachable(max_tasks=10) == 0
    ended = ArchivedTask.objects.filter(id__in=[refused, orphan])
    assert {row.outcome for row in ended} == {Outcome.FAILED}
    assert set(ActiveTask.objects.values_list("id", flat=True)) >= {waiting, free}
