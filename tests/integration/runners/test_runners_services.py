"""Runners: registration, consent of both sides, reach, sessions and leases."""

import uuid
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection

from accounts.actors import SYSTEM
from accounts.identity import Identity
from accounts.models import Group, User
from accounts.services.groups import create_group, put_members
from core import clock
from core.errors import AuthenticationFailed, InvalidInput, NotFound, PermissionDenied
from mitosis_protocol.enums import ConnState, ConsentState, Role, RunnerKind, TokenKind
from runners.models import GroupRunner, Runner, RunnerLease
from runners.selectors import access_runner, count_workers, find_reach, list_group_roles
from runners.services.groups import decide_consent, put_group_roles, remove_group_roles
from runners.services.registration import revoke_runner
from runners.services.sessions import close_session, open_session, renew_leases

pytestmark = pytest.mark.django_db


def ask(runner: Runner, user: User, **roles: Role) -> dict[str, ConsentState]:
    return put_group_roles(actor=SYSTEM, asked_by=user, runner=runner, roles=roles)


def identity_of(runner: Runner) -> Identity:
    return Identity(
        kind=TokenKind.MANAGER,
        id=runner.pk,
        subject=str(runner.uuid),
        generation=runner.token_generation,
        expires_at=clock.now() + timedelta(hours=1),
    )


