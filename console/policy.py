"""Who may open what: the console's part of the one policy table (accounts.policy).

By session only. A user with the admin flag is let in wherever a role is named here, as in the admin
site, except to what is marked: there the role counts whoever asks.
"""

from typing import Final

from accounts.policy import Need, Policy

# (method, name of the URL pattern)
POLICY: Final[Policy] = {
    ("GET", "console-login"): Need.NOBODY,
    ("POST", "console-login"): Need.NOBODY,
    ("POST", "console-logout"): Need.NOBODY,
    ("GET", "console-overview"): Need.USER,  # numbers of the caller's groups, as all lists
    ("GET", "console-overview-live"): Need.USER,
    ("GET", "console-find"): Need.USER,
    ("GET", "console-suites"): Need.USER,
    ("GET", "console-suites-live"): Need.USER,
    ("GET", "console-suite"): Need.GROUP_READ,
    ("GET", "console-suite-live"): Need.GROUP_READ,
    ("GET", "console-suite-explain"): Need.GROUP_READ,
    ("POST", "console-suite-act"): Need.GROUP_WRITE,
    ("POST", "console-suite-rerun"): Need.GROUP_WRITE,
    ("GET", "console-tasks"): Need.USER,
    ("GET", "console-tasks-live"): Need.USER,
    ("GET", "console-task"): Need.GROUP_READ,
    ("GET", "console-task-live"): Need.GROUP_READ,
    ("GET", "console-task-explain"): Need.GROUP_READ,
    ("POST", "console-task-cancel"): Need.GROUP_WRITE,
    ("POST", "console-task-rerun"): Need.GROUP_WRITE,
    ("GET", "console-failures"): Need.USER,
    ("GET", "console-failures-live"): Need.USER,
    ("GET", "console-managers"): Need.USER,
    ("GET", "console-managers-live"): Need.USER,
    ("GET", "console-manager"): Need.RUNNER_READ,
    ("GET", "console-manager-live"): Need.RUNNER_READ,
    ("GET", "console-series"): Need.RUNNER_READ,
    ("POST", "console-manager-act"): Need.RUNNER_ADMIN,
    ("POST", "console-grant"): Need.RUNNER_ADMIN,  # and only to groups the caller belongs to
    ("POST", "console-ungrant"): Need.RUNNER_ADMIN,
    ("GET", "console-access"): Need.USER,
    ("POST", "console-consent"): Need.GROUP_ADMIN,
}

# The admin flag alone is not enough: these act in a group's name.
ROLE_COUNTS: Final = frozenset({"console-suite-rerun", "console-task-rerun", "console-consent"})
