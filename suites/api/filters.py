"""Which suites a caller asks for: query parameters of the list, body of the query route."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from django.conf import settings
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request

from core.errors import InvalidInput
from mitosis_protocol.enums import SuiteState
from mitosis_protocol.errors import InvalidValue
from suites.api.bodies import MAX_OFFSET
from suites.selectors import SuiteFilter

MAX_TEXTS: Final = 64  # of one parameter
_SET: Final = "With commas, or repeated; a suite has all of them."

PARAMETERS: Final = [
    OpenApiParameter("group_name", OpenApiTypes.STR),
    OpenApiParameter("tags", OpenApiTypes.STR, description=_SET),
    OpenApiParameter("labels", OpenApiTypes.STR, description=_SET),
    OpenApiParameter("state", OpenApiTypes.STR, description="With commas, or repeated: any."),
    OpenApiParameter("name", OpenApiTypes.STR, description="Part of it, whatever the case."),
    OpenApiParameter("limit", OpenApiTypes.INT),
    OpenApiParameter("offset", OpenApiTypes.INT),
]


@dataclass(frozen=True, slots=True)
class Asked:
    """A filter and a page of what it finds."""

    wanted: SuiteFilter
    limit: int
    offset: int


def asked_in_query(request: Request) -> Asked:
    """From query parameters; raises InvalidInput naming the parameter."""
    states = _texts(request, "state")
    policy = settings.MITOSIS
    return Asked(
        SuiteFilter(
            group_name=_text(request, "group_name"),
            tags=_texts(request, "tags"),
            labels=_texts(request, "labels"),
            states=None if states is None else [_state(one) for one in states],
            name_contains=_text(request, "name"),
        ),
        limit=_number(request, "limit", default=policy.page_rows, most=policy.page_rows_max),
        offset=_number(request, "offset", default=0, most=MAX_OFFSET),
    )


def asked_in_body(body: Mapping[str, Any]) -> Asked:
    """From a validated SuiteQueryBody."""
    policy = settings.MITOSIS
    limit = body.get("limit")
    return Asked(
        SuiteFilter(
            group_name=body.get("group_name"),
            tags=body.get("tags"),
            labels=body.get("labels"),
            states=body.get("states"),
            name_contains=body.get("name"),
        ),
        limit=policy.page_rows if limit is None else min(limit, policy.page_rows_max),
        offset=body.get("offset") or 0,
    )


def _text(request: Request, name: str) -> str | None:
    text = request.query_params.get(name)
    if text is not None and "\x00" in text:
        raise InvalidInput(f"{name}: a text must not hold a NUL")
    return text


def _texts(request: Request, name: str) -> list[str] | None:
    values = request.query_params.getlist(name)
    if not values:
        return None
    texts = [text for value in values for text in value.split(",")]
    if len(texts) > MAX_TEXTS or not all(texts) or any("\x00" in text for text in texts):
        raise InvalidInput(f"{name}: 1 to {MAX_TEXTS} texts, none of them empty")
    return texts


def _number(request: Request, name: str, *, default: int, most: int) -> int:
    text = request.query_params.get(name)
    if text is None:
        return default
    if not text.isascii() or not text.isdecimal() or len(text) > 10 or int(text) > most:
        raise InvalidInput(f"{name}: a whole number from 0 to {most}")
    return int(text)


def _state(text: str) -> SuiteState:
    try:
        return SuiteState.parse(text)
    except InvalidValue as error:
        raise InvalidInput(f"state: {error}") from error
