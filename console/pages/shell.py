"""What every page shares: who asks, the layout's facts, refusals as pages, forms that come back.

`page` is for reading, `deed` for forms. Both let in active users by session only: a token in a
header opens the API, not pages.
"""

from collections.abc import Callable, Mapping
from functools import wraps
from http import HTTPStatus
from typing import Any, Concatenate, Final, ParamSpec, cast

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from accounts.models import User
from accounts.request_rate import count_request
from core.errors import DomainError, NotFound

P = ParamSpec("P")
View = Callable[Concatenate[HttpRequest, User, P], HttpResponse]
Routed = Callable[Concatenate[HttpRequest, P], HttpResponse]

# (name of the route, what the link says); shown to everybody, each page shows what one may see.
SECTIONS: Final = (
    ("console-overview", "Overview"),
    ("console-suites", "Suites"),
    ("console-tasks", "Tasks"),
    ("console-failures", "Failures"),
    ("console-managers", "Managers"),
    ("console-access", "Access"),
)


def page(view: View[P]) -> Routed[P]:
    """A page to read."""
    return require_safe(_guarded(view, comes_back=True))


def deed(view: View[P]) -> Routed[P]:
    """A form that changes something; Django's CSRF check stands before it."""
    return require_POST(_guarded(view, comes_back=False))


def show(
    request: HttpRequest,
    template: str,
    context: Mapping[str, Any],
    *,
    section: str,
    status: int = 200,
) -> HttpResponse:
    """A page in the layout."""
    layout = {"sections": SECTIONS, "section": section}
    return render(request, f"console/{template}.html", {**layout, **context}, status=status)


def done(request: HttpRequest, text: str, to: str, *args: object) -> HttpResponse:
    """After a deed: say what happened and go back to the thing."""
    messages.success(request, text)
    return HttpResponseRedirect(reverse(to, args=args))


def is_confirmed(request: HttpRequest) -> bool:
    return request.POST.get("confirmed") == "yes"


def question(
    request: HttpRequest,
    *,
    title: str,
    text: str,
    back: str,
    fields: Mapping[str, str] | None = None,
    asks_reason: bool = False,
) -> HttpResponse:
    """Ask before acting; the answer comes to the same address."""
    context = {
        "title": title,
        "text": text,
        "back": back,
        "fields": dict(fields or {}),
        "asks_reason": asks_reason,
    }
    return show(request, "confirm", context, section="")


def _guarded(view: View[P], *, comes_back: bool) -> Routed[P]:
    @wraps(view)
    def guarded(request: HttpRequest, *args: P.args, **kwargs: P.kwargs) -> HttpResponse:
        user = request.user
        if not isinstance(user, User) or not user.is_active:
            # A form is not sent again after the login: it would arrive without its body.
            back = request.get_full_path() if comes_back else reverse("console-overview")
            return redirect_to_login(back, reverse("console-login"))
        try:
            count_request(user.pk)
            response = view(request, user, *args, **kwargs)
        except DomainError as error:
            response = _refusal(request, error)
        # Tenants' data: not for the back button of whoever sits here next.
        response.headers["Cache-Control"] = "no-store"
        return response

    return cast("Routed[P]", guarded)


def _refusal(request: HttpRequest, error: DomainError) -> HttpResponse:
    # One text for what is absent and what is foreign.
    text = "There is nothing here for you." if isinstance(error, NotFound) else error.message
    context = {"title": HTTPStatus(error.http_status).phrase, "text": text}
    return show(request, "problem", context, section="", status=error.http_status)
