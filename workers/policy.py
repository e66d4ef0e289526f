"""Who may call the routes of workers: this app's part of the one policy table.

Worker routes need the worker's own token; which tasks it may speak about is decided by the attempt
it holds, inside the statements.
"""

from typing import Final

from accounts.policy import Need, Policy

# (method, name of the URL pattern)
POLICY: Final[Policy] = {
    ("POST", "workers"): Need.USER,  # a group counts once one of its Admins accepted
    ("DELETE", "workers"): Need.ANY_WORKER,
    ("GET", "workers-active"): Need.GROUP_READ,
    ("POST", "workers-query"): Need.GROUP_READ,  # Admin for those who are not accepted
    ("POST", "workers-shutdown"): Need.GROUP_ADMIN,  # and the group is Admin of the worker
    ("POST", "workers-shutdown-list"): Need.RUNNER_ADMIN,
    ("GET", "worker"): Need.RUNNER_READ,
    ("DELETE", "worker"): Need.RUNNER_ADMIN,
    ("PUT", "worker-tags"): Need.RUNNER_WRITE,
    ("PUT", "worker-labels"): Need.RUNNER_WRITE,
    ("PUT", "worker-groups"): Need.RUNNER_ADMIN,
    ("DELETE", "worker-groups"): Need.RUNNER_ADMIN,
    ("DELETE", "worker-groups-remove"): Need.RUNNER_ADMIN,
    ("POST", "worker-consent"): Need.GROUP_ADMIN,
    ("POST", "worker-token"): Need.RUNNER_ADMIN,
    ("GET", "worker-resources"): Need.RUNNER_READ,
    ("GET", "worker-packages"): Need.RUNNER_READ,
    ("POST", "worker-packages"): Need.RUNNER_ADMIN,
    ("DELETE", "worker-package"): Need.RUNNER_ADMIN,
    ("DELETE", "admin-worker"): Need.ADMIN,
    ("GET", "worker-duty"): Need.WORKER,
    ("POST", "worker-duty"): Need.ANY_WORKER,
    ("GET", "worker-task"): Need.ANY_WORKER,
    ("GET", "worker-artifact"): Need.ANY_WORKER,
    ("GET", "worker-attachment"): Need.ANY_WORKER,
    ("POST", "worker-logs"): Need.ANY_WORKER,
    ("POST", "worker-heartbeat"): Need.WORKER,
    ("POST", "worker-beat"): Need.WORKER,
}
