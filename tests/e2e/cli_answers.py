"""What `-o json` of every command promises: the members scripts may rely on, and their types.

A contract, so written by hand: members may be added, never renamed or removed.
"""

from typing import Any, Final

import jsonschema

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string"}
TEXT_OR_NONE: Final[Schema] = {"type": ["string", "null"]}
UUID: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"}
UUID_OR_NONE: Final[Schema] = {"anyOf": [UUID, {"type": "null"}]}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
NUMBER: Final[Schema] = {"type": "number"}
FLAG: Final[Schema] = {"type": "boolean"}
TABLE: Final[Schema] = {"type": "object"}
TABLE_OR_NONE: Final[Schema] = {"type": ["object", "null"]}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
UUIDS: Final[Schema] = {"type": "array", "items": UUID}
ROLES: Final[Schema] = {"type": "object", "additionalProperties": TEXT}
CODE: Final[Schema] = {"type": ["integer", "null"]}


def members(**found: Schema) -> Schema:
    """All of them are always there."""
    return {"type": "object", "required": sorted(found), "properties": found}


def several(item: Schema) -> Schema:
    return {"type": "array", "items": item}


def more(base: Schema, **found: Schema) -> Schema:
    return members(**{**base["properties"], **found})


SUITE: Final = members(
    uuid=UUID, name=TEXT_OR_NONE, group_name=TEXT, state={"enum": ["Open", "Closed", "Complete",
    "Cancelled"]}, creator_username=TEXT, tags=TEXTS, labels=TEXTS, priority={"type": "integer"},
    total_tasks=COUNT, pending_tasks=COUNT, succeeded_tasks=COUNT, failed_tasks=COUNT,
    cancelled_tasks=COUNT, is_paused=FLAG, blocked_reason=TEXT_OR_NONE, created_at=TEXT,
    updated_at=TEXT, completed_at=TEXT_OR_NONE,
)  # fmt: skip
SUITE_DETAIL: Final = more(
    SUITE, description=TEXT_OR_NONE, worker_schedule=TABLE, env_preparation=TABLE_OR_NONE,
    env_cleanup=TABLE_OR_NONE, limits=TABLE_OR_NONE, retry=TABLE_OR_NONE, settle_seconds=COUNT,
    linger_seconds=COUNT, auto_match=FLAG, on_partition=TEXT, assigned_managers=UUIDS,
    active_managers=UUIDS, cancel_reason=TEXT_OR_NONE,
)  # fmt: skip
SUITE_STATE: Final = members(uuid=UUID, suite_state=TEXT, is_paused=FLAG, changed=FLAG)
TASK: Final = members(
    uuid=UUID, task_id=COUNT, group_name=TEXT, state=TEXT, outcome=TEXT_OR_NONE,
    reason=TEXT_OR_NONE, spec=members(args=TEXTS), result=TABLE_OR_NONE, suite_uuid=UUID_OR_NONE,
    rerun_of=UUID_OR_NONE, attempt=COUNT, failures=COUNT, cancelling=FLAG, tags=TEXTS, labels=TEXTS,
    timeout=COUNT, priority={"type": "integer"}, created_at=TEXT, updated_at=TEXT,
)  # fmt: skip
ARTIFACT: Final = members(content_type=TEXT, size=COUNT, created_at=TEXT)
OBSTACLE: Final = members(code=TEXT, text=TEXT, fix=TEXT)
VERDICT: Final = members(uuid=UUID, kind=TEXT, verdict=TEXT, obstacles=several(OBSTACLE))
EXPLANATION: Final = members(
    can_run=FLAG, summary={"type": "string", "minLength": 1}, obstacles=several(OBSTACLE),
    managers=several(VERDICT), workers=several(VERDICT), runner_count=COUNT, smallest_change=TEXTS,
)  # fmt: skip
RERUN_TASK: Final = members(uuid=UUID, task_id=COUNT, rerun_of=UUID)
ARRAY: Final = members(
    first_task_id=COUNT, last_task_id=COUNT, count=COUNT, uuids=UUIDS, suite_uuid=UUID_OR_NONE
)
RUN_WAITED: Final = members(suite_uuid=UUID, count=COUNT, outcomes=TABLE, uuids=UUIDS)
MANAGER: Final = members(
    uuid=UUID, state=TEXT, desired_state=TEXT, connection=TEXT, creator_username=TEXT, tags=TEXTS,
    labels=TEXTS, last_heartbeat=TEXT_OR_NONE, assigned_suite_uuid=UUID_OR_NONE, created_at=TEXT,
)  # fmt: skip
WORKER: Final = members(worker_id=UUID, kind=TEXT, state=TEXT, tags=TEXTS, labels=TEXTS)
WISH: Final = members(uuid=UUID, state=TEXT)
GROUP: Final = members(
    group_name=TEXT, creator_username=TEXT, state=TEXT, task_count=COUNT, storage_quota=COUNT,
    storage_used=COUNT, worker_count=COUNT, users_in_group={"type": ["object", "null"]},
)  # fmt: skip
ROLE_ROW: Final = members(group=TEXT, role={"enum": ["Read", "Write", "Admin"]})
ATTACHMENT: Final = members(
    key=TEXT, size=COUNT, created_at=TEXT, updated_at=TEXT, sha256=TEXT_OR_NONE
)
SAVED: Final = members(path=TEXT, size=COUNT)
DONE: Final = members(ok={"const": True})
CONTEXT: Final = members(name=TEXT, current=FLAG, coordinator=TEXT)
CHECK: Final = members(name=TEXT, level={"enum": ["ok", "warning", "error"]}, found=TEXT, fix=TEXT)
ERROR: Final = members(error=members(message=TEXT, code=TEXT, exit_status=COUNT))

