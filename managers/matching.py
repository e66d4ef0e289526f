"""Who may run what: the rule for one pair, and the same rule for a whole fleet at once.

Pure. `is_eligible` says it in words; `FleetIndex` answers it for all hosts with one integer per tag
and group, a bit per host, so a suite costs a few ANDs however large the fleet is.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field

from mitosis_protocol.enums import ConsentState, Role


def is_eligible(
    *,
    manager_tags: Set[str],
    suite_tags: Set[str],
    role: Role | None,
    consent: ConsentState | None = ConsentState.ACCEPTED,
) -> bool:
    """Suite tags within manager tags, and Write or more on the manager, consented to."""
    has_role = role is not None and role.allows(Role.WRITE) and consent is ConsentState.ACCEPTED
    return has_role and suite_tags <= manager_tags


@dataclass(frozen=True, slots=True)
class HostTraits:
    """What matching looks at: tags, and the groups with an accepted Write or Admin role."""

    id: int
    tags: Collection[str]
    group_ids: Collection[int]


@dataclass(slots=True)
class FleetIndex:
    """Hosts as bits. Bit 0 is the plainest host: special ones stay free for whoever needs them."""

    hosts: list[int] = field(default_factory=list)
    bit_of: dict[int, int] = field(default_factory=dict)
    _tags: dict[str, int] = field(default_factory=dict)
    _groups: dict[int, int] = field(default_factory=dict)

    @classmethod
    def build(cls, traits: Sequence[HostTraits]) -> "FleetIndex":
        index = cls()
        for place, host in enumerate(sorted(traits, key=lambda one: (len(one.tags), one.id))):
            bit = 1 << place
            index.hosts.append(host.id)
            index.bit_of[host.id] = bit
            for tag in host.tags:
                index._tags[tag] = index._tags.get(tag, 0) | bit
            for group_id in host.group_ids:
                index._groups[group_id] = index._groups.get(group_id, 0) | bit
        return index

    def permitted(self, group_id: int) -> int:
        """Hosts a group may use at all."""
        return self._groups.get(group_id, 0)

    def matched(self, group_id: int, tags: Iterable[str]) -> int:
        """Hosts the rule gives to a suite of that group with those tags."""
        return self.permitted(group_id) & self.having(tags)

    def having(self, tags: Iterable[str]) -> int:
        """Hosts with all of those tags."""
        bits = (1 << len(self.hosts)) - 1
        for tag in tags:
            bits &= self._tags.get(tag, 0)
        return bits

    def bits_of(self, host_ids: Iterable[int]) -> int:
        """Hosts by id; unknown ones are left out."""
        bits = 0
        for host_id in host_ids:
            bits |= self.bit_of.get(host_id, 0)
        return bits

    def plainest(self, bits: int) -> int:
        """The id of the host with the lowest bit; `bits` must not be 0."""
        return self.hosts[(bits & -bits).bit_length() - 1]

    def each(self, bits: int) -> Iterator[int]:
        """Ids of all hosts in `bits`."""
        while bits:
            yield self.plainest(bits)
            bits &= bits - 1
