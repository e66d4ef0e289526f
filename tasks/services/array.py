"""Take an array in: one template, up to 100,000 parameter rows, written with COPY.

`{name}` in the template's arguments, environment values and labels stands for a row's parameter of
that name; braces around anything else stay as they are. One transaction, so all tasks or none.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final
from uuid import UUID, uuid4

import msgspec

from core.errors import InvalidInput, LimitExceeded
from mitosis_protocol.limits import MAX_ARRAY_TASKS
from tasks import store
from tasks.new_task import Dependency, Links, NewTask, checked_spec, checked_tags, lane_of
from tasks.rows import Reserved
from tasks.services.graph import Plan, plan_links, store_edges
from tasks.services.idempotency import Idempotency, once
from tasks.services.submit import Target

# Rows of one COPY: well below the statement timeout even on a loaded server.
COPY_ROWS: Final = 20_000

_json: Final = msgspec.json.Encoder()
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


class ArrayRow(msgspec.Struct, frozen=True):
    """What differs from the template; `depends_on` may name other rows by index."""

    params: Mapping[str, str] = {}
    priority: int | None = None
    depends_on: tuple[Dependency, ...] = ()


class SubmittedArray(msgspec.Struct, frozen=True):
    """Tasks in row order: row i is `uuids[i]` with number `first_number` + i."""

    first_number: int
    uuids: list[UUID]


def submit_array(
    *,
    target: Target,
    creator_id: int,
    template: NewTask,
    rows: Sequence[ArrayRow],
    idempotency: Idempotency | None = None,
    prepare: Callable[[], None] | None = None,
) -> SubmittedArray:
    """Take one task per row. Raises InvalidInput, LimitExceeded, Conflict (key reused).

    Not to be called inside a transaction: what must be atomic with the tasks goes to `prepare`.
    """
    if not rows:
        raise InvalidInput("an array needs at least one row")
    if len(rows) > MAX_ARRAY_TASKS:
        raise LimitExceeded(f"{len(rows)} rows, at most {MAX_ARRAY_TASKS} are allowed")
    expansion = _Expansion(template, rows)
    reserved = _reserve(target, len(rows))
    return once(
        idempotency,
        SubmittedArray,
        lambda: _write(target, creator_id, expansion, reserved),
        prepare=prepare,
    )


def _reserve(target: Target, count: int) -> Reserved:
    """In a transaction of its own: nobody who submits to the group waits for our COPY."""
    found = store.RESERVE.fetch_sync({"group_id": target.group_id, "count": count})
    if not found:
        raise InvalidInput("the group does not exist")
    return found[0]


def _write(
    target: Target, creator_id: int, expansion: "_Expansion", reserved: Reserved
) -> SubmittedArray:
    plan = plan_links(
        [row.depends_on for row in expansion.rows],
        ids=reserved.ids,
        group_id=target.group_id,
        suite_id=target.suite_id,
    )
    uuids = [uuid4() for _ in expansion.rows]
    fixed = (target.group_id, creator_id)
    rows = (
        (links.id, uuid, *fixed, reserved.first_number + place, target.suite_id, *columns)
        for place, (links, uuid, columns) in enumerate(
            zip(plan.links, uuids, expansion.columns(plan), strict=True)
        )
    )
    ids = [links.id for links in plan.links if links.id is not None]
    for start in range(0, len(ids), COPY_ROWS):
        store.copy_tasks(
            islice(rows, COPY_ROWS), ids=ids[start : start + COPY_ROWS], suite_id=target.suite_id
        )
    store_edges(plan)
    return SubmittedArray(reserved.first_number, uuids)


class _Expansion:
    """The template cut at its placeholders once, joined with each row's values."""

    def __init__(self, template: NewTask, rows: Sequence[ArrayRow]) -> None:
        self.rows = rows
        self._template = template
        tags, labels = checked_tags(template)
        self._tags = tags
        self._lane = lane_of(tags, template.pinned_runner_id)
        self._labels = labels
        names = _checked_names({name for row in rows for name in row.params})
        cut = _Cutter(names)
        self._spec = _spec_text(cut, template)
        self._label_texts = [cut.plain(label) for label in labels]
        self._fixed_labels = not any(text.names for text in self._label_texts)

    def columns(self, plan: Plan) -> Iterator[tuple[object, ...]]:
        """COPY_COLUMNS from `priority` on."""
        template, retry = self._template, self._template.retry
        rest = (
            *(retry.max_failures, retry.max_attempts, retry.backoff_s, retry.backoff_max_s),
            *(_json_or_none(retry.retry_on), template.concurrency_key),
            *(_json_or_none(template.affinity), _json_or_none(template.resource_refs)),
            *(_json_or_none(template.middleware), _json_or_none(template.limits)),
            template.pinned_runner_id,
        )
        for place, (row, links) in enumerate(zip(self.rows, plan.links, strict=True)):
            try:
                yield (*self._own_columns(row, links), *rest)
            except InvalidInput as error:
                raise InvalidInput(f"row {place}: {error.message}") from error

    def _own_columns(self, row: ArrayRow, links: Links) -> tuple[object, ...]:
        values = {name: _checked_value(name, value) for name, value in row.params.items()}
        escaped = {name: _json.encode(value)[1:-1].decode() for name, value in values.items()}
        return (
            self._template.priority if row.priority is None else row.priority,
            self._tags,
            self._labels if self._fixed_labels else self._labels_of(values),
            self._lane,
            self._template.timeout_s,
            checked_spec(self._spec.join(escaped)),
            links.state.code,
            links.waiting_on,
            links.dependents,
        )

    def _labels_of(self, values: Mapping[str, str]) -> list[str]:
        labels = [text.join(values) for text in self._label_texts]
        return checked_tags(msgspec.structs.replace(self._template, labels=labels))[1]


