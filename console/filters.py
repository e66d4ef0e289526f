"""What a list's address asks for. Wrong values are refused with the field's name.

Filters live in the address, so that a list can be kept, shared and gone back to.
"""

from collections.abc import Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.http import QueryDict

from accounts.selectors import find_group
from console.selectors.failures import Cursor, FailureFilter
from console.selectors.managers import STATES as MANAGER_STATES
from console.selectors.managers import WISHES, ManagerListFilter
from console.selectors.suites import HALTS
from console.selectors.tasks import NEWEST, TaskListFilter
from console.selectors.tasks import STATES as TASK_STATES
from core.errors import InvalidInput
from mitosis_protocol.enums import SuiteState
from runners.models import Runner
from suites.models import TaskSuite
from suites.selectors import SuiteFilter

WINDOWS: Final = {
    "1h": timedelta(hours=1),
    "24h": timedelta(hours=24),
    "7d": timedelta(days=7),
    "30d": timedelta(days=30),
}
DEFAULT_WINDOW: Final = "24h"
SUITE_STATES: Final = {
    "live": (SuiteState.OPEN, SuiteState.CLOSED),
    **{state.value.lower(): (state,) for state in SuiteState},
}
_MAX_TEXT: Final = 256
_NOWHERE: Final = 0  # no row has this id


@dataclass(frozen=True, slots=True)
class SuiteQuery:
    wanted: SuiteFilter
    halt: str
    before: int | None


def suite_query(query: QueryDict) -> SuiteQuery:
    state = _choice(query, "state", SUITE_STATES)
    label = _text(query, "label")
    return SuiteQuery(
        SuiteFilter(
            group_name=_text(query, "group"),
            states=None if state is None else SUITE_STATES[state],
            name_contains=_text(query, "q"),
            labels=None if label is None else [label],
        ),
        _choice(query, "halt", HALTS) or "",
        _whole(query, "before"),
    )


def manager_query(query: QueryDict) -> tuple[ManagerListFilter, int | None]:
    wanted = ManagerListFilter(
        state=_choice(query, "state", MANAGER_STATES),
        wish=_choice(query, "wish", WISHES),
        group_name=_text(query, "group"),
        tag=_text(query, "tag"),
    )
    return wanted, _whole(query, "before")


def task_query(query: QueryDict) -> tuple[TaskListFilter, int]:
    wanted = TaskListFilter(
        state=_choice(query, "state", TASK_STATES),
        group_id=_group_id(query),
        suite_id=_suite_id(query),
        runner_id=_runner_id(query),
        label=_text(query, "label"),
    )
    before = _whole(query, "before")
    return wanted, NEWEST if before is None else before


def failure_query(query: QueryDict) -> tuple[FailureFilter, Cursor]:
    window = _choice(query, "window", WINDOWS) or DEFAULT_WINDOW
    wanted = FailureFilter(
        window=WINDOWS[window],
        group_id=_group_id(query),
        suite_id=_suite_id(query),
        runner_id=_runner_id(query),
        cause=_text(query, "cause") or "",
    )
    return wanted, _cursor(query)


def cursor_text(at: datetime, row_id: int) -> str:
    """Microseconds since the epoch and the id: what a link to older failures carries."""
    elapsed = at - datetime(1970, 1, 1, tzinfo=UTC)
    return f"{elapsed // timedelta(microseconds=1)}-{row_id}"


def named_uuid(query: QueryDict, name: str) -> UUID | None:
    text = _text(query, name)
    if text is None:
        return None
    try:
        return UUID(text)
    except ValueError as error:
        raise InvalidInput(f"{name}: this is not a uuid") from error


def _cursor(query: QueryDict) -> Cursor:
    text = _text(query, "before")
    if text is None:
        return Cursor()
    at, _, row_id = text.partition("-")
    if not (at.isdecimal() and row_id.isdecimal() and len(at) < 18 and len(row_id) < 19):
        raise InvalidInput("before: this is not a place in the list")
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=int(at))
    return Cursor(moment, int(row_id))


def _text(query: QueryDict, name: str) -> str | None:
    text = query.get(name, "").strip()
    if "\x00" in text or len(text) > _MAX_TEXT:
        raise InvalidInput(f"{name}: at most {_MAX_TEXT} characters, none of them NUL")
    return text or None


def _choice(query: QueryDict, name: str, known: Collection[str]) -> str | None:
    text = _text(query, name)
    if text is not None and text not in known:
        raise InvalidInput(f"{name}: it has to be one of {', '.join(known)}")
    return text


def _whole(query: QueryDict, name: str) -> int | None:
    text = _text(query, name)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        raise InvalidInput(f"{name}: a whole number is needed")
    return int(text)


def _group_id(query: QueryDict) -> int | None:
    """An unknown group is a place without rows, as one of others is."""
    name = _text(query, "group")
    if name is None:
        return None
    group = find_group(name)
    return _NOWHERE if group is None else group.pk


def _suite_id(query: QueryDict) -> int | None:
    uuid = named_uuid(query, "suite")
    if uuid is None:
        return None
    return TaskSuite.objects.filter(uuid=uuid).values_list("pk", flat=True).first() or _NOWHERE


def _runner_id(query: QueryDict) -> int | None:
    uuid = named_uuid(query, "runner")
    if uuid is None:
        return None
    return Runner.objects.filter(uuid=uuid).values_list("pk", flat=True).first() or _NOWHERE
