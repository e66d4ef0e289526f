"""Tags, labels and groups of a worker, and who may change them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from accounts.actors import SYSTEM
from accounts.models import AuditEntry
from mitosis_protocol.enums import ConsentState, Role
from runners.models import GroupRunner, Runner
from runners.services.groups import put_group_roles
from tests.integration.workers.people import Caller, new_group

pytestmark = pytest.mark.django_db


class Change(NamedTuple):
    method: str
    path: str
    body: Any
    needed: Role


CHANGES = [
    Change("PUT", "tags", {"tags": ["cpu"]}, Role.WRITE),
    Change("PUT", "labels", {"labels": ["rack-9"]}, Role.WRITE),
    Change("PUT", "groups", {"relations": {"ada": "Admin"}}, Role.ADMIN),
    Change("DELETE", "groups?groups=lab", None, Role.ADMIN),
    Change("DELETE", "groups/remove", {"groups": ["lab"]}, Role.ADMIN),
]


@pytest.fixture
def worker(ada: Caller, bob: Caller) -> Runner:
    """ada's worker; the group lab, where bob has some role, is Admin of it."""
    new_group("lab", ada.user)
    worker_id = ada.register(tags=["gpu"], groups=["lab:admin"])["worker_id"]
    return Runner.objects.get(uuid=worker_id)


def roles(worker: Runner) -> Iterator[tuple[str, Role, ConsentState]]:
    for row in GroupRunner.objects.filter(runner=worker).order_by("group__name"):
        yield row.group.name, row.role, row.consent


def test_tags_and_labels_are_replaced(ada: Caller, worker: Runner):
    assert ada.call("PUT", f"/workers/{worker.uuid}/tags", {"tags": ["b", "a", "b"]}).content == b""
    assert ada.call("PUT", f"/workers/{worker.uuid}/labels", {"labels": ["x"]}).status_code == 200
    worker.refresh_from_db()
    assert (worker.tags, worker.labels) == (["a", "b"], ["x"])
    actions = AuditEntry.objects.filter(object=str(worker.uuid)).values_list("action", flat=True)
    assert {"worker.tags", "worker.labels"} <= set(actions)


@pytest.mark.parametrize(
    ("path", "body"),
    [("tags", {"tags": []}), ("labels", {"labels": []}), ("groups", {"relations": {}})],
)
def test_nothing_at_all_is_refused(ada: Caller, worker: Runner, path: str, body: Any):
    assert ada.call("PUT", f"/workers/{worker.uuid}/{path}", body).status_code == 400


def test_removing_no_group_is_refused(ada: Caller, worker: Runner):
    assert ada.call("DELETE", f"/workers/{worker.uuid}/groups").status_code == 400
    body = {"groups": []}
    assert ada.call("DELETE", f"/workers/{worker.uuid}/groups/remove", body).status_code == 400


def test_groups_are_added_and_change_their_role(ada: Caller, bob: Caller, worker: Runner):
    new_group("den", bob.user)
    relations = {"lab": "Read", "den": "write"}
    path = f"/workers/{worker.uuid}/groups"
    assert ada.call("PUT", path, {"relations": relations}).status_code == 200
    assert list(roles(worker)) == [
        ("ada", Role.ADMIN, ConsentState.ACCEPTED),
        ("den", Role.WRITE, ConsentState.PENDING),
        ("lab", Role.READ, ConsentState.ACCEPTED),
    ]


@pytest.mark.parametrize("form", ["query", "body"])
def test_groups_are_removed_by_query_and_by_body(ada: Caller, worker: Runner, form: str):
    new_group("den", ada.user)
    put_group_roles(actor=SYSTEM, asked_by=ada.user, runner=worker, roles={"den": Role.READ})
    path = f"/workers/{worker.uuid}/groups"
    if form == "query":
        answer = ada.call("DELETE", f"{path}?groups=lab&groups=den")
    else:
        answer = ada.call("DELETE", f"{path}/remove", {"groups": ["lab", "den"]})
    assert answer.status_code == 200
    assert [name for name, _, _ in roles(worker)] == ["ada"]


def test_unknown_groups_are_bad_requests_here(ada: Caller, worker: Runner):
    path = f"/workers/{worker.uuid}/groups"
    body = {"relations": {"lab": "Read", "nowhere": "Read"}}
    assert ada.call("PUT", path, body).status_code == 400
    assert ada.call("DELETE", f"{path}?groups=nowhere").status_code == 400
    assert {name: role for name, role, _ in roles(worker)}["lab"] is Role.ADMIN


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("role", [None, Role.READ, Role.WRITE, Role.ADMIN])
def test_the_members_role_decides(
    ada: Caller,
    bob: Caller,
    worker: Runner,
    change: Change,
    role: Role | None,
):
    if role is not None:
        ada.call("PUT", "/groups/lab/users", {"relations": {"bob": role.value}})
    answer = bob.call(change.method, f"/workers/{worker.uuid}/{change.path}", change.body)
    if role is None:
        assert answer.status_code == 404
    else:
        assert answer.status_code == (200 if role.allows(change.needed) else 403)


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("granted", [Role.READ, Role.WRITE, Role.ADMIN])
def test_the_groups_role_on_the_worker_limits_its_admins(
    ada: Caller,
    bob: Caller,
    worker: Runner,
    change: Change,
    granted: Role,
):
    ada.call("PUT", "/groups/lab/users", {"relations": {"bob": "Admin"}})
    put_group_roles(actor=SYSTEM, asked_by=ada.user, runner=worker, roles={"lab": granted})
    answer = bob.call(change.method, f"/workers/{worker.uuid}/{change.path}", change.body)
    assert answer.status_code == (200 if granted.allows(change.needed) else 403)


@pytest.mark.parametrize("change", CHANGES)
def test_a_pending_group_gives_no_rights(ada: Caller, bob: Caller, change: Change):
    new_group("lab", bob.user)
    worker_id = ada.register(groups=["lab:admin"])["worker_id"]
    assert (
        bob.call(change.method, f"/workers/{worker_id}/{change.path}", change.body).status_code
        == 404
    )
