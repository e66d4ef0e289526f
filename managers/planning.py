"""The scheduler's thinking: a picture of fleet and campaigns in, a plan out. Pure.

managers.services.scheduler takes the picture and carries the plan out. Order: priority, then the
group that has least for its weight, then age. Leases are sticky: a host leaves a suite only when
that has nothing for it and somebody else has (DESIGN 4.3, seed 003 section 13).
"""

import heapq
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Final

from managers.enums import ReleaseReason
from managers.holding import Fit, Holding, judge
from managers.matching import FleetIndex, HostTraits
from managers.picture import Campaign, Host, Kind, Picks, Rules
from mitosis_protocol.enums import DesiredState, ManagerState

# Kinds of tasks, by tags, for which a suite is given a host of their own in one pass.
MAX_KINDS_ALONE: Final = 16


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write. Engagements by id; `assign` holds pairs of manager and suite."""

    assign: list[tuple[int, int]] = field(default_factory=list)
    renew: list[int] = field(default_factory=list)
    release: list[tuple[int, ReleaseReason]] = field(default_factory=list)
    rest: list[int] = field(default_factory=list)  # nothing left to do: linger
    wake: list[int] = field(default_factory=list)  # lingered, and there is work again
    idle: list[int] = field(default_factory=list)  # from now on it has nothing to do
    busy: list[int] = field(default_factory=list)  # it has something to do again


@dataclass(slots=True)
class _Demand:
    """A campaign that wants hosts, and which ones would do."""

    campaign: Campaign
    eligible: int
    seats: int


def make_plan(
    hosts: Sequence[Host], campaigns: Sequence[Campaign], picks: Picks, rules: Rules
) -> Plan:
    """One pass over everything."""
    plan = Plan()
    index = FleetIndex.build([HostTraits(h.id, h.tags, h.group_ids) for h in hosts])
    by_id = {campaign.id: campaign for campaign in campaigns}
    eligible = {one.id: _eligible(one, index, picks) for one in campaigns}
    engaged = _engaged_hosts(hosts, index)
    loads = _group_loads(engaged, by_id)

    demands = [
        demand
        for one in campaigns
        if one.has_work
        for demand in _demands(one, eligible[one.id], engaged.get(one.id, 0), index)
    ]
    queue = _Queue(demands, loads)
    free = index.bits_of(host.id for host in hosts if _is_free(host))
    plan.assign.extend(queue.fill(index, free))

    holdings = [
        judge(host, by_id.get(host.engagement.suite_id), rules, _fit(host, by_id, eligible, index))
        for host in hosts
        if host.engagement is not None
    ]
    # Hosts that are cleaning up will be free in a moment: nobody else has to leave for these.
    soon = index.bits_of(host.id for host in hosts if _is_soon_free(host))
    queue.fill(index, soon)
    _break_leases(plan, queue, holdings, index)
    _keep_books(plan, holdings)
    return plan


def _eligible(campaign: Campaign, index: FleetIndex, picks: Picks) -> int:
    """The rule (or what a refresh stored), and what people chose, as far as roles still allow."""
    bits = index.matched(campaign.group_id, campaign.tags)
    if not campaign.auto_match:
        bits &= index.bits_of(picks.matched.get(campaign.id, ()))
    bits &= ~index.bits_of(picks.removed.get(campaign.id, ()))
    bits |= index.bits_of(picks.chosen.get(campaign.id, ())) & index.permitted(campaign.group_id)
    return bits & ~index.bits_of(picks.banned.get(campaign.id, ()))


def _demands(
    campaign: Campaign, eligible: int, engaged: int, index: FleetIndex
) -> Iterator[_Demand]:
    """What a campaign with work wants, the most particular last: that is served first.

    Hosts it has count as far as they can take something of what waits. Every kind of task gets a
    host that can run it, however many hosts the other kinds keep busy.
    """
    kinds = [_takers(kind, index) for kind in campaign.demands]
    able = 0
    for bits in kinds:
        able |= bits
    wanted = _hosts_wanted(campaign) - (engaged & able).bit_count()
    alone = [bits & eligible for bits in kinds if bits & eligible and not bits & engaged]
    alone = alone[:MAX_KINDS_ALONE] if len(kinds) > 1 else []
    rest = wanted - len(alone)
    if rest > 0:
        yield _Demand(campaign, eligible & able, rest)
    for bits in alone:
        yield _Demand(campaign, bits, 1)


def _takers(kind: Kind, index: FleetIndex) -> int:
    return index.having(kind.tags) & ~index.bits_of(kind.excluded)


def _hosts_wanted(campaign: Campaign) -> int:
    """How many hosts it can keep busy. Tasks that run are covered by the hosts it has."""
    tasks = campaign.pending
    if campaign.max_running is not None:
        tasks = min(tasks, campaign.max_running)
    return math.ceil(max(tasks, 1) / campaign.workers)


def _engaged_hosts(hosts: Sequence[Host], index: FleetIndex) -> dict[int, int]:
    """Hosts of each suite that are not leaving it, as bits."""
    engaged: dict[int, int] = {}
    for host in hosts:
        if host.engagement is not None and not host.engagement.is_leaving:
            suite_id = host.engagement.suite_id
            engaged[suite_id] = engaged.get(suite_id, 0) | index.bit_of[host.id]
    return engaged


def _group_loads(engaged: Mapping[int, int], by_id: Mapping[int, Campaign]) -> dict[int, int]:
    loads: dict[int, int] = {}
    for suite_id, bits in engaged.items():
        if suite_id in by_id:
            group_id = by_id[suite_id].group_id
            loads[group_id] = loads.get(group_id, 0) + bits.bit_count()
    return loads


def _is_free(host: Host) -> bool:
    return (
        host.engagement is None
        and host.is_reachable
        and host.desired is DesiredState.ACTIVE
        and host.state is ManagerState.IDLE
    )


def _is_soon_free(host: Host) -> bool:
    is_leaving = host.engagement is not None and host.engagement.is_leaving
    is_tidying = host.engagement is None and host.state is ManagerState.CLEANUP
    wanted = host.desired is DesiredState.ACTIVE and host.is_reachable
    return wanted and (is_leaving or is_tidying)


def _fit(
    host: Host, by_id: Mapping[int, Campaign], eligible: Mapping[int, int], index: FleetIndex
) -> Fit:
    suite_id = 0 if host.engagement is None else host.engagement.suite_id
    bit = index.bit_of[host.id]
    campaign = by_id.get(suite_id)
    demands = () if campaign is None else campaign.demands
    return Fit(
        may_stay=bool(eligible.get(suite_id, 0) & bit),
        can_work=any(_takers(kind, index) & bit for kind in demands),
    )


class _Queue:
    """Demands in the order they are served: priority, then the group with least for its weight."""

    def __init__(self, demands: Sequence[_Demand], loads: dict[int, int]) -> None:
        self._loads = loads
        self._tie = count()
        self._levels: dict[int, dict[int, list[_Demand]]] = {}
        # Oldest last, so that pop() takes the oldest.
        for demand in sorted(demands, key=lambda one: -one.campaign.id):
            level = self._levels.setdefault(demand.campaign.priority, {})
            level.setdefault(demand.campaign.group_id, []).append(demand)

    def fill(self, index: FleetIndex, free: int) -> list[tuple[int, int]]:
        """Give free hosts to demands; what stays unmet stays in the queue."""
        given: list[tuple[int, int]] = []
        for priority in sorted(self._levels, reverse=True):
            free = self._fill_level(priority, index, free, given)
            if not free:
                break
        return given

    def unmet(self) -> list[_Demand]:
        """What is left, most urgent first."""
        left = [
            demand
            for level in self._levels.values()
            for group in level.values()
            for demand in group
        ]
        return sorted(left, key=lambda one: (-one.campaign.priority, one.campaign.id))

    def _fill_level(
        self, priority: int, index: FleetIndex, free: int, given: list[tuple[int, int]]
    ) -> int:
        level = self._levels[priority]
        starved: dict[int, list[_Demand]] = {}
        heap = [self._entry(group_id, group) for group_id, group in level.items() if group]
        heapq.heapify(heap)
        while heap and free:
            *_, group_id = heapq.heappop(heap)
            group = level[group_id]
            demand = group[-1]
            fitting = demand.eligible & free
            if not fitting:
                starved.setdefault(group_id, []).append(group.pop())
            else:
                host_id = index.plainest(fitting)
                free &= ~index.bit_of[host_id]
                given.append((host_id, demand.campaign.id))
                self._loads[group_id] = self._loads.get(group_id, 0) + 1
                demand.seats -= 1
                if not demand.seats:
                    group.pop()
            if group:
                heapq.heappush(heap, self._entry(group_id, group))
        for group_id, demands in starved.items():
            level[group_id].extend(reversed(demands))
        return free

    def _entry(self, group_id: int, group: list[_Demand]) -> tuple[float, int, int, int]:
        campaign = group[-1].campaign
        share = self._loads.get(group_id, 0) / campaign.weight
        return share, campaign.id, next(self._tie), group_id


def _break_leases(
    plan: Plan, queue: _Queue, holdings: Sequence[Holding], index: FleetIndex
) -> None:
    """Hosts that must leave do; others make room, one for each seat that nobody else can fill."""
    staying: dict[int, Holding] = {}
    for holding in holdings:
        if holding.must_leave is None:
            staying[holding.host_id] = holding
        else:
            plan.release.append((holding.engagement.id, holding.must_leave))
    spare = index.bits_of(one.host_id for one in staying.values() if one.yields_to_any)
    idle = index.bits_of(one.host_id for one in staying.values() if one.yields_to_higher)
    for demand in queue.unmet():
        if not spare | idle:
            return
        spared = _take(demand, spare, index, partial(_is_other, staying, demand))
        outranked = _take(demand, idle & ~spare, index, partial(_is_higher, staying, demand))
        for hosts, reason in (
            (spared, ReleaseReason.MADE_ROOM),
            (outranked, ReleaseReason.OUTRANKED),
        ):
            plan.release.extend((staying[host_id].engagement.id, reason) for host_id in hosts)
        taken = index.bits_of([*spared, *outranked])
        spare &= ~taken
        idle &= ~taken


def _take(
    demand: _Demand, bits: int, index: FleetIndex, may_take: Callable[[int], bool]
) -> list[int]:
    """Hosts that shall make room for a demand, as many as it has seats."""
    taken: list[int] = []
    for host_id in index.each(demand.eligible & bits):
        if demand.seats <= 0:
            break
        if may_take(host_id):
            taken.append(host_id)
            demand.seats -= 1
    return taken


def _is_other(staying: Mapping[int, Holding], demand: _Demand, host_id: int) -> bool:
    return staying[host_id].engagement.suite_id != demand.campaign.id


def _is_higher(staying: Mapping[int, Holding], demand: _Demand, host_id: int) -> bool:
    return demand.campaign.priority > staying[host_id].priority


def _keep_books(plan: Plan, holdings: Sequence[Holding]) -> None:
    leaving = {engagement_id for engagement_id, _ in plan.release}
    for holding in holdings:
        if holding.engagement.id in leaving or holding.engagement.is_leaving:
            continue
        if holding.renews:
            plan.renew.append(holding.engagement.id)
        if holding.rests:
            plan.rest.append(holding.engagement.id)
        elif holding.wakes:
            plan.wake.append(holding.engagement.id)
        if holding.turns_idle:
            plan.idle.append(holding.engagement.id)
        elif holding.turns_busy:
            plan.busy.append(holding.engagement.id)
