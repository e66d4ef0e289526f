"""One manager: what it does, what it measures, whom it works and worked for, what crashed on it."""

from typing import Final
from uuid import UUID

from console.panels.offers import manager_offers
from console.panels.topics import Panel, Shown, Topic, part
from console.selectors.managers import read_crashes, read_engagements, read_manager_line
from console.selectors.stamps import manager_stamps
from core.errors import NotFound
from managers.models import NodeManager


def build_manager(topic: Topic) -> Shown:
    """The caller has checked that the viewer reaches this manager."""
    node = _node(topic)
    line = read_manager_line(topic.viewer, node)
    visible = topic.viewer.group_ids()
    engagements = [
        (row, visible is None or row.suite.group_id in visible) for row in read_engagements(node)
    ]
    crashes = read_crashes(node)
    state = {
        "line": line,
        "node": node,
        "numbers": line.numbers,
        "crashes": crashes,
        "offers": manager_offers(node.runner.desired_state),
    }
    newest = None if node.sampled_at is None else int(node.sampled_at.timestamp())
    return Shown(
        {
            "state": part("manager_state", state),
            "engagements": part("manager_engagements", {"engagements": engagements}),
            "crashes": part("manager_crashes", {"crashes": crashes}),
        },
        {"sampled": newest},
    )


def _node(topic: Topic) -> NodeManager:
    rows = NodeManager.objects.select_related("runner", "runner__owner", "runner__lease")
    node = rows.filter(runner__uuid=UUID(topic.target), runner__revoked_at__isnull=True).first()
    if node is None:
        raise NotFound(f"Manager {topic.target} not found")
    return node


MANAGER: Final = Panel(build_manager, every_s=2.0, stamps=manager_stamps)
