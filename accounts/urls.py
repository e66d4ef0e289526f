"""Routes of sessions, users and groups, at the root and without trailing slashes.

Names match accounts.policy. The `/admin/...` paths stand before the console's catch-all.
"""

from django.urls import path

from accounts.api import groups, sessions, users

urlpatterns = [
    path("login", sessions.LoginView.as_view(), name="login"),
    path("auth", sessions.AuthView.as_view(), name="auth"),
    path("redis", sessions.RedisView.as_view(), name="redis"),
    path("users/groups", sessions.UserGroupsView.as_view(), name="user-groups"),
    path(
        "users/<str:username>/password", sessions.UserPasswordView.as_view(), name="user-password"
    ),
    path("admin/users", users.AdminUsersView.as_view(), name="admin-users"),
    path("admin/users/<str:username>", users.AdminUserView.as_view(), name="admin-user"),
    path(
        "admin/users/<str:username>/state",
        users.AdminUserStateView.as_view(),
        name="admin-user-state",
    ),
    path(
        "admin/users/<str:username>/password",
        users.SetPasswordView.as_view(),
        name="admin-user-password",
    ),
    path(
        "admin/users/<str:username>/group-quota",
        users.GroupQuotaView.as_view(),
        name="admin-user-group-quota",
    ),
    path(
        "admin/groups/<str:group>/storage-quota",
        users.StorageQuotaView.as_view(),
        name="admin-group-storage-quota",
    ),
    path(
        "admin/groups/<str:group>/priority-ceiling",
        users.PriorityCeilingView.as_view(),
        name="admin-group-priority-ceiling",
    ),
    path("admin/shutdown", users.ShutdownView.as_view(), name="admin-shutdown"),
    path("groups", groups.GroupsView.as_view(), name="groups"),
    path("groups/<str:group>", groups.GroupView.as_view(), name="group"),
    path(
        "groups/<str:group>/drain-limits",
        groups.DrainLimitsView.as_view(),
        name="group-drain-limits",
    ),
    path("groups/<str:group>/users", groups.GroupUsersView.as_view(), name="group-users"),
    path(
        "groups/<str:group>/users/remove",
        groups.GroupUsersRemoveView.as_view(),
        name="group-users-remove",
    ),
]