class _Text(msgspec.Struct, frozen=True):
    """Literals and names in turn: literals[0] names[0] literals[1] names[1] ... literals[-1]."""

    literals: list[str]
    names: list[str]

    def join(self, values: Mapping[str, str]) -> str:
        if not self.names:
            return self.literals[0]
        parts = [self.literals[0]]
        for name, literal in zip(self.names, self.literals[1:], strict=True):
            value = values.get(name)
            if value is None:
                raise InvalidInput(f"the parameter {name!r} has no value")
            parts += (value, literal)
        return "".join(parts)


class _Cutter:
    def __init__(self, names: set[str]) -> None:
        longest_first = sorted(names, key=len, reverse=True)
        choices = "|".join(re.escape(name) for name in longest_first)
        self._pattern = re.compile(rf"\{{({choices})\}}") if names else None

    def plain(self, text: str) -> _Text:
        if self._pattern is None:
            return _Text([text], [])
        parts = self._pattern.split(text)
        return _Text(parts[0::2], parts[1::2])


def _spec_text(cut: _Cutter, template: NewTask) -> _Text:
    """The spec's JSON with placeholders only where a value may stand: arguments and environment."""
    whole = msgspec.json.decode(_json.encode(template.spec))
    pieces = [_Text(['{"args":['], [])]
    for place, argument in enumerate(whole.pop("args")):
        pieces += [_Text(["," if place else ""], []), cut.plain(_json.encode(argument).decode())]
    pieces.append(_Text(['],"envs":{'], []))
    for place, (name, value) in enumerate(whole.pop("envs").items()):
        key = ("," if place else "") + _json.encode(name).decode() + ":"
        pieces += [_Text([key], []), cut.plain(_json.encode(value).decode())]
    pieces.append(_Text(["}," + _json.encode(whole).decode()[1:]], []))
    return _chain(pieces)


def _chain(pieces: Sequence[_Text]) -> _Text:
    literals, names = [""], list[str]()
    for piece in pieces:
        literals[-1] += piece.literals[0]
        literals += piece.literals[1:]
        names += piece.names
    return _Text(literals, names)


def _checked_names(names: set[str]) -> set[str]:
    odd = sorted(name for name in names if _NAME.fullmatch(name) is None)
    if odd:
        raise InvalidInput(f"{odd[0][:64]!r} cannot name a parameter: use letters, digits and _")
    return names


def _checked_value(name: str, value: str) -> str:
    if "\x00" in value:
        raise InvalidInput(f"the parameter {name!r} holds a NUL")
    return value


def _json_or_none(value: object) -> str | None:
    return None if value is None else _json.encode(value).decode()
