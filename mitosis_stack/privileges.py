"""The unprivileged user that runs PostgreSQL when the stack is started as root.

PostgreSQL refuses to run as root, and rightly so. An ordinary user needs none of this.
"""

import os
import pwd
from dataclasses import dataclass

from mitosis_stack.errors import StackError

# A dedicated user first; `nobody` exists everywhere and owns nothing of ours but the cluster.
CANDIDATES = ("mitosis", "postgres", "nobody")


@dataclass(frozen=True)
class ServiceUser:
    """Whom a child becomes before it runs."""

    name: str
    uid: int
    gid: int


def find_service_user(preferred: str | None = None) -> ServiceUser | None:
    """The user to drop to, or None when this process is not root."""
    if os.geteuid() != 0:
        return None
    for name in (preferred,) if preferred else CANDIDATES:
        try:
            entry = pwd.getpwnam(name)
        except KeyError:
            continue
        if entry.pw_uid != 0:
            return ServiceUser(name, entry.pw_uid, entry.pw_gid)
    wanted = preferred or ", ".join(CANDIDATES)
    msg = f"PostgreSQL cannot run as root and no ordinary user was found (tried {wanted})."
    raise StackError(msg)
