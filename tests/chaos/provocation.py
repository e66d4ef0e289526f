"""What leads an armed process to a faultpoint that everyday work seldom passes."""

from typing import Final

from tests.chaos.fleet import Fleet
from tests.chaos.parts import Part
from tests.chaos.strikes import AGENTS, Strike

HOUR_S: Final = 3600.0
FOLD_S: Final = 61.0  # counts are folded every minute


def provocations(fleet: Fleet, part: Part) -> list[Strike]:
    """What to do once `part` is there again; nothing while it is too early."""
    point = part.armed.partition("=")[0]
    if point == "count.mid_fold":
        return [_step(fleet, "celery-beat", FOLD_S)]
    if point not in ("session.old_close_after_new_open", "token.rotated_not_delivered"):
        return []
    links = [name for name in AGENTS if _leads_to(fleet, name, part)]
    if not links or not part.is_ready():
        return []
    if point == "session.old_close_after_new_open":
        return [Strike("cut", links[0])] if fleet.house.proxies[links[0]].connections else []
    # Its clock is behind the day of its token then: it asks for another one.
    return [_step(fleet, links[0], -HOUR_S), Strike("kill", links[0])]


def _step(fleet: Fleet, name: str, seconds: float) -> Strike:
    return Strike("step", name, fleet.clocks[name].ahead_s + seconds)


def _leads_to(fleet: Fleet, link: str, part: Part) -> bool:
    port = fleet.house.proxies[link].target
    return part.name == f"web{fleet.web_ports.index(port)}"
