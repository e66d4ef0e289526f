"""Routes of managers, at the root and without trailing slashes. Names match managers.policy."""

from django.urls import URLPattern, URLResolver, path

from managers.api import attributes, duty, fleet, metrics, wishes

_ONE = "managers/<uuid:manager_uuid>"

urlpatterns: list[URLPattern | URLResolver] = [
    path("managers", fleet.ManagersView.as_view(), name="managers"),
    path("managers/heartbeat", duty.HeartbeatView.as_view(), name="manager-heartbeat"),
    path(_ONE, fleet.ManagerView.as_view(), name="manager"),
    path(f"{_ONE}/metrics", metrics.MetricsView.as_view(), name="manager-metrics"),
    path(f"{_ONE}/tags", attributes.TagsView.as_view(), name="manager-tags"),
    path(f"{_ONE}/labels", attributes.LabelsView.as_view(), name="manager-labels"),
    path(f"{_ONE}/groups", attributes.GroupsView.as_view(), name="manager-groups"),
    path(
        f"{_ONE}/groups/<str:group>/consent",
        attributes.ConsentView.as_view(),
        name="manager-consent",
    ),
    path(f"{_ONE}/shutdown", wishes.ShutdownView.as_view(), name="manager-shutdown"),
    path(f"{_ONE}/drain", wishes.DrainView.as_view(), name="manager-drain"),
    path(f"{_ONE}/undrain", wishes.UndrainView.as_view(), name="manager-undrain"),
    path(f"{_ONE}/quarantine", wishes.QuarantineView.as_view(), name="manager-quarantine"),
    path(f"{_ONE}/release", wishes.ReleaseView.as_view(), name="manager-release"),
    path(f"{_ONE}/revoke", wishes.RevokeView.as_view(), name="manager-revoke"),
    path(f"{_ONE}/refresh-token", duty.RefreshTokenView.as_view(), name="manager-refresh-token"),
]
