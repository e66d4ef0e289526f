"""Files of a group, one by one: upload, look, download, delete. Lists are next door.

A key may hold slashes and may be called `query` or `list`; the method tells what is meant.
"""

import re
from typing import Any, Final

from django.http import HttpRequest
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from accounts.bodies import TextField, read_body
from accounts.guards import current_actor, current_user
from accounts.models import Group
from accounts.schema import describe
from accounts.selectors import access_group, get_group
from accounts.services.audit import record
from accounts.views import AdminView, UserView
from core.errors import InvalidInput
from mitosis_protocol.enums import AttachmentContentType, Role
from mitosis_protocol.timestamps import format_legacy
from tasks.models import Attachment
from tasks.selectors_uploads import get_attachment
from tasks.serializers import AttachmentAnswer, DownloadAnswer, SizeField, UploadAnswer
from tasks.services.attachments import (
    attachment_download,
    delete_attachment,
    issue_attachment_upload,
)

_SHA256: Final = re.compile(r"[0-9a-fA-F]{64}")


class AttachmentUploadBody(serializers.Serializer[Any]):
    key = TextField()
    content_length = SizeField(help_text="Bytes of the PUT that will follow.")
    sha256 = TextField(
        required=False, allow_null=True, help_text="64 hex digits; packages need it."
    )


class AttachmentsView(UserView):
    @describe(
        summary="A URL to upload a file of the group; charges its storage",
        request=AttachmentUploadBody,
        answer=UploadAnswer,
        problems=(404, 409),
    )
    def post(self, request: Request, group: str) -> Response:
        owned = access_group(current_user(request), group, Role.WRITE).group
        body = read_body(request, AttachmentUploadBody)
        issued = issue_attachment_upload(
            group=owned,
            key=body["key"],
            size=body["content_length"],
            sha256=_sha256(body.get("sha256")),
        )
        return Response({"exist": issued.exists, "url": issued.url})


class AttachmentView(UserView):
    @describe(summary="What is known of a file", answer=AttachmentAnswer, problems=(404,))
    def get(self, request: Request, group: str, key: str) -> Response:
        owned = access_group(current_user(request), group, Role.READ).group
        return Response(attachment_info(get_attachment(owned.pk, key), request))

    @describe(summary="Delete a file that has not changed for an hour", problems=(404,))
    def delete(self, request: Request, group: str, key: str) -> Response:
        owned = access_group(current_user(request), group, Role.WRITE).group
        _delete(request, owned, key, young=False)
        return Response()


class DownloadView(UserView):
    @describe(summary="A URL to fetch a file", answer=DownloadAnswer, problems=(404,))
    def get(self, request: Request, group: str, key: str) -> Response:
        owned = access_group(current_user(request), group, Role.READ).group
        found = attachment_download(owned, get_attachment(owned.pk, key))
        return Response({"url": found.url, "size": found.size})


class AdminAttachmentView(AdminView):
    @describe(summary="Delete a file of any group, however young", problems=(404,))
    def delete(self, request: Request, group: str, key: str) -> Response:
        _delete(request, get_group(group), key, young=True)
        return Response()


def attachment_info(row: Attachment, request: HttpRequest | Request) -> dict[str, object]:
    return {
        "content_type": content_type_for(request),
        "size": row.size,
        "created_at": format_legacy(row.created_at),
        "updated_at": format_legacy(row.updated_at),
        "sha256": None if row.sha256 is None else bytes(row.sha256).hex(),
    }


def content_type_for(request: HttpRequest | Request) -> str:
    """The two existing clients spell the one value differently and refuse each other's."""
    known = AttachmentContentType.NOT_SET
    is_python = request.headers.get("User-Agent", "").startswith("python-httpx")
    return known.value if is_python else known.aliases[0]


def _delete(request: Request, group: Group, key: str, *, young: bool) -> None:
    attachment = get_attachment(group.pk, key)
    delete_attachment(group=group, attachment=attachment, young=young)
    actor = current_actor(request)
    record(actor=actor, action="attachment.delete", target=f"{group.name}/{key}")


def _sha256(text: str | None) -> bytes | None:
    if text is None:
        return None
    if _SHA256.fullmatch(text) is None:
        raise InvalidInput("sha256: 64 hex digits are needed")
    return bytes.fromhex(text)
