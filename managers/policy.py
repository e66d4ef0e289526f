"""Who may call what: the managers part of the one policy table (accounts.policy)."""

from typing import Final

from accounts.policy import Need, Policy

# (method, name of the URL pattern)
POLICY: Final[Policy] = {
    ("POST", "managers"): Need.USER,  # and only into groups the caller belongs to
    ("GET", "managers"): Need.USER,  # shows what the caller reaches
    ("POST", "manager-heartbeat"): Need.MANAGER,
    ("GET", "manager"): Need.RUNNER_READ,
    ("GET", "manager-metrics"): Need.RUNNER_READ,
    ("PUT", "manager-tags"): Need.RUNNER_ADMIN,
    ("PUT", "manager-labels"): Need.RUNNER_ADMIN,
    ("PUT", "manager-groups"): Need.RUNNER_ADMIN,
    ("DELETE", "manager-groups"): Need.RUNNER_ADMIN,
    ("POST", "manager-consent"): Need.GROUP_ADMIN,
    ("POST", "manager-shutdown"): Need.RUNNER_ADMIN,
    ("POST", "manager-drain"): Need.RUNNER_ADMIN,
    ("POST", "manager-undrain"): Need.RUNNER_ADMIN,
    ("POST", "manager-quarantine"): Need.RUNNER_ADMIN,
    ("POST", "manager-release"): Need.RUNNER_ADMIN,
    ("POST", "manager-revoke"): Need.RUNNER_ADMIN,
    ("POST", "manager-refresh-token"): Need.MANAGER,  # by access or by refresh token
}
