"""Routes of tasks, artifacts and attachments, at the root and without trailing slashes.

Names match tasks.policy. The `/admin/...` paths stand before the console's catch-all. Keys of
attachments hold slashes and may be called `query` or `list`: those two routes know both meanings.
"""

from django.urls import path

from tasks.api import (
    artifacts,
    attachment_lists,
    attachments,
    event_docs,
    events,
    lists,
    logs,
    submit,
    tasks,
    watched,
)
from tasks.api.async_views import user_route

_tasks = [
    path("tasks", submit.TasksView.as_view(), name="tasks"),
    path("tasks/submit", submit.BatchView.as_view(), name="tasks-submit"),
    path("tasks/array", submit.ArrayView.as_view(), name="tasks-array"),
    path("tasks/query", lists.QueryView.as_view(), name="tasks-query"),
    path("tasks/cancel", lists.CancelView.as_view(), name="tasks-cancel"),
    path("tasks/cancel/list", lists.CancelListView.as_view(), name="tasks-cancel-list"),
    path("tasks/<uuid:task_uuid>", tasks.TaskView.as_view(), name="task"),
    path("tasks/<uuid:task_uuid>/labels", tasks.LabelsView.as_view(), name="task-labels"),
    path("tasks/<uuid:task_uuid>/logs", logs.LogsView.as_view(), name="task-logs"),
    path(
        "tasks/<uuid:task_uuid>/events",
        user_route(event_docs.TaskEventsDocs, events.task_events),
        name="task-events",
    ),
    path("events", user_route(event_docs.GroupEventsDocs, events.group_events), name="events"),
]

_artifacts = [
    path(
        "tasks/download/artifacts",
        artifacts.DownloadFilterView.as_view(),
        name="artifacts-download",
    ),
    path(
        "tasks/download/artifacts/list",
        artifacts.DownloadListView.as_view(),
        name="artifacts-download-list",
    ),
    path("tasks/delete/artifacts", artifacts.DeleteFilterView.as_view(), name="artifacts-delete"),
    path(
        "tasks/delete/artifacts/list",
        artifacts.DeleteListView.as_view(),
        name="artifacts-delete-list",
    ),
    path("tasks/<uuid:task_uuid>/artifacts", artifacts.UploadView.as_view(), name="task-artifacts"),
    path(
        "tasks/<uuid:task_uuid>/artifacts/<str:content_type>",
        artifacts.ArtifactView.as_view(),
        name="task-artifact",
    ),
    path(
        "tasks/<uuid:task_uuid>/download/artifacts/<str:content_type>",
        artifacts.DownloadView.as_view(),
        name="task-artifact-download",
    ),
    path(
        "admin/tasks/<uuid:task_uuid>/artifacts/<str:content_type>",
        artifacts.AdminArtifactView.as_view(),
        name="admin-task-artifact",
    ),
]

_attachments = [
    path(
        "groups/<str:group>/attachments",
        attachments.AttachmentsView.as_view(),
        name="group-attachments",
    ),
    path(
        "groups/<str:group>/attachments/query",
        attachment_lists.QueryView.as_view(),
        {"key": "query"},
        name="group-attachments-query",
    ),
    path(
        "groups/<str:group>/attachments/<path:key>",
        attachments.AttachmentView.as_view(),
        name="group-attachment",
    ),
    path(
        "groups/<str:group>/download/attachments",
        attachment_lists.DownloadFilterView.as_view(),
        name="group-attachments-download",
    ),
    path(
        "groups/<str:group>/download/attachments/list",
        attachment_lists.DownloadListView.as_view(),
        {"key": "list"},
        name="group-attachments-download-list",
    ),
    path(
        "groups/<str:group>/download/attachments/<path:key>",
        attachments.DownloadView.as_view(),
        name="group-attachment-download",
    ),
    path(
        "groups/<str:group>/delete/attachments",
        attachment_lists.DeleteFilterView.as_view(),
        name="group-attachments-delete",
    ),
    path(
        "groups/<str:group>/delete/attachments/list",
        attachment_lists.DeleteListView.as_view(),
        name="group-attachments-delete-list",
    ),
    path(
        "admin/groups/<str:group>/attachments/<path:key>",
        attachments.AdminAttachmentView.as_view(),
        name="admin-group-attachment",
    ),
]

_runners = [
    path(
        "managers/tasks/<uuid:task_uuid>",
        watched.WatchedTaskView.as_view(),
        name="manager-watched-task",
    ),
]

urlpatterns = [*_tasks, *_artifacts, *_attachments, *_runners]
