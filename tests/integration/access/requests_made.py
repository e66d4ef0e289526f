"""One request per route and way of naming an object: the rows of the access matrix.

`{group}`, `{suite}` and the like stand for things of the tenant a cell is about; `{own.suite}`
always for the caller's side. A route of the URL configuration without a row fails the test.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from accounts.policy import POLICY as ACCOUNTS
from accounts.policy import Need
from managers.policy import POLICY as MANAGERS
from notifications.policy import POLICY as NOTIFICATIONS
from suites.policy import POLICY as SUITES
from tasks.policy import POLICY as TASKS
from workers.policy import POLICY as WORKERS

# Routes of the composition root: open to everybody, and they say nothing about tenants.
SITE: Final[Mapping[tuple[str, str], Need]] = {
    ("GET", "health"): Need.NOBODY,
    ("GET", "healthz"): Need.NOBODY,
    ("GET", "readyz"): Need.NOBODY,
    ("GET", "schema"): Need.NOBODY,
    ("GET", "docs"): Need.NOBODY,
    ("GET", "landing"): Need.NOBODY,
    ("GET", "metrics"): Need.ADMIN,  # or the METRICS_TOKEN
}
NEEDS: Final = {**ACCOUNTS, **SUITES, **MANAGERS, **TASKS, **WORKERS, **NOTIFICATIONS, **SITE}
MD5: Final = [0] * 16
_SPEC: Final = {
    "group_name": "{group}",
    "tags": [],
    "labels": [],
    "timeout": "1m",
    "priority": 0,
    "task_spec": {"args": ["true"]},
}
_RESOURCE: Final = {"worker_id": "{worker}", "resource_id": "r", "type": "model"}
_OWN_SPEC: Final = {**_SPEC, "group_name": "{own.group}"}
_SUITE: Final = {"group_name": "{group}", "worker_schedule": {"worker_count": 1}}
_QUERY: Final = {"group_name": "{group}", "count": False}
_ARTIFACT: Final = {"content_type": "result", "content_length": 1}


@dataclass(frozen=True)
class Row:
    """`is_list`: leaves out what the caller may not see, instead of refusing the whole."""

    method: str
    route: str
    target: str
    body: Any = None
    is_list: bool = False
    # Refused to everybody for a reason of its own: a wrong secret, somebody else's name.
    barred: int = 0
    # Lets members in and has nothing to tell them in this world: nothing is uploaded or assigned.
    silent: bool = False

    @property
    def key(self) -> tuple[str, str]:
        return self.method, self.route

    @property
    def need(self) -> Need:
        return NEEDS[self.key]

    def names(self, member: str) -> bool:
        return "{" + member + "}" in f"{self.target}{self.body}"

    @property
    def names_something(self) -> bool:
        members = ("group", "user", "suite", "task", "manager", "worker", "attempt")
        return any(self.names(member) for member in members)


def rows() -> Iterator[Row]:
    yield from _accounts()
    yield from _suites()
    yield from _managers()
    yield from _tasks()
    yield from _files()
    yield from _worker_side()
    yield from _workers()
    yield from _webhooks()
    yield Row("GET", "metrics", "/metrics")
    for name, target in (
        ("health", "/health"), ("healthz", "/healthz"), ("readyz", "/readyz"),
        ("schema", "/api/schema"), ("docs", "/api/docs"), ("landing", "/"),
    ):  # fmt: skip
        yield Row("GET", name, target)


def _webhooks() -> Iterator[Row]:
    """No group of this world has a webhook: whoever is let in finds none."""
    hooks = "/groups/{group}/webhooks"
    one = f"{hooks}/00000000-0000-4000-8000-000000000000"
    yield Row("GET", "webhooks", hooks)
    yield Row("POST", "webhooks", hooks, {})
    yield Row("GET", "webhook", one, barred=404)
    yield Row("PATCH", "webhook", one, {}, barred=404)
    yield Row("DELETE", "webhook", one, barred=404)
    yield Row("POST", "webhook-secret", f"{one}/secret", barred=404)
    yield Row("POST", "webhook-ping", f"{one}/ping", barred=404)
    yield Row("GET", "webhook-deliveries", f"{one}/deliveries", barred=404)
    again = f"{one}/deliveries/00000000-0000-4000-8000-000000000001/redeliver"
    yield Row("POST", "webhook-redeliver", again, barred=404)


def _accounts() -> Iterator[Row]:
    yield Row("POST", "login", "/login", {})
    yield Row("GET", "auth", "/auth")
    yield Row("GET", "redis", "/redis")
    yield Row("GET", "user-groups", "/users/groups")
    passwords = {"old_md5_password": [1] * 16, "new_md5_password": MD5}
    yield Row("POST", "user-password", "/users/{user}/password", passwords, barred=401)
    yield Row("POST", "admin-users", "/admin/users", {})
    user = "/admin/users/{user}"
    yield Row("DELETE", "admin-user", user)
    yield Row("POST", "admin-user-state", f"{user}/state", {"state": "Active"})
    yield Row("POST", "admin-user-password", f"{user}/password", {"new_md5_password": MD5})
    yield Row("POST", "admin-user-group-quota", f"{user}/group-quota", {"group_quota": "9"})
    quota = {"storage_quota": "16GB"}
    yield Row("POST", "admin-group-storage-quota", "/admin/groups/{group}/storage-quota", quota)
    ceiling = {"priority_ceiling": None}
    target = "/admin/groups/{group}/priority-ceiling"
    yield Row("POST", "admin-group-priority-ceiling", target, ceiling)
    yield Row("POST", "admin-shutdown", "/admin/shutdown", {"secret": "wrong"}, barred=403)
    yield Row("POST", "groups", "/groups", {"group_name": ""})
    yield Row("GET", "group", "/groups/{group}")
    limits = {"mem_pct": None, "disk_pct": None}
    yield Row("PUT", "group-drain-limits", "/groups/{group}/drain-limits", limits)
    yield Row("PUT", "group-users", "/groups/{group}/users", {"relations": {"eve2": "Read"}})
    yield Row("DELETE", "group-users", "/groups/{group}/users?users=eve2")
    removed = {"users": ["eve2"]}
    yield Row("POST", "group-users-remove", "/groups/{group}/users/remove", removed)


def _suites() -> Iterator[Row]:
    yield Row("POST", "suites", "/suites", _SUITE)
    yield Row("GET", "suites", "/suites?group_name={group}", is_list=True)
    yield Row("POST", "suites-query", "/suites/query", {"group_name": "{group}"}, is_list=True)
    one = "/suites/{suite}"
    yield Row("GET", "suite", one)
    yield Row("PATCH", "suite", one, {"name": "new"})
    yield Row("DELETE", "suite", one)
    yield Row("POST", "suite-cancel", f"{one}/cancel", {})
    for verb in ("close", "reopen", "pause", "resume"):
        yield Row("POST", f"suite-{verb}", f"{one}/{verb}")
    yield Row("POST", "suite-rerun", f"{one}/rerun", {})
    yield Row("PUT", "suite-scale", f"{one}/scale", {"max_running": 3})
    yield Row("GET", "suite-events", f"{one}/events")
    yield Row("GET", "suite-explain", f"{one}/explain")
    yield Row("GET", "task-explain", "/tasks/{task}/explain")
    named = {"manager_uuids": ["{own.manager}"]}
    yield Row("POST", "suite-managers", f"{one}/managers", named)
    yield Row("DELETE", "suite-managers", f"{one}/managers", named)
    yield Row("POST", "suite-managers-refresh", f"{one}/managers/refresh")
    named = {"manager_uuids": ["{manager}"]}
    yield Row("POST", "suite-managers", "/suites/{own.suite}/managers", named)
    yield Row(
        "DELETE", "suite-managers", "/suites/{own.suite}/managers", named, is_list=True, silent=True
    )


def _managers() -> Iterator[Row]:
    yield Row("POST", "managers", "/managers", {"tags": 1})
    yield Row("GET", "managers", "/managers?group_name={group}", is_list=True)
    beat = {"state": "Idle", "metrics": {}}
    yield Row("POST", "manager-heartbeat", "/managers/heartbeat", beat)
    one = "/managers/{manager}"
    yield Row("GET", "manager", one)
    yield Row("GET", "manager-metrics", f"{one}/metrics?window=1h")
    yield Row("PUT", "manager-tags", f"{one}/tags", {"tags": ["a"]})
    yield Row("PUT", "manager-labels", f"{one}/labels", {"labels": ["a"]})
    yield Row("PUT", "manager-groups", f"{one}/groups", {"relations": {"ann": "Read"}})
    yield Row("DELETE", "manager-groups", f"{one}/groups?groups=bob")
    for group in ("{group}", "{own.group}"):
        yield Row("POST", "manager-consent", f"{one}/groups/{group}/consent", {"accept": True})
    yield Row("POST", "manager-shutdown", f"{one}/shutdown", {"op": "graceful"})
    for verb in ("drain", "undrain", "quarantine", "release", "revoke"):
        yield Row("POST", f"manager-{verb}", f"{one}/{verb}", {})
    yield Row("POST", "manager-refresh-token", f"{one}/refresh-token", {})


def _tasks() -> Iterator[Row]:
    yield Row("POST", "tasks", "/tasks", _SPEC)
    yield Row("POST", "tasks", "/tasks", {**_OWN_SPEC, "suite_uuid": "{suite}"})
    after = {**_OWN_SPEC, "depends_on": [{"task": "{task}"}]}
    yield Row("POST", "tasks", "/tasks", after)
    needs = {**_OWN_SPEC, "resource_refs": [_RESOURCE]}
    yield Row("POST", "tasks", "/tasks", needs)
    yield Row("POST", "tasks-submit", "/tasks/submit", {"tasks": [_SPEC]}, is_list=True)
    yield Row("POST", "tasks-array", "/tasks/array", {"template": _SPEC, "rows": [{}]})
    yield Row("POST", "tasks-query", "/tasks/query", _QUERY)
    by_suite = {"group_name": "{own.group}", "suite_uuid": "{suite}", "count": False}
    yield Row("POST", "tasks-query", "/tasks/query", by_suite, is_list=True)
    by_runner = {"group_name": "{own.group}", "reporter_uuid": "{worker}", "count": False}
    yield Row("POST", "tasks-query", "/tasks/query", by_runner, is_list=True, silent=True)
    yield Row("POST", "tasks-cancel", "/tasks/cancel", {"group_name": "{group}"})
    listed = {"uuids": ["{task}"]}
    yield Row("POST", "tasks-cancel-list", "/tasks/cancel/list", listed, is_list=True)
    one = "/tasks/{task}"
    yield Row("GET", "task", one)
    yield Row("PUT", "task-labels", f"{one}/labels", {"labels": ["a"]})
    yield Row("GET", "task-logs", f"{one}/logs")
    yield Row("GET", "task-events", f"{one}/events")
    yield Row("DELETE", "task", one)
    yield Row("GET", "events", "/events")


def _files() -> Iterator[Row]:
    content = {"group_name": "{group}", "content_type": "result"}
    yield Row("POST", "artifacts-download", "/tasks/download/artifacts", content)
    yield Row("POST", "artifacts-delete", "/tasks/delete/artifacts", content)
    listed = {"uuids": ["{task}"], "content_type": "result"}
    download, delete = "/tasks/download/artifacts/list", "/tasks/delete/artifacts/list"
    yield Row("POST", "artifacts-download-list", download, listed, is_list=True, silent=True)
    yield Row("POST", "artifacts-delete-list", delete, listed, is_list=True, silent=True)
    yield Row("POST", "task-artifacts", "/tasks/{task}/artifacts", _ARTIFACT)
    yield Row("DELETE", "task-artifact", "/tasks/{task}/artifacts/result")
    target = "/tasks/{task}/download/artifacts/result"
    yield Row("GET", "task-artifact-download", target)
    target = "/admin/tasks/{task}/artifacts/result"
    yield Row("DELETE", "admin-task-artifact", target)
    at = "/groups/{group}/attachments"
    yield Row("POST", "group-attachments", at, {"key": "n.bin", "content_length": 1})
    yield Row("POST", "group-attachments-query", f"{at}/query", {"count": False})
    yield Row("GET", "group-attachments-query", f"{at}/query")
    yield Row("DELETE", "group-attachments-query", f"{at}/query")
    yield Row("GET", "group-attachment", f"{at}/data.bin")
    got = "/groups/{group}/download/attachments"
    yield Row("POST", "group-attachments-download", got, {})
    yield Row("POST", "group-attachments-download-list", f"{got}/list", {"keys": ["data.bin"]})
    yield Row("GET", "group-attachments-download-list", f"{got}/list")
    yield Row("GET", "group-attachment-download", f"{got}/data.bin")
    gone = "/groups/{group}/delete/attachments"
    yield Row("POST", "group-attachments-delete", gone, {"key": "none"})
    yield Row("POST", "group-attachments-delete-list", f"{gone}/list", {"keys": ["none"]})
    yield Row("DELETE", "group-attachment", f"{at}/data.bin")
    yield Row("DELETE", "admin-group-attachment", "/admin/groups/{group}/attachments/data.bin")


def _worker_side() -> Iterator[Row]:
    yield Row("GET", "worker-duty", "/workers/tasks")
    yield Row("POST", "worker-duty", "/workers/tasks", {"id": "{attempt}", "op": "Finish"})
    one = "/workers/tasks/{task}"
    yield Row("GET", "worker-task", one)
    yield Row("GET", "worker-artifact", f"{one}/artifacts/result")
    yield Row("GET", "worker-attachment", f"{one}/attachments/data.bin")
    yield Row("POST", "worker-logs", f"{one}/logs?stream=stdout&offset=0", {})
    yield Row("POST", "worker-heartbeat", "/workers/heartbeat", {})
    yield Row("POST", "worker-beat", "/api/workers/heartbeat", {})
    yield Row("DELETE", "workers", "/workers")
    yield Row("GET", "manager-watched-task", "/managers/tasks/{task}", silent=True)


def _workers() -> Iterator[Row]:
    yield Row("POST", "workers", "/workers", {})
    yield Row("POST", "workers-query", "/workers/query", _QUERY)
    yield Row("GET", "workers-active", "/api/workers/active?group_name={group}")
    off = {"op": "graceful"}
    yield Row("POST", "workers-shutdown", "/workers/shutdown", {"group_name": "{group}", **off})
    listed = {"uuids": ["{worker}"], **off}
    yield Row("POST", "workers-shutdown-list", "/workers/shutdown/list", listed, is_list=True)
    one = "/workers/{worker}"
    yield Row("GET", "worker", one)
    yield Row("PUT", "worker-tags", f"{one}/tags", {"tags": ["a"]})
    yield Row("PUT", "worker-labels", f"{one}/labels", {"labels": ["a"]})
    yield Row("PUT", "worker-groups", f"{one}/groups", {"relations": {"ann": "Read"}})
    yield Row("DELETE", "worker-groups", f"{one}/groups?groups=bob")
    yield Row("DELETE", "worker-groups-remove", f"{one}/groups/remove", {"groups": ["bob"]})
    for group in ("{group}", "{own.group}"):
        yield Row("POST", "worker-consent", f"{one}/groups/{group}/consent", {"accept": True})
    yield Row("POST", "worker-token", f"{one}/token", {})
    yield Row("GET", "worker-resources", f"{one}/resources")
    yield Row("GET", "worker-packages", f"{one}/packages")
    package = {"name": "p", "version": "1", "attachment_key": "k"}
    yield Row("POST", "worker-packages", f"{one}/packages", package)
    yield Row("DELETE", "worker-package", f"{one}/packages/p")
    yield Row("DELETE", "worker", f"{one}?op=graceful")
    yield Row("DELETE", "admin-worker", "/admin/workers/{worker}?op=graceful")
    yield Row("PUT", "task", "/tasks/{task}", {"priority": 1})