def test_a_new_runner_has_a_v4_uuid_a_lease_and_no_groups(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    runner = make_runner(make_user("ada"))
    runner.refresh_from_db()
    assert runner.uuid.version == 4
    assert runner.tags == ["big", "gpu"]
    assert (runner.session_epoch, runner.token_generation) == (0, 1)
    lease = RunnerLease.objects.get(runner=runner)
    assert timedelta(seconds=110) < lease.expires_at - clock.now() <= timedelta(seconds=121)
    assert list_group_roles(runner.pk) == {}


def test_the_lease_table_is_made_for_hot_updates() -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT reloptions FROM pg_class WHERE relname = 'runner_leases'")
        assert "fillfactor=50" in cursor.fetchone()[0]
        cursor.execute("SELECT indexdef FROM pg_indexes WHERE tablename = 'runner_leases'")
        assert [row[0] for row in cursor.fetchall() if "expires_at" in row[0]] == []


def test_consent_is_automatic_only_for_admins_of_the_group(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    ada, bob = make_user("ada"), make_user("bob")
    lab = create_group(actor=SYSTEM, creator=bob, name="lab")
    runner = make_runner(ada)
    answers = ask(runner, ada, ada=Role.ADMIN, lab=Role.WRITE, bob=Role.READ)
    assert answers == {
        "ada": ConsentState.ACCEPTED,
        "bob": ConsentState.PENDING,
        "lab": ConsentState.PENDING,
    }
    assert list_group_roles(runner.pk) == {"ada": Role.ADMIN}
    assert find_reach(user_id=bob.pk, runner_id=runner.pk) is None
    with pytest.raises(NotFound):
        access_runner(bob, runner.uuid, Role.READ, kind=RunnerKind.INDEPENDENT)

    decide_consent(actor=SYSTEM, decided_by=bob, runner=runner, group=lab, accept=True)
    assert list_group_roles(runner.pk) == {"ada": Role.ADMIN, "lab": Role.WRITE}
    assert find_reach(user_id=bob.pk, runner_id=runner.pk) is Role.WRITE


def test_being_a_member_is_not_enough_to_bring_a_runner_in(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    ada, bob = make_user("ada"), make_user("bob")
    lab = create_group(actor=SYSTEM, creator=bob, name="lab")
    put_members(actor=SYSTEM, group=lab, roles={"ada": Role.WRITE})
    assert ask(make_runner(ada), ada, lab=Role.WRITE) == {"lab": ConsentState.PENDING}


def test_a_refused_runner_may_ask_again_and_waits_again(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    ada, bob = make_user("ada"), make_user("bob")
    group = Group.objects.get(name="bob")
    runner = make_runner(ada)
    ask(runner, ada, bob=Role.WRITE)
    decide_consent(actor=SYSTEM, decided_by=bob, runner=runner, group=group, accept=False)
    assert list_group_roles(runner.pk) == {}
    assert ask(runner, ada, bob=Role.WRITE) == {"bob": ConsentState.PENDING}


def test_changing_the_role_keeps_the_groups_answer(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    ada, bob = make_user("ada"), make_user("bob")
    group = Group.objects.get(name="bob")
    runner = make_runner(ada)
    ask(runner, ada, bob=Role.WRITE)
    decide_consent(actor=SYSTEM, decided_by=bob, runner=runner, group=group, accept=True)
    assert ask(runner, ada, bob=Role.READ) == {"bob": ConsentState.ACCEPTED}
    row = GroupRunner.objects.get(runner=runner, group=group)
    assert (row.role, row.decided_by) == (Role.READ, bob)
    assert row.decided_at is not None


def test_consent_to_what_nobody_asked_for(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    ada, bob = make_user("ada"), make_user("bob")
    group = Group.objects.get(name="bob")
    with pytest.raises(NotFound):
        decide_consent(
            actor=SYSTEM, decided_by=bob, runner=make_runner(ada), group=group, accept=True
        )


@pytest.mark.parametrize("names", [[], ["nil"], ["ada", "nil"], ["a b"], ["\x00"]])
def test_unknown_groups_change_nothing(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner], names: list[str]
) -> None:
    ada = make_user("ada")
    runner = make_runner(ada)
    with pytest.raises(InvalidInput):
        ask(runner, ada, **dict.fromkeys(names, Role.READ))
    with pytest.raises(InvalidInput):
        remove_group_roles(actor=SYSTEM, runner=runner, group_names=names)
    assert not GroupRunner.objects.exists()


def test_reach_and_access_by_role(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    ada, bob = make_user("ada"), make_user("bob")
    lab = create_group(actor=SYSTEM, creator=ada, name="lab")
    put_members(actor=SYSTEM, group=lab, roles={"bob": Role.READ})
    runner = make_runner(ada)
    ask(runner, ada, ada=Role.ADMIN, lab=Role.ADMIN)
    kind = RunnerKind.INDEPENDENT
    assert access_runner(ada, runner.uuid, Role.ADMIN, kind=kind).role is Role.ADMIN
    assert access_runner(bob, runner.uuid, Role.READ, kind=kind).role is Role.READ
    with pytest.raises(PermissionDenied):
        access_runner(bob, runner.uuid, Role.WRITE, kind=kind)
    for missing in (uuid.uuid4(), runner.uuid):
        with pytest.raises(NotFound):
            access_runner(ada, missing, Role.READ, kind=RunnerKind.MANAGER)
    remove_group_roles(actor=SYSTEM, runner=runner, group_names=["lab"])
    with pytest.raises(NotFound):
        access_runner(bob, runner.uuid, Role.READ, kind=kind)


def test_workers_of_a_group_are_counted_from_the_rows(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    ada = make_user("ada")
    group = Group.objects.get(name="ada")
    for kind in (RunnerKind.INDEPENDENT, RunnerKind.DIRECT, RunnerKind.MANAGER):
        ask(make_runner(ada, kind), ada, ada=Role.WRITE)
    gone = make_runner(ada)
    ask(gone, ada, ada=Role.WRITE)
    assert count_workers(group.pk) == 3
    revoke_runner(actor=SYSTEM, runner=gone)
    assert count_workers(group.pk) == 2


def test_the_newest_session_wins_and_an_old_close_changes_nothing(
    make_user: Callable[[str], User],
    make_runner: Callable[..., Runner],
    on_pool: Callable[..., Any],
) -> None:
    runner = make_runner(make_user("ada"), RunnerKind.MANAGER)
    process = uuid.uuid4()

    async def reconnect() -> None:
        first = await open_session(identity_of(runner), process_id=None, ttl_s=60)
        second = await open_session(identity_of(runner), process_id=process, ttl_s=60)
        assert (first.session_epoch, second.session_epoch) == (1, 2)
        assert not await close_session(first)
        assert await renew_leases({runner.pk: first.session_epoch}, ttl_s=60) == {}
        renewed = await renew_leases({runner.pk: second.session_epoch}, ttl_s=600)
        assert renewed[runner.pk] > second.lease_expires_at

    on_pool(reconnect)
    runner.refresh_from_db()
    assert (runner.conn_state, runner.process_id) == (ConnState.CONNECTED, process)

    async def leave() -> None:
        session = await open_session(identity_of(runner), process_id=process, ttl_s=60)
        assert await close_session(session)
        assert not await close_session(session)

    on_pool(leave)
    runner.refresh_from_db()
    assert (runner.conn_state, runner.session_epoch) == (ConnState.DISCONNECTED, 3)
    assert RunnerLease.objects.get(runner=runner).session_epoch == 3


def test_a_revoked_runner_cannot_connect_and_its_lease_is_not_renewed(
    make_user: Callable[[str], User],
    make_runner: Callable[..., Runner],
    on_pool: Callable[..., Any],
) -> None:
    runner = make_runner(make_user("ada"), RunnerKind.MANAGER)
    identity = identity_of(runner)
    session = on_pool(lambda: open_session(identity, process_id=None, ttl_s=60))
    revoke_runner(actor=SYSTEM, runner=runner)
    with pytest.raises(AuthenticationFailed):
        on_pool(lambda: open_session(identity, process_id=None, ttl_s=60))
    assert not on_pool(lambda: close_session(session))
    assert on_pool(lambda: renew_leases({runner.pk: session.session_epoch}, ttl_s=60)) == {}
    assert RunnerLease.objects.get(runner=runner).expires_at <= clock.now()
    runner.refresh_from_db()
    assert runner.conn_state is ConnState.LOST


def test_leases_are_renewed_in_one_statement_for_many(
    make_user: Callable[[str], User],
    make_runner: Callable[..., Runner],
    on_pool: Callable[..., Any],
) -> None:
    ada = make_user("ada")
    runners = [make_runner(ada) for _ in range(20)]
    epochs = {runner.pk: 0 for runner in runners}
    epochs[runners[3].pk] = 99
    renewed = on_pool(lambda: renew_leases(epochs, ttl_s=60))
    assert set(renewed) == set(epochs) - {runners[3].pk}
    assert on_pool(lambda: renew_leases({}, ttl_s=60)) == {}
