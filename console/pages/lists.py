"""The overview and the lists. Each is its panels in a layout, with the filters of its address."""

from collections.abc import Mapping
from uuid import UUID

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse

from accounts.models import User
from console.filters import DEFAULT_WINDOW, SUITE_STATES, WINDOWS
from console.pages.shell import page, show
from console.panels.table import build
from console.panels.topics import Topic
from console.selectors.managers import STATES as MANAGER_STATES
from console.selectors.managers import WISHES
from console.selectors.suites import HALTS
from console.selectors.tasks import STATES as TASK_STATES
from console.viewer import see_manager, see_suite, see_task, viewer_of
from core.errors import NotFound


@page
def overview(request: HttpRequest, user: User) -> HttpResponse:
    # Throughput comes with the stream: a page does not wait for an hour's worth of tasks.
    shown = build(Topic("overview", viewer=viewer_of(user)))
    return show(request, "overview", {"regions": shown.html}, section="console-overview")


@page
def suites(request: HttpRequest, user: User) -> HttpResponse:
    choices = {"states": list(SUITE_STATES), "halts": list(HALTS)}
    return _list(request, user, "suites", choices)


@page
def tasks(request: HttpRequest, user: User) -> HttpResponse:
    return _list(request, user, "tasks", {"states": list(TASK_STATES)})


@page
def managers(request: HttpRequest, user: User) -> HttpResponse:
    choices = {"states": list(MANAGER_STATES), "wishes": list(WISHES)}
    return _list(request, user, "managers", choices)


@page
def failures(request: HttpRequest, user: User) -> HttpResponse:
    window = request.GET.get("window") or DEFAULT_WINDOW
    return _list(request, user, "failures", {"windows": list(WINDOWS), "window": window})


@page
def find(request: HttpRequest, user: User) -> HttpResponse:
    """The box in the header: a uuid leads to its page, any other text to suites of that name."""
    text = request.GET.get("q", "").strip()
    try:
        uuid = UUID(text)
    except ValueError:
        query = request.GET.urlencode()
        return HttpResponseRedirect(f"{reverse('console-suites')}?{query}")
    for see, name in (
        (see_task, "console-task"),
        (see_suite, "console-suite"),
        (see_manager, "console-manager"),
    ):
        try:
            see(user, uuid)
        except NotFound:
            continue
        return HttpResponseRedirect(reverse(name, args=[uuid]))
    raise NotFound(f"{uuid} not found")


def _list(
    request: HttpRequest, user: User, kind: str, choices: Mapping[str, object]
) -> HttpResponse:
    viewer = viewer_of(user)
    shown = build(Topic(kind, request.META.get("QUERY_STRING", ""), viewer))
    context = {
        **choices,
        "regions": shown.html,
        "query": request.GET,
        "groups": viewer.group_names(),
        "stream_query": request.META.get("QUERY_STRING", ""),
    }
    return show(request, kind, context, section=f"console-{kind}")
