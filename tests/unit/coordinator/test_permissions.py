"""Role algebra: exhaustive, as there are only three roles and nothing."""

import itertools

import pytest

from accounts.permissions import (
    at_least,
    parse_grant,
    parse_role,
    reach,
    strongest,
    through_group,
)
from mitosis_protocol.enums import Role

NONE_OR_ROLE = [None, *Role]


@pytest.mark.parametrize(("role", "needed"), list(itertools.product(NONE_OR_ROLE, Role)))
def test_at_least_is_the_order_of_the_codes(role: Role | None, needed: Role) -> None:
    assert at_least(role, needed) == (role is not None and role.code >= needed.code)


@pytest.mark.parametrize(("mine", "theirs"), list(itertools.product(NONE_OR_ROLE, NONE_OR_ROLE)))
def test_through_a_group_the_weaker_link_counts(mine: Role | None, theirs: Role | None) -> None:
    result = through_group(mine, theirs)
    if mine is None or theirs is None:
        assert result is None
    else:
        assert result is not None
        assert result.code == min(mine.code, theirs.code)


def test_reach_is_the_best_single_group_not_a_mixture() -> None:
    # Admin of a group with Read, Read in a group with Admin: Read, however they are combined.
    assert reach([(Role.ADMIN, Role.READ), (Role.READ, Role.ADMIN)]) is Role.READ
    assert reach([(Role.READ, Role.READ), (Role.WRITE, Role.ADMIN)]) is Role.WRITE
    assert reach([]) is None
    assert reach([(None, Role.ADMIN), (Role.ADMIN, None)]) is None


def test_strongest_of_nothing_is_nothing() -> None:
    assert strongest([]) is None
    assert strongest([Role.READ, Role.ADMIN, Role.WRITE]) is Role.ADMIN


@pytest.mark.parametrize("role", Role)
def test_roles_are_read_in_three_spellings(role: Role) -> None:
    for text in (role.value, role.value.lower(), role.value.upper()):
        assert parse_role(text) is role


@pytest.mark.parametrize("text", ["", "aDmin", "owner", "Admin ", "2"])
def test_other_spellings_are_no_roles(text: str) -> None:
    assert parse_role(text) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("lab", ("lab", Role.WRITE)),
        ("lab:admin", ("lab", Role.ADMIN)),
        ("lab:Read", ("lab", Role.READ)),
        ("lab:nonsense", ("lab", Role.WRITE)),
        ("lab:", ("lab", Role.WRITE)),
        ("lab:read:write", None),
    ],
)
def test_grants_of_a_registration(text: str, expected: tuple[str, Role] | None) -> None:
    assert parse_grant(text) == expected
