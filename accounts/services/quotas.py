"""Quota arithmetic shared by group and storage quotas."""

from core.errors import InvalidInput
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.sizes import QuotaChange


def apply_change(change: QuotaChange, present: int, *, floor: int | None = None) -> int:
    """The quota after `change`; raises InvalidInput for one that no column could hold."""
    try:
        return change.apply(present, floor=floor)
    except InvalidValue as error:
        raise InvalidInput(str(error)) from error
