"""Routes of suites, at the root and without trailing slashes. Names match suites.policy."""

from django.urls import URLPattern, URLResolver, path

from suites.api import actions, explain, managers, suites
from tasks.api import suite_events
from tasks.api.async_views import user_route

_ONE = "suites/<uuid:suite_uuid>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("suites", suites.SuitesView.as_view(), name="suites"),
    path("suites/query", suites.SuitesQueryView.as_view(), name="suites-query"),
    path(_ONE, suites.SuiteView.as_view(), name="suite"),
    path(f"{_ONE}/cancel", actions.CancelView.as_view(), name="suite-cancel"),
    path(f"{_ONE}/close", actions.CloseView.as_view(), name="suite-close"),
    path(f"{_ONE}/reopen", actions.ReopenView.as_view(), name="suite-reopen"),
    path(f"{_ONE}/pause", actions.PauseView.as_view(), name="suite-pause"),
    path(f"{_ONE}/resume", actions.ResumeView.as_view(), name="suite-resume"),
    path(f"{_ONE}/rerun", actions.RerunView.as_view(), name="suite-rerun"),
    path(f"{_ONE}/scale", actions.ScaleView.as_view(), name="suite-scale"),
    path(
        f"{_ONE}/events",
        user_route(suite_events.SuiteEventsDocs, suite_events.suite_events),
        name="suite-events",
    ),
    path(f"{_ONE}/explain", explain.SuiteExplainView.as_view(), name="suite-explain"),
    path(
        "tasks/<uuid:task_uuid>/explain",
        explain.TaskExplainView.as_view(),
        name="task-explain",
    ),
    path(f"{_ONE}/managers", managers.ManagersView.as_view(), name="suite-managers"),
    path(
        f"{_ONE}/managers/refresh",
        managers.RefreshView.as_view(),
        name="suite-managers-refresh",
    ),
]
