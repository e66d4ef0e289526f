"""The console's addresses, below /console/. Names are those of the policy table."""

from django.urls import path

from console.live import streams
from console.pages import access, lists, manager, session, suite, task

urlpatterns = [
    path("", lists.overview, name="console-overview"),
    path("live", streams.overview, name="console-overview-live"),
    path("login", session.ConsoleLogin.as_view(), name="console-login"),
    path("logout", session.ConsoleLogout.as_view(), name="console-logout"),
    path("find", lists.find, name="console-find"),
    path("suites", lists.suites, name="console-suites"),
    path("suites/live", streams.suites, name="console-suites-live"),
    path("suites/<uuid:suite_uuid>", suite.suite_page, name="console-suite"),
    path("suites/<uuid:suite_uuid>/live", streams.suite, name="console-suite-live"),
    path("suites/<uuid:suite_uuid>/explain", suite.suite_explain, name="console-suite-explain"),
    path("suites/<uuid:suite_uuid>/rerun", suite.suite_rerun, name="console-suite-rerun"),
    path("suites/<uuid:suite_uuid>/do/<str:verb>", suite.suite_act, name="console-suite-act"),
    path("tasks", lists.tasks, name="console-tasks"),
    path("tasks/live", streams.tasks, name="console-tasks-live"),
    path("tasks/<uuid:task_uuid>", task.task_page, name="console-task"),
    path("tasks/<uuid:task_uuid>/live", streams.task, name="console-task-live"),
    path("tasks/<uuid:task_uuid>/explain", task.task_explain, name="console-task-explain"),
    path("tasks/<uuid:task_uuid>/cancel", task.task_cancel, name="console-task-cancel"),
    path("tasks/<uuid:task_uuid>/rerun", task.task_rerun, name="console-task-rerun"),
    path("failures", lists.failures, name="console-failures"),
    path("failures/live", streams.failures, name="console-failures-live"),
    path("managers", lists.managers, name="console-managers"),
    path("managers/live", streams.managers, name="console-managers-live"),
    path("managers/<uuid:manager_uuid>", manager.manager_page, name="console-manager"),
    path("managers/<uuid:manager_uuid>/live", streams.manager, name="console-manager-live"),
    path("managers/<uuid:manager_uuid>/series", manager.manager_series, name="console-series"),
    path("managers/<uuid:manager_uuid>/grant", manager.manager_grant, name="console-grant"),
    path("managers/<uuid:manager_uuid>/ungrant", manager.manager_ungrant, name="console-ungrant"),
    path(
        "managers/<uuid:manager_uuid>/do/<str:verb>",
        manager.manager_act,
        name="console-manager-act",
    ),
    path("access", access.access_page, name="console-access"),
    path("access/<str:group>/<uuid:manager_uuid>", access.consent, name="console-consent"),
]
