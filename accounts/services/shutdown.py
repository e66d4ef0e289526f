"""Stopping the coordinator on an admin's request, guarded by a secret only the operator can read.

The secret is derived from Django's, which lives in the key directory (0600); it is never logged.
`python manage.py shutdown_secret` prints it.
"""

import os
import signal

from django.utils.crypto import constant_time_compare, salted_hmac

from accounts.actors import Actor
from accounts.services.audit import record
from core.errors import PermissionDenied


def shutdown_secret() -> str:
    return salted_hmac("mitosis.shutdown", "v1", algorithm="sha256").hexdigest()


def permit_shutdown(*, actor: Actor, secret: str) -> None:
    """Raises PermissionDenied unless the secret is right; both outcomes are recorded."""
    is_right = constant_time_compare(secret, shutdown_secret())
    record(actor=actor, action="shutdown", outcome="ok" if is_right else "wrong_secret")
    if not is_right:
        raise PermissionDenied


def stop_this_process() -> None:
    """What a supervisor would send: the server finishes open requests, then exits."""
    os.kill(os.getpid(), signal.SIGTERM)
