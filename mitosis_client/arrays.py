"""Many tasks at a time: as few requests as the limits allow. Submits are safe to repeat."""

from collections.abc import Sequence
from typing import Final

from mitosis_client.calls.tasks import NewTask
from mitosis_client.client import Client
from mitosis_client.models import SubmittedArray, TasksCancelled
from mitosis_client.params import Row, slices
from mitosis_protocol.limits import MAX_BULK_BODY_BYTES, MAX_LIST_ITEMS

# The rows of one request leave room for the template.
MAX_ROWS_BYTES: Final = MAX_BULK_BODY_BYTES * 3 // 4


def submit_rows(client: Client, template: NewTask, rows: Sequence[Row]) -> SubmittedArray:
    """One task per row; all of a part are taken or none."""
    parts = [
        client.tasks.submit_array(template, part) for part in slices(rows, max_bytes=MAX_ROWS_BYTES)
    ]
    uuids = [uuid for part in parts for uuid in part.uuids]
    return SubmittedArray(
        first_task_id=parts[0].first_task_id,
        last_task_id=parts[-1].last_task_id,
        count=len(uuids),
        uuids=uuids,
        suite_uuid=parts[0].suite_uuid,
    )


def cancel_tasks(client: Client, uuids: Sequence[str]) -> TasksCancelled:
    """All of them, however many."""
    parts = [
        client.tasks.cancel_many(uuids[start : start + MAX_LIST_ITEMS])
        for start in range(0, len(uuids), MAX_LIST_ITEMS)
    ]
    return TasksCancelled(
        cancelled_count=sum(part.cancelled_count for part in parts),
        cancelling_count=sum(part.cancelling_count for part in parts),
        failed_uuids=[uuid for part in parts for uuid in part.failed_uuids],
    )
