"""What may be done to a fleet, drawn from a seed: the same seed draws the same strikes in order."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Final

from tests.chaos.faultpoints import AGENT, COORDINATOR, WORKER
from tests.chaos.fleet import LEASE_S, STORE_LINK, STORES
from tests.chaos.store_proxy import StoreFault
from tests.chaos.ws_proxy import BOTH, Direction, FrameFault

WEB: Final = ("web0", "web1")
CELERY: Final = ("celery-worker", "celery-beat")
AGENTS: Final = ("agent-1", "agent-2", "agent-3")
LINKS: Final = (*AGENTS, "worker", "client")
COORDINATORS: Final = (*WEB, *CELERY)
PARTS: Final = (*STORES, *WEB, *CELERY, *AGENTS, "worker")
FRAME_FAULTS: Final[tuple[FrameFault, ...]] = ("delay", "drop", "duplicate", "reorder")
STORE_FAULTS: Final[tuple[StoreFault, ...]] = ("error", "refuse", "slow", "half", "mute")
# Hosts have any time. Coordinators have the same one give or take the leeway of their tokens; all
# of them go wrong together, ten minutes to either side, the way back in one step.
HOST_CLOCKS_S: Final = (3600.0, -3600.0, 0.0)
LONE_CLOCK_S: Final = 25.0
COMMON_CLOCKS_S: Final = (200.0, 600.0, -600.0, -200.0)
# How often each kind is in the deck. Frames are cheap; a store costs seconds of everything.
WEIGHTS: Final = {
    "frames": 10,
    "kill": 3,
    "pause": 2,
    "kill-managed": 2,
    "arm": 2,
    "pause-managed": 1,
    "partition": 1,
    "half-open": 1,
    "cut": 1,
    "move": 1,
    "restart": 1,
    "flush": 1,
    "terminate": 1,
    "store": 2,
    "clock": 2,
}
# Dropping is hard on latency (a lost answer costs its timeout), so it is drawn less often.
FRAME_WEIGHTS: Final = (4, 1, 4, 3)


@dataclass(frozen=True)
class Strike:
    """One order. `seconds`: how long it lasts, or how late a frame is."""

    kind: str
    target: str
    seconds: float = 0.0
    detail: str = ""
    directions: tuple[Direction, ...] = ()

    def __str__(self) -> str:
        words = (self.kind, self.target, self.detail, "+".join(self.directions))
        return " ".join(word for word in words if word)


TARGETS: Final[Mapping[str, tuple[str, ...]]] = {
    "kill": PARTS,
    "pause": PARTS,
    "half-open": (*LINKS, STORE_LINK),
    "cut": (*LINKS, STORE_LINK),
    "move": LINKS,
    "restart": (*WEB, *AGENTS, "s3"),
    "flush": ("valkey",),
    "terminate": ("postgres",),
}


class Deck:
    """Deals every card once before any comes again, so that a short run hits everything."""

    def __init__(self, cards: Sequence[str], dice: random.Random) -> None:
        self._cards = list(cards)
        self._dice = dice
        self._left: list[str] = []

    def deal(self) -> str:
        if not self._left:
            self._left = self._dice.sample(self._cards, len(self._cards))
        return self._left.pop()


def draw(seed: int) -> Iterator[Strike]:
    """Strikes without end."""
    dice = random.Random(seed)
    kinds = Deck([kind for kind, count in WEIGHTS.items() for _ in range(count)], dice)
    decks = {kind: Deck(targets, dice) for kind, targets in TARGETS.items()}
    makers = {**_MAKERS, "store": _store_maker(dice), "clock": _clock_maker(dice)}
    while True:
        kind = kinds.deal()
        if kind in decks:
            yield Strike(kind, decks[kind].deal(), dice.uniform(0.3, 2.0))
        else:
            yield makers[kind](kind, dice)


def _frames(kind: str, dice: random.Random) -> Strike:
    detail = dice.choices(FRAME_FAULTS, FRAME_WEIGHTS)[0]
    direction = dice.choice(BOTH)
    return Strike(kind, dice.choice(AGENTS), dice.uniform(0.02, 0.3), detail, (direction,))


def _partition(kind: str, dice: random.Random) -> Strike:
    """Most are shorter than a lease, some are longer: then the fleet has to part with work."""
    longest = LEASE_S * 2.2 if dice.random() < 0.25 else 2.0
    ways: tuple[Direction, ...] = dice.choice((BOTH, ("up",), ("down",)))
    link = dice.choice((*LINKS, STORE_LINK))
    return Strike(kind, link, dice.uniform(0.3, longest), directions=ways)


def _managed(kind: str, dice: random.Random) -> Strike:
    return Strike(kind, "managed", dice.uniform(0.2, 1.5), detail=f"{dice.random():.6f}")


def _armed(kind: str, dice: random.Random) -> Strike:
    home, points = dice.choice(
        ((WEB, COORDINATOR), (CELERY[:1], COORDINATOR), (AGENTS, AGENT), (AGENTS, WORKER))
    )
    point = dice.choice(list(points))
    hit = dice.randint(1, points[point])
    return Strike(kind, dice.choice(home), detail=f"{point}=kill9#{hit}")


def _store_maker(dice: random.Random) -> "Maker":
    deck = Deck(STORE_FAULTS, dice)

    def make(kind: str, dice: random.Random) -> Strike:
        return Strike(kind, STORE_LINK, dice.uniform(0.3, 3.0), deck.deal())

    return make


def _clock_maker(dice: random.Random) -> "Maker":
    """`seconds`: how far ahead the clock is from then on."""
    deck = Deck(("coordinators", *AGENTS, *WEB), dice)
    common, host = cycle(COMMON_CLOCKS_S), cycle(HOST_CLOCKS_S)

    def make(kind: str, dice: random.Random) -> Strike:
        target = deck.deal()
        if target == "coordinators":
            return Strike(kind, target, next(common))
        if target in AGENTS:
            return Strike(kind, target, next(host))
        return Strike(kind, target, dice.uniform(-LONE_CLOCK_S, LONE_CLOCK_S))

    return make


Maker = Callable[[str, random.Random], Strike]
_MAKERS: Final[dict[str, Maker]] = {
    "frames": _frames,
    "partition": _partition,
    "kill-managed": _managed,
    "pause-managed": _managed,
    "arm": _armed,
}
