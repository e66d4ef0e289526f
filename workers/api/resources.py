"""What the task in hand may read: archives and files of its group, and the tasks it waits for.

A worker serves several groups; it sees of each what the task it holds right now would see, and
everything else is absent. Cold beside fetch and report, so the ORM in a thread will do.
"""

from collections.abc import Callable
from uuid import UUID

from django.http import HttpRequest, HttpResponse

from accounts.identity import Identity
from core.errors import InvalidInput
from mitosis_protocol.enums import ArtifactContentType, ConnState
from mitosis_protocol.errors import InvalidValue
from runners.models import Runner
from tasks.models import ActiveTask, Artifact
from tasks.selectors import Task, absent, find_task
from tasks.selectors_uploads import get_artifact, get_attachment, list_artifacts
from tasks.services.artifacts import Download, artifact_download
from tasks.services.attachments import attachment_download
from workers.api.bodies import read_uuid
from workers.api.endpoint import Handler, answer, in_thread, persist, takes_direct

Describe = Callable[[Task, list[Artifact]], object]


def task_reader(describe: Describe) -> Handler[str]:
    """`GET /workers/tasks/{uuid}`; `describe` makes of a task what users are shown of it."""

    @takes_direct
    async def read_task(request: HttpRequest, identity: Identity, task_uuid: str) -> HttpResponse:
        uuid = read_uuid(task_uuid)

        def read() -> object:
            task = _visible_task(identity.id, uuid)
            return describe(task, list_artifacts(task))

        async def describe_task() -> HttpResponse:
            return answer(await in_thread(read))

        return await persist(describe_task)

    return read_task


@takes_direct
async def resolve_artifact(
    request: HttpRequest, identity: Identity, task_uuid: str, content_type: str
) -> HttpResponse:
    """`GET /workers/tasks/{uuid}/artifacts/{type}`; the uuid is that of the archive's task."""
    uuid = read_uuid(task_uuid)
    try:
        kind = ArtifactContentType.parse(content_type)
    except InvalidValue as error:
        raise InvalidInput(str(error)) from error

    async def resolve() -> HttpResponse:
        return _location(await in_thread(_locate_artifact, identity.id, uuid, kind))

    return await persist(resolve)


@takes_direct
async def resolve_attachment(
    request: HttpRequest, identity: Identity, task_uuid: str, key: str
) -> HttpResponse:
    """`GET /workers/tasks/{uuid}/attachments/{key}`; the uuid is that of the task in hand."""
    uuid = read_uuid(task_uuid)

    async def resolve() -> HttpResponse:
        return _location(await in_thread(_locate_attachment, identity.id, uuid, key))

    return await persist(resolve)


def _locate_artifact(runner_id: int, uuid: UUID, kind: ArtifactContentType) -> Download:
    return artifact_download(get_artifact(_visible_task(runner_id, uuid), kind))


def _locate_attachment(runner_id: int, uuid: UUID, key: str) -> Download:
    held = ActiveTask.objects.select_related("group").filter(uuid=uuid).first()
    if held is None or runner_id not in {held.runner_id, held.lost_runner_id}:
        raise absent(uuid)
    return attachment_download(held.group, get_attachment(held.group_id, key))


def _visible_task(runner_id: int, uuid: UUID) -> Task:
    task = find_task(uuid)
    if task is None or not _holds_task_of(runner_id, task.group_id):
        raise absent(uuid)
    return task


def _holds_task_of(runner_id: int, group_id: int) -> bool:
    """Also what was taken from a worker thought dead: a 404 would end its task for good.

    Lost tasks are looked for only after a reap and before the next beat: hardly anybody has any.
    """
    if ActiveTask.objects.filter(runner_id=runner_id, group_id=group_id).exists():
        return True
    if not Runner.objects.filter(pk=runner_id, conn_state=ConnState.LOST).exists():
        return False
    return ActiveTask.objects.filter(lost_runner_id=runner_id, group_id=group_id).exists()


def _location(found: Download) -> HttpResponse:
    return answer({"url": found.url, "size": found.size})
