"""What each page shows to whom, that names stay text, and that actions go through the services."""

import re

from django.test import Client

from accounts.models import AuditEntry
from managers.models import SuiteAssignment
from mitosis_protocol.enums import ConsentState, DesiredState, SuiteState
from runners.models import GroupRunner
from tasks.models import ActiveTask
from tests.integration.console.world import MARKUP, Things, World
from tests.integration.managers.fleet import connect

LISTS = ("", "suites", "tasks", "failures", "managers", "access")


def shown(client: Client, path: str) -> str:
    answer = client.get(f"/console/{path}")
    assert answer.status_code == 200, (path, answer.status_code)
    return answer.content.decode()


def traces(things: Things) -> list[str]:
    """What of a tenant a page could give away."""
    uuids = (things.suite.uuid, things.waiting, things.failed, things.manager.uuid)
    return [*map(str, uuids), f"{things.group.name} &lt;script", f">{things.group.name}<"]


def test_a_member_sees_the_own_group_and_nothing_of_the_other(world: World) -> None:
    client = world.client("reader")
    every = "".join(shown(client, path) for path in LISTS)
    assert [trace for trace in traces(world.lux) if trace in every] == []
    for own in (world.lab.suite.uuid, world.lab.waiting, world.lab.failed, world.lab.manager.uuid):
        assert str(own) in every


def test_filters_that_name_foreign_things_find_nothing(world: World) -> None:
    client = world.client("reader")
    lux = world.lux
    for path in (
        f"tasks?suite={lux.suite.uuid}",
        f"tasks?suite={lux.suite.uuid}&state=waiting",
        "tasks?group=lux",
        "tasks?group=lux&state=running",
        f"tasks?suite={lux.suite.uuid}&group=lab",
        f"failures?suite={lux.suite.uuid}",
        "failures?group=lux",
        "suites?group=lux",
        "managers?group=lux",
    ):
        page = shown(client, path)
        rows = page.partition('data-region="rows"')[2]
        assert [trace for trace in traces(lux) if trace in rows] == [], path


def test_an_operator_sees_all_but_no_output(world: World) -> None:
    client = world.client("staff")
    every = "".join(shown(client, path) for path in LISTS)
    for things in (world.lab, world.lux):
        assert str(things.suite.uuid) in every
    task = shown(client, f"tasks/{world.lab.waiting}")
    assert "Output is for members of the group" in task
    assert "data-output" not in task


def test_a_manager_does_not_name_suites_of_other_groups(world: World) -> None:
    """The applicant serves both groups; each member hears of the own one's suite only."""

    runner = world.lab.applicant
    GroupRunner.objects.filter(runner=runner).update(consent=ConsentState.ACCEPTED)
    GroupRunner.objects.create(
        runner=runner, group=world.lux.group, role=GroupRunner.objects.first().role,
        consent=ConsentState.ACCEPTED,
    )  # fmt: skip
    connect(runner)
    SuiteAssignment.objects.create(
        suite=world.lux.suite, manager_id=runner.pk, lease_expires_at=runner.created_at
    )
    page = shown(world.client("reader"), f"managers/{runner.uuid}")
    assert str(world.lux.suite.uuid) not in page
    assert "a suite of another group" in page
    assert str(world.lux.suite.uuid) in shown(world.client("staff"), f"managers/{runner.uuid}")


def test_names_full_of_markup_stay_text(world: World) -> None:
    client = world.client("staff")
    lab = world.lab
    pages = [
        *LISTS,
        f"suites/{lab.suite.uuid}",
        f"suites/{lab.suite.uuid}/explain",
        f"tasks/{lab.waiting}",
        f"tasks/{lab.failed}",
        f"managers/{lab.manager.uuid}",
    ]
    for path in pages:
        page = shown(client, path)
        assert "<script>window" not in page, path
        assert "onerror=window.hit=1>" not in page, path
        assert not re.search(r"\sstyle=|<style|<script(?! (type=\"module\" )?src=)", page), path
    assert "&lt;script&gt;window.hit=1" in shown(client, "suites")
    assert MARKUP in lab.suite.name


WRONG = {
    "tasks?state=nonsense": "state",
    "tasks?suite=12": "suite",
    "tasks?before=x": "before",
    "failures?window=1y": "window",
    "failures?before=1": "before",
    "suites?halt=maybe": "halt",
    "managers?wish=none": "wish",
    "tasks?label=%00": "label",
}


