"""Who may call what: the suites part of the one policy table (accounts.policy)."""

from typing import Final

from accounts.policy import Need, Policy

# (method, name of the URL pattern)
POLICY: Final[Policy] = {
    ("POST", "suites"): Need.GROUP_WRITE,
    ("GET", "suites"): Need.USER,  # shows suites of the caller's groups
    ("POST", "suites-query"): Need.USER,  # as above
    ("GET", "suite"): Need.GROUP_READ,
    ("PATCH", "suite"): Need.GROUP_WRITE,
    ("DELETE", "suite"): Need.GROUP_WRITE,
    ("POST", "suite-cancel"): Need.GROUP_WRITE,
    ("POST", "suite-close"): Need.GROUP_WRITE,
    ("POST", "suite-reopen"): Need.GROUP_WRITE,
    ("POST", "suite-pause"): Need.GROUP_WRITE,
    ("POST", "suite-resume"): Need.GROUP_WRITE,
    ("POST", "suite-rerun"): Need.GROUP_WRITE,
    ("PUT", "suite-scale"): Need.GROUP_WRITE,
    ("GET", "suite-events"): Need.GROUP_READ,
    ("GET", "suite-explain"): Need.GROUP_READ,
    ("GET", "task-explain"): Need.GROUP_READ,
    ("POST", "suite-managers"): Need.GROUP_WRITE,
    ("DELETE", "suite-managers"): Need.GROUP_WRITE,
    ("POST", "suite-managers-refresh"): Need.GROUP_WRITE,
}
