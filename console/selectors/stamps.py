"""Whether something that is watched has changed: one statement for all watched things of a kind."""

from collections.abc import Collection
from dataclasses import dataclass

from console.selectors.statements import fetch


@dataclass(frozen=True, slots=True)
class _Stamp:
    uuid: str
    text: str


def suite_stamps(uuids: Collection[str]) -> dict[str, str]:
    return _stamps("suites", uuids)


def suite_failure_stamps(uuids: Collection[str]) -> dict[str, str]:
    return _stamps("suite_failures", uuids)


def suite_host_stamps(uuids: Collection[str]) -> dict[str, str]:
    return _stamps("suite_hosts", uuids)


def manager_stamps(uuids: Collection[str]) -> dict[str, str]:
    return _stamps("managers", uuids)


def task_stamps(uuids: Collection[str]) -> dict[str, str]:
    return _stamps("tasks", uuids)


def _stamps(kind: str, uuids: Collection[str]) -> dict[str, str]:
    """By uuid; what does not exist has none."""
    found = fetch(f"stamps/{kind}", _Stamp, {"uuids": list(uuids)})
    return {one.uuid: one.text for one in found}
