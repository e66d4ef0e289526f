"""Which managers may be given a suite, over HTTP: matching, choosing, taking off."""

from uuid import uuid4

import pytest

from accounts.models import Group
from mitosis_protocol.enums import Role
from runners.models import GroupRunner
from tests.integration.suites.hosts import Host
from tests.integration.suites.suite_world import act, make, ok, refused
from tests.integration.workers.people import Caller

pytestmark = pytest.mark.django_db


@pytest.fixture
def host(ada: Caller) -> Host:
    assert ada.user is not None
    return Host(ada.user, "gpu", "linux")


def assigned(caller: Caller, suite_uuid: object) -> list[str]:
    found: list[str] = ok(caller.call("GET", f"/suites/{suite_uuid}"))["assigned_managers"]
    return found


@pytest.mark.parametrize(
    ("tags", "matches"),
    [([], True), (["gpu"], True), (["gpu", "linux"], True), (["gpu", "arm"], False)],
)
def test_phase_2_tag_matching_algorithm(
    ada: Caller, host: Host, tags: list[str], matches: bool
) -> None:
    """Suite tags within manager tags, at once when the suite is made."""
    suite = make(ada, tags=tags)
    assert assigned(ada, suite.uuid) == ([str(host.uuid)] if matches else [])


def test_phase_2_refresh_tag_matched_managers_answers_as_the_rfc_shows(
    ada: Caller, host: Host
) -> None:
    suite = make(ada, tags=["gpu"], auto_match=False)
    assert assigned(ada, suite.uuid) == []
    answer = ok(act(ada, suite, "managers/refresh"))
    assert answer == {
        "added_managers": [
            {
                "manager_uuid": str(host.uuid),
                "matched_tags": ["gpu"],
                "selection_type": "TagMatched",
            }
        ],
        "removed_managers": [],
        "total_assigned": 1,
    }
    host.set(tags=["linux"])
    answer = ok(act(ada, suite, "managers/refresh"))
    assert answer == {
        "added_managers": [],
        "removed_managers": [str(host.uuid)],
        "total_assigned": 0,
    }


def test_phase_2_add_managers_whatever_their_tags(ada: Caller, host: Host) -> None:
    suite = make(ada, tags=["arm"])
    answer = ok(act(ada, suite, "managers", {"manager_uuids": [str(host.uuid)]}))
    assert answer == {
        "added_managers": [str(host.uuid)],
        "rejected_managers": [],
        "reason": None,
    }
    assert assigned(ada, suite.uuid) == [str(host.uuid)]


def test_phase_2_add_managers_without_permission_is_403_with_the_rfc_body(
    ada: Caller, eve: Caller, host: Host
) -> None:
    suite = make(eve, "eve")
    answer = act(eve, suite, "managers", {"manager_uuids": [str(host.uuid)]})
    body = refused(answer, 403, "Write role", str(host.uuid))
    assert body["added_managers"] == []
    assert body["rejected_managers"] == [str(host.uuid)]
    expected = f"Group 'eve' does not have Write role on manager '{host.uuid}'"
    assert body["reason"] == expected
    nobody = uuid4()
    absent = refused(act(eve, suite, "managers", {"manager_uuids": [str(nobody)]}), 403)
    assert absent["reason"] == expected.replace(str(host.uuid), str(nobody))


def test_one_rejected_manager_keeps_the_others_out(ada: Caller, host: Host) -> None:
    suite = make(ada, tags=["arm"])
    body = {"manager_uuids": [str(host.uuid), str(uuid4())]}
    assert act(ada, suite, "managers", body).status_code == 403
    assert assigned(ada, suite.uuid) == []


@pytest.mark.parametrize("by_query", [False, True])
def test_phase_2_remove_managers_by_body_and_by_query(
    ada: Caller, host: Host, by_query: bool
) -> None:
    suite = make(ada)
    path, body = f"/suites/{suite.uuid}/managers", {"manager_uuids": [str(host.uuid)]}
    if by_query:
        answer = ada.call("DELETE", f"{path}?manager_uuids={host.uuid},{uuid4()}")
    else:
        answer = ada.call("DELETE", path, body)
    assert ok(answer) == {"removed_count": 1}
    assert assigned(ada, suite.uuid) == []
    assert ok(act(ada, suite, "managers/refresh"))["total_assigned"] == 1


def test_a_role_that_is_only_read_or_not_accepted_does_not_match(
    ada: Caller, lab: Group, host: Host
) -> None:
    GroupRunner.objects.create(group=lab, runner=host.runner, role=Role.WRITE)
    suite = make(ada, "lab", tags=["gpu"])
    assert assigned(ada, suite.uuid) == [], "consent is pending"


@pytest.mark.parametrize(
    ("body", "status"),
    [({}, 422), ({"manager_uuids": []}, 422), ({"manager_uuids": ["x"]}, 422), ([], 422)],
)
def test_a_wrong_list_is_named(ada: Caller, body: object, status: int) -> None:
    suite = make(ada)
    refused(act(ada, suite, "managers", body), status)
    refused(ada.call("DELETE", f"/suites/{suite.uuid}/managers", body), status)
    refused(
        ada.call("DELETE", f"/suites/{suite.uuid}/managers?manager_uuids=x"), 400, "manager_uuids"
    )
