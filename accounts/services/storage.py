"""Storage accounting of a group: what uploads charge, what deletions give back, and the quota.

Called by the attachment and artifact services of tasks and by the admin API.
"""

from django.db import transaction
from django.db.models import F
from django.db.models.functions import Now

from accounts.actors import Actor
from accounts.models import Group
from accounts.selectors import get_group
from accounts.services.audit import record
from accounts.services.quotas import apply_change
from core.errors import InvalidInput, NotFound, QuotaExceeded
from mitosis_protocol.enums import GroupState
from mitosis_protocol.sizes import MAX_SIZE, QuotaChange


def charge_storage(*, group_id: int, delta: int) -> None:
    """Charge `delta` bytes in one guarded UPDATE, so that races cannot pass the quota.

    Zero is allowed over quota (a re-upload that does not grow) but still needs an Active group.
    """
    if delta < 0:
        raise ValueError("a charge is not negative; use refund_storage")
    rows = Group.objects.filter(pk=group_id, state=GroupState.ACTIVE)
    if delta == 0:
        charged = rows.exists()
    elif delta > MAX_SIZE // 2:  # beyond any quota, and the sum would overflow the column
        charged = False
    else:
        within = rows.filter(storage_quota__gte=F("storage_used") + delta)
        new_value = F("storage_used") + delta
        charged = within.update(storage_used=new_value, updated_at=Now()) == 1
    if not charged:
        _raise_why_refused(group_id)


def refund_storage(*, group_id: int, delta: int) -> None:
    """Give `delta` bytes back. Below zero is a bug and fails on the check constraint."""
    if delta < 0:
        raise ValueError("a refund is not negative; use charge_storage")
    if delta:
        rows = Group.objects.filter(pk=group_id)
        rows.update(storage_used=F("storage_used") - delta, updated_at=Now())


def change_storage_quota(*, actor: Actor, group_name: str, change: QuotaChange) -> int:
    """Apply a new quota or a difference; may go below what is used, or below zero."""
    with transaction.atomic():
        group = Group.objects.select_for_update(no_key=True).get(pk=get_group(group_name).pk)
        quota = apply_change(change, group.storage_quota)
        group.storage_quota = quota
        group.save(update_fields=["storage_quota", "updated_at"])
        detail = {"quota": quota}
        record(actor=actor, action="group.storage_quota", target=group_name, detail=detail)
    return quota


def _raise_why_refused(group_id: int) -> None:
    group = Group.objects.filter(pk=group_id).first()
    if group is None:
        raise NotFound("Group not found")
    if group.state != GroupState.ACTIVE:
        raise InvalidInput(f"Group {group.name} is not active")
    raise QuotaExceeded
