"""Archives of tasks: upload, download, delete; one, by list, by filter."""

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import EnumField, read_body
from accounts.guards import current_actor, current_user
from accounts.schema import describe
from accounts.services.audit import record
from accounts.views import AdminView, UserView
from core.errors import InvalidInput
from mitosis_protocol.enums import ArtifactContentType, Role
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_LIST_ITEMS
from tasks.api.lists import UuidsBody, uuids_of
from tasks.models import Artifact
from tasks.selectors import access_task, get_task, list_places
from tasks.selectors_query import list_artifact_ids
from tasks.selectors_uploads import find_artifacts, get_artifact, list_matching_artifacts
from tasks.serializers import DownloadAnswer, SizeField, UploadAnswer
from tasks.serializers_filter import ArtifactFilterBody, read_filter
from tasks.services.artifacts import (
    artifact_download,
    artifact_downloads,
    delete_artifact,
    delete_artifacts,
    issue_task_upload,
)

CONTENT_TYPE: Final = OpenApiParameter(
    "content_type",
    OpenApiTypes.STR,
    OpenApiParameter.PATH,
    enum=[text for kind in ArtifactContentType for text in (kind.value, *kind.aliases)],
)


class ArtifactUploadBody(serializers.Serializer[Any]):
    content_type = EnumField(ArtifactContentType)
    content_length = SizeField(help_text="Bytes of the PUT that will follow.")


class ArtifactListBody(UuidsBody):
    content_type = EnumField(ArtifactContentType)


class ArtifactDownload(serializers.Serializer[Any]):
    uuid = serializers.UUIDField(help_text="Of the task.")
    url = serializers.CharField()
    size = serializers.IntegerField()


class ArtifactDownloadsAnswer(serializers.Serializer[Any]):
    downloads = ArtifactDownload(many=True)


class FilteredArtifactDownloadsAnswer(ArtifactDownloadsAnswer):
    has_more = serializers.BooleanField(help_text="Whether more match than one answer holds.")


class ArtifactsDeletedAnswer(serializers.Serializer[Any]):
    deleted_count = serializers.IntegerField()


class ArtifactListDeletedAnswer(ArtifactsDeletedAnswer):
    failed_uuids = serializers.ListField(child=serializers.UUIDField())


class UploadView(UserView):
    @describe(
        summary="A URL to upload an archive of a task; charges the group's storage",
        request=ArtifactUploadBody,
        answer=UploadAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, task_uuid: UUID) -> Response:
        task = access_task(current_user(request), task_uuid, Role.WRITE)
        body = read_body(request, ArtifactUploadBody)
        issued = issue_task_upload(
            task=task, content_type=body["content_type"], size=body["content_length"]
        )
        return Response({"exist": issued.exists, "url": issued.url})


class DownloadView(UserView):
    @describe(
        summary="A URL to fetch an archive",
        answer=DownloadAnswer,
        problems=(404,),
        parameters=[CONTENT_TYPE],
    )
    def get(self, request: Request, task_uuid: UUID, content_type: str) -> Response:
        task = access_task(current_user(request), task_uuid, Role.READ)
        found = artifact_download(get_artifact(task, parse_type(content_type)))
        return Response({"url": found.url, "size": found.size})


class ArtifactView(UserView):
    @describe(
        summary="Delete an archive that has not changed for an hour",
        problems=(404,),
        parameters=[CONTENT_TYPE],
    )
    def delete(self, request: Request, task_uuid: UUID, content_type: str) -> Response:
        task = access_task(current_user(request), task_uuid, Role.WRITE)
        delete_artifact(task=task, content_type=parse_type(content_type))
        _audit(request, target=f"{task.uuid}/{content_type}", count=1)
        return Response()


class AdminArtifactView(AdminView):
    @describe(
        summary="Delete an archive of any group, however young",
        problems=(404,),
        parameters=[CONTENT_TYPE],
    )
    def delete(self, request: Request, task_uuid: UUID, content_type: str) -> Response:
        task = get_task(task_uuid)
        delete_artifact(task=task, content_type=parse_type(content_type), young=True)
        _audit(request, target=f"{task.uuid}/{content_type}", count=1)
        return Response()


class DownloadListView(UserView):
    @describe(
        summary="URLs to fetch the archives of these tasks; missing ones are left out",
        request=ArtifactListBody,
        answer=ArtifactDownloadsAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, ArtifactListBody)
        places = list_places(current_user(request), uuids_of(body), Role.READ)
        found = find_artifacts(places.values(), body["content_type"])
        return Response({"downloads": _downloads(found[pk] for pk in sorted(found))})


class DownloadFilterView(UserView):
    @describe(
        summary="URLs to fetch the archives of tasks that match a filter",
        request=ArtifactFilterBody,
        answer=FilteredArtifactDownloadsAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, ArtifactFilterBody)
        asked = read_filter(body, caller=current_user(request), role=Role.READ)
        ids = list_artifact_ids(asked.wanted, body["content_type"], limit=MAX_LIST_ITEMS)
        found = list_matching_artifacts(ids)
        has_more = len(ids) == MAX_LIST_ITEMS
        return Response({"downloads": _downloads(found), "has_more": has_more})


class DeleteListView(UserView):
    @describe(
        summary="Delete the archives of these tasks; ones younger than an hour stay",
        request=ArtifactListBody,
        answer=ArtifactListDeletedAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, ArtifactListBody)
        uuids = uuids_of(body)
        places = list_places(current_user(request), uuids, Role.WRITE)
        rows = Artifact.objects.filter(
            task_id__in=[place.id for place in places.values()], content_type=body["content_type"]
        )
        deleted = delete_artifacts(list(rows.values_list("pk", flat=True)))
        _audit(request, count=len(deleted))
        failed = [str(uuid) for uuid in uuids if uuid not in deleted]
        return Response({"deleted_count": len(deleted), "failed_uuids": failed})


class DeleteFilterView(UserView):
    @describe(
        summary="Delete the archives of tasks that match a filter; ones younger than an hour stay",
        request=ArtifactFilterBody,
        answer=ArtifactsDeletedAnswer,
    )
    def post(self, request: Request) -> Response:
        body = read_body(request, ArtifactFilterBody)
        asked = read_filter(body, caller=current_user(request), role=Role.WRITE)
        deleted: set[UUID] = set()
        page: list[tuple[int, int]] = [(0, 0)]
        while page:
            page = list_artifact_ids(
                asked.wanted, body["content_type"], limit=MAX_LIST_ITEMS, after=page[-1]
            )
            deleted |= delete_artifacts([artifact_id for _, artifact_id in page])
        _audit(request, target=asked.group.name, count=len(deleted))
        return Response({"deleted_count": len(deleted)})


def parse_type(text: str) -> ArtifactContentType:
    """A type as it stands in a path, with the spellings existing clients use."""
    try:
        return ArtifactContentType.parse(text)
    except InvalidValue as error:
        raise InvalidInput(f"content_type: {error}") from error


def _downloads(artifacts: Iterable[Artifact]) -> list[dict[str, object]]:
    return [
        {"uuid": str(task_uuid), "url": found.url, "size": found.size}
        for task_uuid, found in artifact_downloads(artifacts)
    ]


def _audit(request: Request, *, target: str = "", count: int) -> None:
    actor = current_actor(request)
    record(actor=actor, action="artifact.delete", target=target, detail={"count": count})