ANSWERS: Final[dict[str, Schema]] = {
    "login": members(context=TEXT, coordinator=TEXT, user=TEXT, token_store=TEXT),
    "logout": DONE,
    "whoami": members(user=TEXT, coordinator=TEXT, group=TEXT),
    "contexts list": several(CONTEXT),
    "contexts use": DONE,
    "contexts remove": DONE,
    "run": {"anyOf": [RUN_WAITED, ARRAY]},
    "explain": EXPLANATION,
    "doctor": several(CHECK),
    "status": members(running=FLAG, ready=FLAG, stack=TABLE_OR_NONE),
    "suites create": members(uuid=UUID, state=TEXT, assigned_managers=UUIDS),
    "suites list": several(SUITE),
    "suites show": SUITE_DETAIL,
    "suites wait": SUITE_DETAIL,
    "suites close": SUITE_STATE,
    "suites reopen": SUITE_STATE,
    "suites pause": SUITE_STATE,
    "suites resume": SUITE_STATE,
    "suites scale": members(uuid=UUID, worker_schedule=TABLE),
    "suites cancel": members(
        cancelled_task_count=COUNT, cancelling_task_count=COUNT, suite_state=TEXT
    ),
    "suites rerun": members(count=COUNT, tasks=several(RERUN_TASK)),
    "suites explain": EXPLANATION,
    "suites export": members(suite=SUITE_DETAIL, tasks=several(more(TASK, exit_code=CODE))),
    "tasks submit": members(uuid=UUID, task_id=COUNT, suite_uuid=UUID_OR_NONE),
    "tasks array": ARRAY,
    "tasks list": several(TASK),
    "tasks show": members(info=TASK, artifacts=several(ARTIFACT)),
    "tasks cancel": members(cancelled_count=COUNT, cancelling_count=COUNT, failed_uuids=UUIDS),
    "tasks rerun": several(RERUN_TASK),
    "tasks explain": EXPLANATION,
    "tasks artifacts": several(ARTIFACT),
    "artifacts list": several(ARTIFACT),
    "artifacts download": SAVED,
    "artifacts delete": DONE,
    "attachments list": several(ATTACHMENT),
    "attachments show": ATTACHMENT,
    "attachments upload": members(keys=TEXTS, size=COUNT),
    "attachments download": SAVED,
    "attachments delete": DONE,
    "groups list": several(ROLE_ROW),
    "groups show": GROUP,
    "groups create": members(group_name=TEXT),
    "groups add": members(relations=ROLES),
    "groups remove": DONE,
    "users groups": several(ROLE_ROW),
    "users password": DONE,
    "managers list": several(MANAGER),
    "managers show": more(MANAGER, groups=ROLES, pending_groups=ROLES, reason=TEXT),
    "managers metrics": members(manager_id=UUID, at=TEXT_OR_NONE, latest=TABLE_OR_NONE),
    "managers drain": WISH,
    "managers undrain": WISH,
    "managers quarantine": WISH,
    "managers release": WISH,
    "managers shutdown": WISH,
    "managers grant": members(consents=ROLES),
    "managers withdraw": DONE,
    "managers consent": members(consent=TEXT),
    "workers list": several(WORKER),
    "workers show": more(WORKER, groups=ROLES),
    "workers shutdown": DONE,
    "admin create-user": members(username=TEXT, admin=FLAG),
    "admin set-password": DONE,
    "admin lock-user": members(state=TEXT),
    "admin unlock-user": members(state=TEXT),
    "admin delete-user": members(state=TEXT),
    "admin group-quota": members(group_quota=COUNT),
    "admin storage-quota": members(storage_quota=COUNT),
    "admin shutdown": DONE,
}
# These draw, stream or start things; their output is no JSON value.
WITHOUT_JSON: Final = frozenset({"allocate slurm", "up", "down", "top", "tasks logs"})


def check_answer(path: str, value: Any) -> None:
    """Raises jsonschema.ValidationError; KeyError for a command that promises nothing yet."""
    jsonschema.validate(value, ANSWERS[path])