def test_a_wrong_filter_is_named(world: World) -> None:
    client = world.client("reader")
    for path, field in WRONG.items():
        answer = client.get(f"/console/{path}")
        assert answer.status_code == 400, path
        assert f"{field}:" in answer.content.decode(), path


def test_suites_are_acted_upon_only_after_a_confirmation(world: World) -> None:
    client, suite = world.client("writer"), world.lab.suite
    asked = client.post(f"/console/suites/{suite.uuid}/do/pause")
    assert asked.status_code == 200
    suite.refresh_from_db()
    assert suite.paused_at is None
    for verb, check in (
        ("pause", lambda: suite.paused_at is not None),
        ("resume", lambda: suite.paused_at is None),
        ("close", lambda: suite.state is SuiteState.CLOSED),
        ("reopen", lambda: suite.state is SuiteState.OPEN),
        ("cancel", lambda: suite.state is SuiteState.CANCELLED),
    ):
        done = client.post(f"/console/suites/{suite.uuid}/do/{verb}", {"confirmed": "yes"})
        assert done.status_code == 302, (verb, done.content)
        suite.refresh_from_db()
        assert check(), verb
        entry = AuditEntry.objects.filter(action=f"suite.{verb}", object=str(suite.uuid)).get()
        assert (entry.actor_kind, entry.actor_id) == ("user", "bob")
    again = client.post(f"/console/suites/{suite.uuid}/do/cancel", {"confirmed": "yes"})
    assert again.status_code == 409
    assert not ActiveTask.objects.filter(suite_id=suite.pk).exists()


def test_a_task_is_cancelled_and_a_manager_drained_and_released(world: World) -> None:
    lab, yes = world.lab, {"confirmed": "yes"}
    client = world.client("admin")
    assert client.post(f"/console/tasks/{lab.waiting}/cancel", yes).status_code == 302
    assert "cancelled" in shown(client, f"tasks/{lab.waiting}")
    assert client.post(f"/console/tasks/{lab.waiting}/rerun", yes).status_code == 302
    for verb, wanted in (
        ("drain", DesiredState.DRAINING),
        ("undrain", DesiredState.ACTIVE),
        ("quarantine", DesiredState.QUARANTINED),
        ("release", DesiredState.ACTIVE),
        ("shutdown", DesiredState.SHUTDOWN),
    ):
        done = client.post(f"/console/managers/{lab.manager.uuid}/do/{verb}", yes)
        assert done.status_code == 302, (verb, done.content)
        lab.manager.refresh_from_db()
        assert lab.manager.desired_state is wanted, verb
    nonsense = client.post(f"/console/managers/{lab.manager.uuid}/do/explode", yes)
    assert nonsense.status_code == 404


def test_an_admin_of_the_group_answers_and_grants(world: World) -> None:
    lab, client = world.lab, world.client("admin")
    assert str(lab.applicant.uuid)[:8] in shown(client, "access")
    target = f"/console/access/lab/{lab.applicant.uuid}"
    assert client.post(target, {"answer": "accept", "confirmed": "yes"}).status_code == 302
    row = GroupRunner.objects.get(runner=lab.applicant, group=lab.group)
    assert row.consent is ConsentState.ACCEPTED
    assert client.post(target, {"answer": "perhaps", "confirmed": "yes"}).status_code == 400
    grant = f"/console/managers/{lab.manager.uuid}/grant"
    offered = {"group": "ann", "role": "Read", "confirmed": "yes"}
    assert client.post(grant, offered).status_code == 302
    assert client.post(grant, {**offered, "group": "lux"}).status_code == 400  # no member there
    assert client.post(grant, {**offered, "role": "King"}).status_code == 400
    taken = {"group": "ann", "confirmed": "yes"}
    assert client.post(f"/console/managers/{lab.manager.uuid}/ungrant", taken).status_code == 302
    assert not GroupRunner.objects.filter(runner=lab.manager, group__name="ann").exists()


def test_the_find_box_leads_to_the_page_of_a_uuid(world: World) -> None:
    client, lab = world.client("reader"), world.lab
    for kind, uuid in (("suites", lab.suite.uuid), ("tasks", lab.failed),
                       ("managers", lab.manager.uuid)):  # fmt: skip
        answer = client.get(f"/console/find?q={uuid}")
        assert answer.headers["Location"] == f"/console/{kind}/{uuid}"
    assert client.get(f"/console/find?q={world.lux.suite.uuid}").status_code == 404
    assert client.get("/console/find?q=abl").headers["Location"] == "/console/suites?q=abl"
