"""Links to the files a manager needs: for an attempt it holds, or for the hooks of its suite.

Called by the manager socket. A manager sees the files of a group only while it holds a task of the
group or is engaged with one of its suites; everything else is absent.
"""

from collections.abc import Sequence

from accounts.models import Group
from core.errors import DomainError, NotFound
from managers.models import SuiteAssignment
from managers.services.session_threads import in_thread
from mitosis_protocol.from_manager import ResolveResources
from mitosis_protocol.specs import RemoteResource
from mitosis_protocol.to_manager import ResolvedResource
from tasks.models import ActiveTask
from tasks.selectors import absent, find_task
from tasks.selectors_uploads import get_artifact, get_attachment
from tasks.services.artifacts import Download, artifact_download
from tasks.services.attachments import attachment_download


async def resolve_resources(runner_id: int, asked: ResolveResources) -> list[ResolvedResource]:
    """One link or error code per resource, in order. Raises NotFound for what is not its own."""
    return await in_thread(_resolve_all, runner_id, asked)


def _resolve_all(runner_id: int, asked: ResolveResources) -> list[ResolvedResource]:
    group = _group_of(runner_id, asked.task_id, asked.assignment_id)
    return _links(group, asked.resources)


def _links(group: Group, resources: Sequence[RemoteResource]) -> list[ResolvedResource]:
    found: list[ResolvedResource] = []
    for resource in resources:
        try:
            download = _locate(group, resource)
        except DomainError as error:
            found.append(ResolvedResource(error=error.code))
        else:
            found.append(
                ResolvedResource(url=download.url, size=download.size, sha256=download.sha256)
            )
    return found


def _locate(group: Group, resource: RemoteResource) -> Download:
    if resource.attachment is not None:
        return attachment_download(group, get_attachment(group.pk, resource.attachment.key))
    if resource.artifact is None:
        raise AssertionError("a decoded resource is one of the two")
    task = find_task(resource.artifact.uuid)
    if task is None or task.group_id != group.pk:
        raise absent(resource.artifact.uuid)
    return artifact_download(get_artifact(task, resource.artifact.content_type))


def _group_of(runner_id: int, attempt_id: int | None, assignment_id: int | None) -> Group:
    if attempt_id is not None:
        tasks = ActiveTask.objects.select_related("group")
        task = tasks.filter(runner_id=runner_id, attempt_id=attempt_id).first()
        if task is not None:
            return task.group
        raise NotFound("Task not found")
    rows = SuiteAssignment.objects.select_related("suite__group").filter(manager_id=runner_id)
    row = rows.filter(pk=assignment_id or 0, released_at__isnull=True).first()
    if row is None:
        raise NotFound("The engagement does not exist")
    return row.suite.group
