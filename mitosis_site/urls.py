"""All HTTP routes: health, each app's API at the root, then pages and the console.

The existing API has paths like /admin/users, so every API route stands before the admin site.
"""

from django.contrib import admin
from django.urls import URLPattern, URLResolver, include, path
from django.views.generic import RedirectView
from drf_spectacular.views import SpectacularJSONAPIView

from mitosis_site.health import healthz, readyz
from mitosis_site.metrics.view import MetricsView
from mitosis_site.pages import ApiDocsView, landing

handler400 = "core.problem.bad_request"
handler403 = "core.problem.permission_denied"
handler404 = "core.problem.page_not_found"
handler500 = "core.problem.server_error"

urlpatterns: list[URLPattern | URLResolver] = [
    path("health", healthz, name="health"),
    path("healthz", healthz, name="healthz"),
    path("readyz", readyz, name="readyz"),
    path("metrics", MetricsView.as_view(), name="metrics"),
    path("", include("accounts.urls")),
    path("", include("notifications.urls")),
    path("", include("suites.urls")),
    path("", include("managers.urls")),
    path("", include("workers.urls")),
    path("", include("tasks.urls")),
    path("api/schema", SpectacularJSONAPIView.as_view(), name="schema"),
    path("api/docs", ApiDocsView.as_view(url_name="schema"), name="docs"),
    path("console/", include("console.urls")),
    path("console", RedirectView.as_view(url="/console/")),
    path("", landing, name="landing"),
    # Browsers ask for it on pages without an icon of their own, such as plain JSON.
    path("favicon.ico", RedirectView.as_view(url="/static/site/icon.svg", permanent=True)),
    path("admin", RedirectView.as_view(url="/admin/")),
    path("admin/", admin.site.urls),
]
