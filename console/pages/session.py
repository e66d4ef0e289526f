"""Logging in and out of the console. Any active user may; the throttle and the audit log are the
backend's (accounts.backends)."""

from typing import Any

from django.contrib.auth.views import LoginView, LogoutView
from django.http import HttpResponse
from django.urls import reverse
from typing_extensions import override


class ConsoleLogin(LoginView):
    template_name = "console/login.html"
    redirect_authenticated_user = True
    http_method_names = ["get", "head", "post"]  # noqa: RUF012 - as Django declares it

    @override
    def get_default_redirect_url(self) -> str:
        return reverse("console-overview")

    @override
    def render_to_response(self, context: dict[str, Any], **options: Any) -> HttpResponse:
        response = super().render_to_response(context, **options)
        response.headers["Cache-Control"] = "no-store"
        return response


class ConsoleLogout(LogoutView):
    http_method_names = ["post"]  # noqa: RUF012 - as Django declares it

    @override
    def get_default_redirect_url(self) -> str:
        return reverse("console-login")
