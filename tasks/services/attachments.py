"""Files of a group: upload URLs that charge its storage, download URLs, deletion.

Called by the API of tasks (users) and by resource resolution for runners. Charged when the URL is
issued; a second upload of the same key charges only what it is larger by. One that is smaller
gives the difference back once no earlier URL can bring the larger content again.
"""

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import Final

from django.db import transaction

from accounts.models import Group
from accounts.services.storage import charge_storage, refund_storage
from core import clock
from core.errors import Conflict, InvalidInput
from tasks.models import Attachment
from tasks.services.artifacts import Download, IssuedUpload
from tasks.storage import (
    MAX_DOWNLOAD_URL_S,
    UPLOAD_URL_S,
    Bucket,
    attachment_key,
    download_validity_s,
    get_storage,
)

# Nothing is deleted while an upload URL for it may still be used.
DELETE_AFTER: Final = timedelta(seconds=UPLOAD_URL_S)
_BATCH: Final = 1000  # rows locked and objects removed in one go


def issue_attachment_upload(
    *, group: Group, key: str, size: int, sha256: bytes | None = None
) -> IssuedUpload:
    """Raises InvalidInput for a key that S3 or its group could not hold, QuotaExceeded."""
    object_key = attachment_key(group.name, key)
    with transaction.atomic():
        # Made with size 0 and locked, so that two requests at once charge the growth only once.
        made, is_new = Attachment.objects.get_or_create(
            group_id=group.pk, key=key, defaults={"size": 0}
        )
        row = Attachment.objects.select_for_update().filter(pk=made.pk).first()
        if row is None:
            raise Conflict("The attachment was deleted at the same time; ask again")
        charged = row.size + row.reserved
        is_settled = row.updated_at <= clock.now() - DELETE_AFTER
        to_charge = size if is_settled else max(size, charged)
        row.size = size
        row.reserved = to_charge - size
        row.sha256 = sha256  # of the new content; an old sum would be a lie
        row.save(update_fields=["size", "reserved", "sha256", "updated_at"])
        charge_storage(group_id=group.pk, delta=max(0, to_charge - charged))
        refund_storage(group_id=group.pk, delta=max(0, charged - to_charge))
    url = get_storage().upload_url(Bucket.ATTACHMENTS, object_key, size=size)
    return IssuedUpload(url=url, exists=not is_new)


def attachment_download(group: Group, attachment: Attachment) -> Download:
    """A link that lives from an hour to a day, by size."""
    key = attachment_key(group.name, attachment.key)
    valid_s = download_validity_s(attachment.size)
    url = get_storage().download_url(Bucket.ATTACHMENTS, key, valid_s=valid_s)
    sha256 = bytes(attachment.sha256).hex() if attachment.sha256 is not None else None
    return Download(url, attachment.size, sha256)


def attachment_downloads(
    group: Group, attachments: Iterable[Attachment]
) -> list[tuple[str, Download]]:
    """Links that live a day, with the key each belongs to."""
    storage = get_storage()
    return [
        (
            row.key,
            Download(
                storage.download_url(
                    Bucket.ATTACHMENTS,
                    attachment_key(group.name, row.key),
                    valid_s=MAX_DOWNLOAD_URL_S,
                ),
                row.size,
            ),
        )
        for row in attachments
    ]


def delete_attachment(*, group: Group, attachment: Attachment, young: bool = False) -> None:
    """Row, object and charge; `young` skips the one-hour rule."""
    if not delete_attachments(group=group, attachment_ids=[attachment.pk], young=young):
        raise InvalidInput("the attachment was updated in the last hour and cannot be deleted yet")


def delete_attachments(*, group: Group, attachment_ids: list[int], young: bool = False) -> set[str]:
    """Answers the keys that are gone; ones whose upload URL may still be in use stay."""
    deleted: set[str] = set()
    for start in range(0, len(attachment_ids), _BATCH):
        deleted |= _delete_batch(group, attachment_ids[start : start + _BATCH], young=young)
    return deleted


def _delete_batch(group: Group, ids: Collection[int], *, young: bool) -> set[str]:
    with transaction.atomic():
        rows = Attachment.objects.select_for_update().filter(group_id=group.pk, pk__in=ids)
        if not young:
            rows = rows.filter(updated_at__lte=clock.now() - DELETE_AFTER)
        found = list(rows.order_by("pk"))
        if not found:
            return set()
        # Objects first: if the store fails nothing else has happened, and a repetition is harmless.
        keys = [attachment_key(group.name, row.key) for row in found]
        get_storage().delete(Bucket.ATTACHMENTS, keys)
        Attachment.objects.filter(pk__in=[row.pk for row in found]).delete()
        refund_storage(group_id=group.pk, delta=sum(row.size + row.reserved for row in found))
    return {row.key for row in found}
