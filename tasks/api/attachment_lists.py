"""Files of a group, many at once: query, download URLs and deletion by filter or by key."""

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import FlagField, TextField, read_body
from accounts.guards import current_actor, current_user
from accounts.models import Group
from accounts.schema import describe
from accounts.selectors import access_group
from accounts.services.audit import record
from accounts.views import UserView
from core.errors import InvalidInput
from mitosis_protocol.enums import Role
from tasks.api.attachments import AttachmentView, DownloadView, attachment_info
from tasks.api.lists import page_limit
from tasks.models import Attachment
from tasks.selectors_uploads import list_attachments
from tasks.serializers import AttachmentItem, KeyListField, PageBody
from tasks.services.attachments import attachment_downloads, delete_attachments


class KeyFilterBody(PageBody):
    key = TextField(required=False, allow_null=True, help_text="Part of the key, taken literally.")


class AttachmentsQueryBody(KeyFilterBody):
    count = FlagField(help_text="True: only how many there are.")


class KeysBody(serializers.Serializer[Any]):
    keys = KeyListField()


class AttachmentsQueryAnswer(serializers.Serializer[Any]):
    count = serializers.IntegerField(help_text="Of all matches if asked for, else of this answer.")
    attachments = AttachmentItem(many=True, help_text="In the order of their keys.")
    group_name = serializers.CharField()


class AttachmentDownload(serializers.Serializer[Any]):
    key = serializers.CharField()
    url = serializers.CharField()
    size = serializers.IntegerField()


class AttachmentDownloadsAnswer(serializers.Serializer[Any]):
    downloads = AttachmentDownload(many=True)
    group_name = serializers.CharField()


class AttachmentsDeletedAnswer(serializers.Serializer[Any]):
    deleted_count = serializers.IntegerField()
    group_name = serializers.CharField()


class AttachmentListDeletedAnswer(AttachmentsDeletedAnswer):
    failed_keys = serializers.ListField(child=serializers.CharField())


class QueryView(AttachmentView):
    """POST queries; GET and DELETE are about a file that happens to be called `query`."""

    @describe(
        summary="The files of a group",
        request=AttachmentsQueryBody,
        answer=AttachmentsQueryAnswer,
        problems=(404,),
    )
    def post(self, request: Request, group: str, key: str) -> Response:
        owned = _group(request, group, Role.READ)
        body = read_body(request, AttachmentsQueryBody)
        rows = list_attachments(owned.pk, part=body.get("key"))
        if body["count"]:
            return Response({"count": rows.count(), "attachments": [], "group_name": owned.name})
        found = [{"key": row.key, **attachment_info(row, request)} for row in _page(rows, body)]
        return Response({"count": len(found), "attachments": found, "group_name": owned.name})


class DownloadListView(DownloadView):
    """POST takes keys; GET is about a file that happens to be called `list`."""

    @describe(
        summary="URLs to fetch these files; missing ones are left out",
        request=KeysBody,
        answer=AttachmentDownloadsAnswer,
        problems=(404,),
    )
    def post(self, request: Request, group: str, key: str) -> Response:
        owned = _group(request, group, Role.READ)
        keys = _keys(request)
        return Response(_downloads(owned, list(list_attachments(owned.pk, keys=keys))))


class DownloadFilterView(UserView):
    @describe(
        summary="URLs to fetch the files that match a filter",
        request=KeyFilterBody,
        answer=AttachmentDownloadsAnswer,
        problems=(404,),
    )
    def post(self, request: Request, group: str) -> Response:
        owned = _group(request, group, Role.READ)
        body = read_body(request, KeyFilterBody)
        rows = list_attachments(owned.pk, part=body.get("key"))
        return Response(_downloads(owned, _page(rows, body)))


class DeleteFilterView(UserView):
    @describe(
        summary="Delete the files that match a filter; ones younger than an hour stay",
        request=KeyFilterBody,
        answer=AttachmentsDeletedAnswer,
        problems=(404,),
    )
    def post(self, request: Request, group: str) -> Response:
        owned = _group(request, group, Role.WRITE)
        body = read_body(request, KeyFilterBody)
        rows = _page(list_attachments(owned.pk, part=body.get("key")), body)
        deleted = _delete(request, owned, rows)
        return Response({"deleted_count": len(deleted), "group_name": owned.name})


class DeleteListView(UserView):
    @describe(
        summary="Delete these files; ones younger than an hour stay",
        request=KeysBody,
        answer=AttachmentListDeletedAnswer,
        problems=(404,),
    )
    def post(self, request: Request, group: str) -> Response:
        owned = _group(request, group, Role.WRITE)
        keys = _keys(request)
        deleted = _delete(request, owned, list(list_attachments(owned.pk, keys=keys)))
        return Response(
            {
                "deleted_count": len(deleted),
                "failed_keys": [key for key in keys if key not in deleted],
                "group_name": owned.name,
            }
        )


def _group(request: Request, name: str, role: Role) -> Group:
    return access_group(current_user(request), name, role).group


def _keys(request: Request) -> list[str]:
    keys = read_body(request, KeysBody)["keys"]
    if not keys:
        raise InvalidInput("keys: the list is empty")
    return list(dict.fromkeys(keys))


def _page(rows: Any, body: dict[str, Any]) -> list[Attachment]:
    offset = body.get("offset") or 0
    return list(rows[offset : offset + page_limit(body)])


def _downloads(group: Group, rows: list[Attachment]) -> dict[str, object]:
    downloads = [
        {"key": key, "url": found.url, "size": found.size}
        for key, found in attachment_downloads(group, rows)
    ]
    return {"downloads": downloads, "group_name": group.name}


def _delete(request: Request, group: Group, rows: list[Attachment]) -> set[str]:
    deleted = delete_attachments(group=group, attachment_ids=[row.pk for row in rows])
    actor, detail = current_actor(request), {"count": len(deleted)}
    record(actor=actor, action="attachment.delete_many", target=group.name, detail=detail)
    return deleted
