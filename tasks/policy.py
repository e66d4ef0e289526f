"""Who may call what: the tasks part of the one policy table.

For routes that take many tasks or keys the need holds for each one: those the caller may not touch
are reported as failed or left out, exactly like absent ones.
"""

from typing import Final

from accounts.policy import Need, Policy

POLICY: Final[Policy] = {
    ("GET", "manager-watched-task"): Need.MANAGER,  # of groups whose tasks it holds
    ("POST", "tasks"): Need.GROUP_WRITE,
    ("POST", "tasks-submit"): Need.GROUP_WRITE,
    ("POST", "tasks-array"): Need.GROUP_WRITE,
    ("POST", "tasks-query"): Need.GROUP_READ,
    ("POST", "tasks-cancel"): Need.GROUP_WRITE,
    ("POST", "tasks-cancel-list"): Need.GROUP_WRITE,
    ("GET", "task"): Need.GROUP_READ,
    ("PUT", "task"): Need.GROUP_WRITE,
    ("DELETE", "task"): Need.GROUP_WRITE,
    ("PUT", "task-labels"): Need.GROUP_WRITE,
    ("GET", "task-logs"): Need.GROUP_READ,
    ("GET", "task-events"): Need.GROUP_READ,
    ("GET", "events"): Need.USER,  # and only what happened in the caller's groups
    ("POST", "artifacts-download"): Need.GROUP_READ,
    ("POST", "artifacts-download-list"): Need.GROUP_READ,
    ("POST", "artifacts-delete"): Need.GROUP_WRITE,
    ("POST", "artifacts-delete-list"): Need.GROUP_WRITE,
    ("POST", "task-artifacts"): Need.GROUP_WRITE,
    ("DELETE", "task-artifact"): Need.GROUP_WRITE,
    ("GET", "task-artifact-download"): Need.GROUP_READ,
    ("DELETE", "admin-task-artifact"): Need.ADMIN,
    ("POST", "group-attachments"): Need.GROUP_WRITE,
    ("POST", "group-attachments-query"): Need.GROUP_READ,
    ("GET", "group-attachments-query"): Need.GROUP_READ,  # a file of that name
    ("DELETE", "group-attachments-query"): Need.GROUP_WRITE,  # a file of that name
    ("GET", "group-attachment"): Need.GROUP_READ,
    ("DELETE", "group-attachment"): Need.GROUP_WRITE,
    ("POST", "group-attachments-download"): Need.GROUP_READ,
    ("POST", "group-attachments-download-list"): Need.GROUP_READ,
    ("GET", "group-attachments-download-list"): Need.GROUP_READ,  # a file of that name
    ("GET", "group-attachment-download"): Need.GROUP_READ,
    ("POST", "group-attachments-delete"): Need.GROUP_WRITE,
    ("POST", "group-attachments-delete-list"): Need.GROUP_WRITE,
    ("DELETE", "admin-group-attachment"): Need.ADMIN,
}
