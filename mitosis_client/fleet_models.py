"""What the coordinator answers about hosts, workers, users and groups, as mitosis_client.models."""

from msgspec import field

from mitosis_client.models import Answer


class Manager(Answer, frozen=True):
    uuid: str
    state: str
    desired_state: str
    connection: str = ""
    creator_username: str = ""
    tags: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    last_heartbeat: str | None = None
    assigned_suite_uuid: str | None = None
    lease_expires_at: str | None = None
    created_at: str = ""
    updated_at: str = ""


class ManagerDetail(Manager, frozen=True):
    groups: dict[str, str] = field(default_factory=dict)
    pending_groups: dict[str, str] = field(default_factory=dict)
    reason: str = ""
    probe_after: str | None = None
    config_version: int = 0


class ManagerWish(Answer, frozen=True):
    desired_state: str = ""
    state: str = ""


class Consents(Answer, frozen=True):
    consents: dict[str, str] = field(default_factory=dict)
    consent: str = ""


class Worker(Answer, frozen=True):
    worker_id: str
    state: str
    kind: str = ""
    creator_username: str = ""
    tags: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)
    created_at: str = ""
    updated_at: str = ""
    last_heartbeat: str | None = None
    assigned_task_id: str | None = None


class WorkerDetail(Answer, frozen=True):
    info: Worker
    groups: dict[str, str] = field(default_factory=dict)
    pending_groups: dict[str, str] = field(default_factory=dict)


class Group(Answer, frozen=True):
    group_name: str
    creator_username: str
    state: str
    task_count: int = 0
    storage_quota: int = 0
    storage_used: int = 0
    worker_count: int = 0
    users_in_group: dict[str, str] | None = None
    created_at: str = ""
    updated_at: str = ""


class Roles(Answer, frozen=True):
    groups: dict[str, str]


class UserState(Answer, frozen=True):
    state: str


class Quota(Answer, frozen=True):
    group_quota: int | None = None
    storage_quota: int | None = None


class Health(Answer, frozen=True):
    status: str = ""
