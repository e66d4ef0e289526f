"""Who may call what: the webhooks' part of the one policy table (accounts.policy)."""

from typing import Final

from accounts.policy import Need, Policy

# (method, name of the URL pattern)
POLICY: Final[Policy] = {
    ("GET", "webhooks"): Need.GROUP_ADMIN,
    ("POST", "webhooks"): Need.GROUP_ADMIN,
    ("GET", "webhook"): Need.GROUP_ADMIN,
    ("PATCH", "webhook"): Need.GROUP_ADMIN,
    ("DELETE", "webhook"): Need.GROUP_ADMIN,
    ("POST", "webhook-secret"): Need.GROUP_ADMIN,
    ("POST", "webhook-ping"): Need.GROUP_ADMIN,
    ("GET", "webhook-deliveries"): Need.GROUP_ADMIN,
    ("POST", "webhook-redeliver"): Need.GROUP_ADMIN,
}
