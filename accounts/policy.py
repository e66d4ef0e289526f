"""Who may call what: the accounts part of the one policy table.

A test compares it with the URL configuration: a route without an entry fails. Other apps keep
their part in a module of the same name, with the same `Need`.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Need(Enum):
    """The least a caller must be. Group needs are about the group of the object named."""

    NOBODY = "no credentials at all"
    USER = "an active user"
    ADMIN = "a user with the admin flag"
    GROUP_READ = "a member of the group"
    GROUP_WRITE = "Write or more in the group"
    GROUP_ADMIN = "Admin in the group"
    RUNNER_READ = "a member of a group with any role on the runner"
    RUNNER_WRITE = "Write or more in a group that has Write or more on the runner"
    RUNNER_ADMIN = "Admin in a group that has Admin on the runner"
    WORKER = "the token of an independent worker"
    ANY_WORKER = "the token of an independent or direct worker"
    MANAGER = "the token of a node manager"
    DIRECT = "the token of a direct worker"


Policy = Mapping[tuple[str, str], Need]

# (method, name of the URL pattern)
POLICY: Final[Policy] = {
    ("POST", "login"): Need.NOBODY,
    ("GET", "auth"): Need.USER,
    ("GET", "redis"): Need.USER,
    ("POST", "user-password"): Need.USER,  # and only one's own
    ("GET", "user-groups"): Need.USER,
    ("POST", "admin-users"): Need.ADMIN,
    ("DELETE", "admin-user"): Need.ADMIN,
    ("POST", "admin-user-state"): Need.ADMIN,
    ("POST", "admin-user-password"): Need.ADMIN,
    ("POST", "admin-user-group-quota"): Need.ADMIN,
    ("POST", "admin-group-storage-quota"): Need.ADMIN,
    ("POST", "admin-group-priority-ceiling"): Need.ADMIN,
    ("POST", "admin-shutdown"): Need.ADMIN,
    ("POST", "groups"): Need.USER,
    ("GET", "group"): Need.GROUP_READ,
    ("PUT", "group-drain-limits"): Need.GROUP_ADMIN,
    ("PUT", "group-users"): Need.GROUP_ADMIN,
    ("DELETE", "group-users"): Need.GROUP_ADMIN,
    ("POST", "group-users-remove"): Need.GROUP_ADMIN,
}
