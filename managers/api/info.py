"""A manager as the API shows it."""

from collections.abc import Iterable
from datetime import datetime

from managers.models import NodeManager, SuiteAssignment
from managers.selectors import engagements_of
from mitosis_protocol.enums import ConsentState
from mitosis_protocol.timestamps import format_rfc3339
from runners.selectors import list_group_roles


def manager_infos(rows: Iterable[NodeManager]) -> list[dict[str, object]]:
    """ManagerInfo of each; one more query for any number of managers."""
    nodes = list(rows)
    engaged = engagements_of([node.pk for node in nodes])
    return [_info(node, engaged.get(node.pk)) for node in nodes]


def manager_answer(node: NodeManager) -> dict[str, object]:
    """One manager with everything a person may want to know."""
    [info] = manager_infos([node])
    return {
        **info,
        "groups": _roles(node, ConsentState.ACCEPTED),
        "pending_groups": _roles(node, ConsentState.PENDING),
        "reason": node.wish_reason,
        "probe_after": _moment(node.probe_after),
        "config_version": node.config_version,
    }


def _info(node: NodeManager, engagement: SuiteAssignment | None) -> dict[str, object]:
    runner = node.runner
    return {
        "uuid": str(runner.uuid),
        "creator_username": runner.owner.username,
        "tags": list(runner.tags),
        "labels": list(runner.labels),
        "state": node.state.value,
        "desired_state": runner.desired_state.value,
        "connection": runner.conn_state.value,
        "last_heartbeat": format_rfc3339(node.last_heartbeat),
        "assigned_suite_uuid": None if engagement is None else str(engagement.suite.uuid),
        "lease_expires_at": None if engagement is None else _moment(engagement.lease_expires_at),
        "created_at": format_rfc3339(runner.created_at),
        "updated_at": format_rfc3339(runner.updated_at),
    }


def _roles(node: NodeManager, consent: ConsentState) -> dict[str, str]:
    roles = list_group_roles(node.pk, consent=consent)
    return {name: role.value for name, role in roles.items()}


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else format_rfc3339(moment)
