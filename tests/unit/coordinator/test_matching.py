"""The matching rule for one pair, and that the fleet's index says the same."""

from hypothesis import given
from hypothesis import strategies as st

from managers.matching import FleetIndex, HostTraits, is_eligible
from mitosis_protocol.enums import ConsentState, Role

TAGS = st.frozensets(st.sampled_from(["gpu", "linux", "big", "x86"]))


def test_suite_tags_must_lie_within_manager_tags() -> None:
    role = Role.WRITE
    assert is_eligible(manager_tags={"gpu", "linux"}, suite_tags={"gpu"}, role=role)
    assert is_eligible(manager_tags=set(), suite_tags=set(), role=role)
    assert not is_eligible(manager_tags={"linux"}, suite_tags={"gpu"}, role=role)


def test_the_group_needs_write_or_more_and_consent() -> None:
    for role, expected in (
        (None, False),
        (Role.READ, False),
        (Role.WRITE, True),
        (Role.ADMIN, True),
    ):
        assert is_eligible(manager_tags=set(), suite_tags=set(), role=role) is expected
    for consent in (ConsentState.PENDING, ConsentState.REFUSED, None):
        assert not is_eligible(
            manager_tags=set(), suite_tags=set(), role=Role.ADMIN, consent=consent
        )


@given(
    hosts=st.lists(st.tuples(TAGS, st.frozensets(st.integers(1, 3))), max_size=12),
    wanted=TAGS,
    group_id=st.integers(1, 4),
)
def test_the_index_agrees_with_the_rule(
    hosts: list[tuple[frozenset[str], frozenset[int]]], wanted: frozenset[str], group_id: int
) -> None:
    traits = [HostTraits(number, tags, groups) for number, (tags, groups) in enumerate(hosts)]
    index = FleetIndex.build(traits)
    found = set(index.each(index.matched(group_id, wanted)))
    assert found == {
        host.id
        for host in traits
        if is_eligible(
            manager_tags=set(host.tags),
            suite_tags=set(wanted),
            role=Role.WRITE if group_id in host.group_ids else None,
        )
    }


def test_the_plainest_host_comes_first() -> None:
    traits = [HostTraits(1, ["gpu", "linux"], [7]), HostTraits(2, ["linux"], [7])]
    index = FleetIndex.build(traits)
    assert list(index.each(index.matched(7, ["linux"]))) == [2, 1]
