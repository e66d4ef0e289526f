"""A check constraint for columns that hold the codes of an enum; used by models of any app."""

from django.db.models import CheckConstraint, Q

from mitosis_protocol.enums import CodedEnum


def known_codes(name: str, field: str, enum: type[CodedEnum]) -> CheckConstraint:
    """Refuse integers that no member has. Codes, not members, so migrations keep standing."""
    codes = [member.code for member in enum]
    return CheckConstraint(name=name, condition=Q(**{f"{field}__in": codes}))
