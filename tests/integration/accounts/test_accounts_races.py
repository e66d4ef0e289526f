"""Two connections at the same moment: names, quotas, storage and passwords."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection, transaction

from accounts.actors import SYSTEM
from accounts.models import Group, Name, User
from accounts.password import encode_md5_password
from accounts.services.groups import create_group
from accounts.services.sessions import Credentials, login
from accounts.services.storage import change_storage_quota, charge_storage, refund_storage
from accounts.services.users import create_user
from accounts.throttle import LocalCounter, LoginThrottle
from core.errors import (
    AlreadyExists,
    AuthenticationFailed,
    DomainError,
    InvalidInput,
    NotFound,
    QuotaExceeded,
)
from mitosis_protocol.enums import GroupState
from mitosis_protocol.sizes import QuotaChange
from tests.integration.accounts.api_client import digest

pytestmark = pytest.mark.django_db(transaction=True)

DIGEST = bytes(digest())


def together(*calls: Callable[[], Any]) -> list[Any]:
    """Run the calls at the same moment, each on its own connection; answers or DomainErrors."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> Any:
        try:
            barrier.wait(timeout=10)
            return call()
        except DomainError as error:
            return error
        finally:
            connection.close()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


def user_named(name: str) -> Callable[[], User]:
    return lambda: create_user(actor=SYSTEM, username=name, md5_password=DIGEST, is_admin=False)


def wait_until_blocked(deadline_s: float = 5) -> None:
    """Returns once some other session waits for a lock."""
    ends_at = time.monotonic() + deadline_s
    while time.monotonic() < ends_at:
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
            if cursor.fetchone()[0]:
                return
        time.sleep(0.01)
    raise AssertionError("nobody waits for a lock")


def in_thread(pool: ThreadPoolExecutor, call: Callable[[], Any]) -> "Future[Any]":
    def run() -> Any:
        try:
            return call()
        finally:
            connection.close()

    return pool.submit(run)


def test_one_of_two_equal_users_is_created() -> None:
    for n in range(5):
        answers = together(user_named(f"ada{n}"), user_named(f"ada{n}"))
        assert sorted(type(answer).__name__ for answer in answers) == ["AlreadyExists", "User"]
        assert User.objects.filter(username=f"ada{n}").count() == 1
        assert Group.objects.filter(name=f"ada{n}").count() == 1


def test_a_user_and_a_group_never_share_a_name() -> None:
    creator = user_named("ada")()
    for n in range(5):
        name = f"lab{n}"
        answers = together(
            user_named(name),
            lambda name=name: create_group(actor=SYSTEM, creator=creator, name=name),
        )
        assert sum(isinstance(answer, AlreadyExists) for answer in answers) == 1
        assert Name.objects.filter(name=name).count() == 1
        group = Group.objects.get(name=name)
        assert (group.creator.username == name) == User.objects.filter(username=name).exists()
    creator.refresh_from_db()
    assert creator.group_count == Group.objects.filter(creator=creator).count()


def test_the_second_waits_for_the_first_and_then_fails() -> None:
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            user_named("ada")()
            second = in_thread(pool, user_named("ada"))
            wait_until_blocked()
            assert not second.done()
        with pytest.raises(AlreadyExists):
            second.result(timeout=10)


def test_the_second_gets_the_name_when_the_first_rolls_back() -> None:
    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            user_named("ada")()
            second = in_thread(pool, user_named("ada"))
            wait_until_blocked()
            transaction.set_rollback(True)
        assert second.result(timeout=10).username == "ada"
    assert User.objects.count() == 1


def test_the_last_place_of_a_group_quota_is_given_once() -> None:
    creator = user_named("ada")()
    User.objects.update(group_quota=3)
    answers = together(
        *(lambda n=n: create_group(actor=SYSTEM, creator=creator, name=f"g{n}") for n in range(6))
    )
    assert sum(isinstance(answer, Group) for answer in answers) == 2
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 4
    creator.refresh_from_db()
    assert creator.group_count == 3 == Group.objects.filter(creator=creator).count()


def test_storage_is_never_charged_beyond_the_quota() -> None:
    user_named("ada")()
    group = Group.objects.get(name="ada")
    Group.objects.update(storage_quota=100)
    answers = together(*(lambda: charge_storage(group_id=group.pk, delta=30) for _ in range(8)))
    assert answers.count(None) == 3
    assert sum(isinstance(answer, QuotaExceeded) for answer in answers) == 5
    group.refresh_from_db()
    assert group.storage_used == 90


def test_charging_and_refunding_add_up() -> None:
    user_named("ada")()
    group = Group.objects.get(name="ada")
    charge_storage(group_id=group.pk, delta=1000)
    together(
        *(lambda: charge_storage(group_id=group.pk, delta=7) for _ in range(4)),
        *(lambda: refund_storage(group_id=group.pk, delta=5) for _ in range(4)),
    )
    group.refresh_from_db()
    assert group.storage_used == 1000 + 4 * 7 - 4 * 5


def test_storage_corner_cases() -> None:
    user_named("ada")()
    group = Group.objects.get(name="ada")
    Group.objects.update(storage_quota=10)
    charge_storage(group_id=group.pk, delta=10)
    charge_storage(group_id=group.pk, delta=0)
    for too_much in (1, 2**62, 2**70):
        with pytest.raises(QuotaExceeded):
            charge_storage(group_id=group.pk, delta=too_much)
    with pytest.raises(NotFound):
        charge_storage(group_id=-1, delta=1)
    with pytest.raises(ValueError, match="not negative"):
        charge_storage(group_id=group.pk, delta=-1)
    with pytest.raises(ValueError, match="not negative"):
        refund_storage(group_id=group.pk, delta=-1)
    Group.objects.update(state=GroupState.LOCKED)
    for delta in (0, 1):
        with pytest.raises(InvalidInput):
            charge_storage(group_id=group.pk, delta=delta)


def test_a_quota_below_what_is_used_stops_new_charges_only() -> None:
    user_named("ada")()
    group = Group.objects.get(name="ada")
    charge_storage(group_id=group.pk, delta=10)
    change = QuotaChange("=", 5)
    assert change_storage_quota(actor=SYSTEM, group_name="ada", change=change) == 5
    with pytest.raises(QuotaExceeded):
        charge_storage(group_id=group.pk, delta=1)
    refund_storage(group_id=group.pk, delta=10)
    charge_storage(group_id=group.pk, delta=5)


def test_quota_changes_of_two_admins_both_count() -> None:
    user_named("ada")()
    plus_one = QuotaChange("+", 1)
    together(
        *(
            lambda: change_storage_quota(actor=SYSTEM, group_name="ada", change=plus_one)
            for _ in range(6)
        )
    )
    assert Group.objects.get(name="ada").storage_quota == 16_000_000_006


def test_a_login_that_overlaps_a_password_change_gets_no_token() -> None:
    user_named("ada")()
    throttle = LoginThrottle(LocalCounter(), 10)
    credentials = Credentials("ada", DIGEST)

    def log_in() -> str:
        return login(actor=SYSTEM, credentials=credentials, retain=True, throttle=throttle)

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            # Holds the row, as the service that changes a password does.
            user = User.objects.select_for_update().get(username="ada")
            late = in_thread(pool, log_in)
            wait_until_blocked()
            user.password = encode_md5_password(bytes(16))
            user.save(update_fields=["password"])
        with pytest.raises(AuthenticationFailed):
            late.result(timeout=10)
