"""How browsers log into the console: Django's backend, with our throttle and the audit log."""

from typing import Any

from django.contrib.auth.backends import ModelBackend
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest
from typing_extensions import override

from accounts.actors import SYSTEM, anonymous_actor
from accounts.models import User
from accounts.services.audit import record
from accounts.throttle import login_throttle
from core.errors import Throttled


class ConsoleBackend(ModelBackend):
    """Refuses like a wrong password once the throttle bites; records every attempt."""

    @override
    def authenticate(
        self,
        request: HttpRequest | None,
        username: str | None = None,
        password: str | None = None,
        **kwargs: Any,
    ) -> User | None:
        if username is None or password is None or "\x00" in username:
            return None
        actor = SYSTEM if request is None else anonymous_actor(request)
        try:
            attempt = login_throttle().attempt(ip=actor.ip, username=username)
        except Throttled as error:
            record(actor=actor, action="console.login", target=username[:64], outcome="throttled")
            # Django's way to say "no, and ask no other backend".
            raise PermissionDenied from error
        user = super().authenticate(request, username=username, password=password)
        outcome = "wrong_credentials" if user is None else "ok"
        record(actor=actor, action="console.login", target=username[:64], outcome=outcome)
        if user is not None:
            attempt.succeeded()
        return user
