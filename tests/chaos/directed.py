"""The directed part of a run: every faultpoint, and each kind of strike on each target.

The order is drawn from the seed. At a faultpoint that is passed often its process is first late,
then frozen, and then dead; at one that is passed now and then it dies at once.
"""

import random
from collections.abc import Iterable
from dataclasses import replace
from itertools import cycle
from typing import Final

from tests.chaos.faultpoints import AGENT, COORDINATOR, DELIVERIES, POINTS, WORKER
from tests.chaos.fleet import LEASE_S, STORE_LINK
from tests.chaos.strikes import (
    AGENTS,
    COMMON_CLOCKS_S,
    FRAME_FAULTS,
    HOST_CLOCKS_S,
    LINKS,
    LONE_CLOCK_S,
    STORE_FAULTS,
    TARGETS,
    WEB,
    Strike,
)
from tests.chaos.ws_proxy import BOTH, Direction

# Coordinator points that lie in a periodic job; all others are passed by requests.
PERIODIC: Final = ("reap.after_select", "reap.after_epoch_bump", "count.mid_fold")
# Requests of the client; managers ask for the rest.
OF_CLIENT: Final = (
    "submit.before_commit",
    "submit.after_commit_before_reply",
    "cancel.after_decide_before_push",
)
OFTEN: Final = 5  # a point that may be armed for so late a hit is passed all the time
WAYS: Final[tuple[tuple[Direction, ...], ...]] = (BOTH, ("up",), ("down",))


def directed(seed: int) -> list[Strike]:
    dice = random.Random(f"directed {seed}")
    strikes = [
        *_parts_and_links(dice),
        *_frames(dice),
        *_store(dice),
        *_clocks(dice),
    ]
    dice.shuffle(strikes)
    ends = [one for one in strikes if one.kind in ("kill", "restart")]
    light = [one for one in strikes if one.kind not in ("kill", "restart")]
    return _with_common_clock_in_order(_spread(_armings(dice), ends, light))


def _armings(dice: random.Random) -> list[Strike]:
    """By turns in agents and in coordinators, so that nobody is armed anew before he could act."""
    points = dice.sample(list(POINTS), len(POINTS))
    on_hosts = [point for point in points if point not in COORDINATOR]
    hosts = zip(on_hosts, cycle(AGENTS), strict=False)
    return _spread(
        [replace(arming(point, dice), target=agent) for point, agent in hosts],
        [arming(point, dice) for point in points if point in COORDINATOR],
    )


def _spread(*groups: list[Strike]) -> list[Strike]:
    """Each group at even distances: what costs the start of a process does not come in heaps, and
    there is always somebody at work whom the others meet.
    """
    placed = [(n / len(group), one) for group in groups for n, one in enumerate(group)]
    return [one for _, one in sorted(placed, key=lambda pair: pair[0])]


def _with_common_clock_in_order(strikes: list[Strike]) -> list[Strike]:
    """Coordinators' time goes astray step by step, never by both extremes at once."""
    steps = iter(COMMON_CLOCKS_S)
    return [
        replace(one, seconds=next(steps)) if one.target == "coordinators" else one
        for one in strikes
    ]


def arming(point: str, dice: random.Random) -> Strike:
    """A process that passes the point comes back with a plan for it."""
    return Strike("arm", _home(point, dice), detail=plan(point, dice.randint(1, POINTS[point])))


def plan(point: str, hit: int) -> str:
    before: list[str] = []
    if POINTS[point] >= OFTEN:
        before.append("delay:0.3")
        if point not in WORKER:
            before.append("stop:0.6")
    if point in DELIVERIES and POINTS[point] >= OFTEN:
        before += ["dup", "drop"]
    rules = [f"{point}={action}#1" for action in before]
    return "; ".join((*rules, f"{point}=kill9#{hit}"))


def point_of(detail: str) -> str:
    return detail.partition("=")[0]


def _home(point: str, dice: random.Random) -> str:
    if point in AGENT or point in WORKER:
        return dice.choice(AGENTS)
    assert point in COORDINATOR
    if point in PERIODIC:
        return "celery-worker"
    # `web@link`: the one that the link leads to by then.
    return "web@client" if point in OF_CLIENT else f"web@{dice.choice(AGENTS)}"


def _parts_and_links(dice: random.Random) -> Iterable[Strike]:
    for kind, targets in TARGETS.items():
        for target in targets:
            yield Strike(kind, target, dice.uniform(0.3, 2.0))
    for kind in ("kill-managed", "pause-managed"):
        for share in (0.1, 0.5, 0.9):  # from the oldest process of an agent to the newest
            yield Strike(kind, "managed", dice.uniform(0.2, 1.5), detail=f"{share:.6f}")
    for link in (*LINKS, STORE_LINK):
        for ways in WAYS:
            # One of each agent is longer than its lease and the patience after it.
            is_long = link in AGENTS and ways == BOTH
            seconds = LEASE_S * 1.9 if is_long else dice.uniform(0.3, 2.0)
            yield Strike("partition", link, seconds, directions=ways)


def _frames(dice: random.Random) -> Iterable[Strike]:
    for agent in AGENTS:
        for fault in FRAME_FAULTS:
            for way in BOTH:
                yield Strike("frames", agent, dice.uniform(0.02, 0.3), fault, (way,))


def _store(dice: random.Random) -> Iterable[Strike]:
    for fault in STORE_FAULTS:
        yield Strike("store", STORE_LINK, dice.uniform(0.3, 3.0), fault)


def _clocks(dice: random.Random) -> Iterable[Strike]:
    for seconds in COMMON_CLOCKS_S:
        yield Strike("clock", "coordinators", seconds)
    for agent in AGENTS:
        for seconds in HOST_CLOCKS_S:
            yield Strike("clock", agent, seconds)
    for web in WEB:
        yield Strike("clock", web, dice.uniform(-LONE_CLOCK_S, LONE_CLOCK_S))
