"""Routes of workers, at the root and without trailing slashes. Names match workers.policy.

Static paths stand before `workers/<uuid>`; what `workers/tasks/<uuid>` shows is the task API's.
"""

from django.urls import path

from tasks.api.info import artifact_infos, task_infos
from tasks.models import Artifact
from tasks.selectors import Task
from workers.api import (
    active,
    attributes,
    beats,
    control,
    duty,
    output,
    registration,
    reports,
    resources,
    root,
    shutdown,
    worker_docs,
)
from workers.api.endpoint import route


def describe_task(task: Task, artifacts: list[Artifact]) -> dict[str, object]:
    """The answer of `GET /tasks/{uuid}`."""
    [info] = task_infos([task])
    return {"info": info, "artifacts": artifact_infos(artifacts)}


_worker_side = [
    path(
        "workers/tasks",
        route(worker_docs.DutyDocs, get=duty.fetch, post=reports.report),
        name="worker-duty",
    ),
    path(
        "workers/tasks/<str:task_uuid>",
        route(worker_docs.TaskDocs, get=resources.task_reader(describe_task)),
        name="worker-task",
    ),
    path(
        "workers/tasks/<str:task_uuid>/artifacts/<str:content_type>",
        route(worker_docs.ArtifactDocs, get=resources.resolve_artifact),
        name="worker-artifact",
    ),
    path(
        "workers/tasks/<str:task_uuid>/attachments/<path:key>",
        route(worker_docs.AttachmentDocs, get=resources.resolve_attachment),
        name="worker-attachment",
    ),
    path(
        "workers/tasks/<str:task_uuid>/logs",
        route(worker_docs.LogsDocs, post=output.append),
        name="worker-logs",
    ),
    path(
        "workers/heartbeat",
        route(worker_docs.HeartbeatDocs, post=beats.heartbeat),
        name="worker-heartbeat",
    ),
    path(
        "api/workers/heartbeat",
        route(worker_docs.MetadataBeatDocs, post=beats.metadata_beat),
        name="worker-beat",
    ),
]
_user_side = [
    path("api/workers/active", active.ActiveView.as_view(), name="workers-active"),
    path("workers/query", registration.QueryView.as_view(), name="workers-query"),
    path("workers/shutdown", shutdown.ShutdownByFilterView.as_view(), name="workers-shutdown"),
    path(
        "workers/shutdown/list", shutdown.ShutdownByListView.as_view(), name="workers-shutdown-list"
    ),
    path("workers/<str:worker_uuid>", shutdown.OneWorkerView.as_view(), name="worker"),
    path("workers/<str:worker_uuid>/tags", attributes.TagsView.as_view(), name="worker-tags"),
    path("workers/<str:worker_uuid>/labels", attributes.LabelsView.as_view(), name="worker-labels"),
    path("workers/<str:worker_uuid>/groups", attributes.GroupsView.as_view(), name="worker-groups"),
    path(
        "workers/<str:worker_uuid>/groups/remove",
        attributes.RemoveGroupsView.as_view(),
        name="worker-groups-remove",
    ),
    path(
        "workers/<str:worker_uuid>/groups/<str:group>/consent",
        attributes.ConsentView.as_view(),
        name="worker-consent",
    ),
    path("workers/<str:worker_uuid>/token", control.TokenView.as_view(), name="worker-token"),
    path(
        "workers/<str:worker_uuid>/resources",
        control.ResourcesView.as_view(),
        name="worker-resources",
    ),
    path(
        "workers/<str:worker_uuid>/packages",
        control.PackagesView.as_view(),
        name="worker-packages",
    ),
    path(
        "workers/<str:worker_uuid>/packages/<str:name>",
        control.PackageView.as_view(),
        name="worker-package",
    ),
    path(
        "admin/workers/<str:worker_uuid>", shutdown.AdminWorkerView.as_view(), name="admin-worker"
    ),
]
urlpatterns = [path("workers", root.workers, name="workers"), *_worker_side, *_user_side]
