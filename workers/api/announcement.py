"""Which worker is talking: one of ours, or one that speaks the existing API and nothing more.

Ours announces itself with `Mitosis-Worker: 1`, beats every 30 s and understands answers to beats;
an existing one beats every 300 s and must be answered exactly as it always was.
"""

from typing import Final

from django.conf import settings
from django.http import HttpRequest

HEADER: Final = "Mitosis-Worker"
# What our worker sends as User-Agent; existing workers send none.
USER_AGENT: Final = "mitosis-worker"


def is_ours(request: HttpRequest) -> bool:
    """Whether the caller understands what the existing API does not have."""
    return request.headers.get(HEADER) == "1"


def lease_ttl_s(request: HttpRequest) -> float:
    """How long this caller counts as alive after the request.

    Our worker registers before it announces itself, so its name counts here too: killed before
    its first beat, it would otherwise keep a task for the ten minutes of an existing one.
    """
    is_known = is_ours(request) or request.headers.get("User-Agent") == USER_AGENT
    policy = settings.MITOSIS
    return float(policy.lease_ttl_s if is_known else policy.existing_worker_lease_s)
