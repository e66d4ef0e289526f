"""Model fields shared by the apps: enums stored as small integers, and sets of short texts.

Used by every app's models.py. Validation that belongs to the wire (limits, names) stays in
mitosis_protocol; these fields refuse what the database must never hold.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib.postgres.fields import ArrayField
from django.core.exceptions import ValidationError
from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper
from django.utils.functional import cached_property
from typing_extensions import override

from mitosis_protocol.enums import CodedEnum
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_TAG_BYTES, MAX_TAGS

if TYPE_CHECKING:
    _SmallInteger = models.SmallIntegerField[Any, Any]
    _Array = ArrayField[Any, Any]
else:
    # Django's own classes take no type arguments at run time.
    _SmallInteger = models.SmallIntegerField
    _Array = ArrayField


class EnumCodeField(_SmallInteger):
    """A CodedEnum in Python, its `.code` in a smallint column.

    Lookups and forms may give a member, a wire string or a code; anything else is refused before
    it reaches SQL. The choices follow the enum and stay out of migrations.
    """

    def __init__(self, enum: type[CodedEnum], *args: Any, **kwargs: Any) -> None:
        self.enum = enum
        self._given_validators = list(kwargs.get("validators") or ())
        kwargs["choices"] = [(member, member.value) for member in enum]
        super().__init__(*args, **kwargs)

    @cached_property
    @override
    def validators(self) -> list[Any]:
        # An integer field compares with the range of its column; a member is not a number.
        return [*self.default_validators, *self._given_validators]

    @override
    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("choices", None)
        if isinstance(kwargs.get("default"), CodedEnum):
            # Migrations must not depend on the enum member still being there by that name.
            kwargs["default"] = kwargs["default"].code
        return name, path, [self.enum, *args], kwargs

    def from_db_value(
        self, value: int | None, expression: object, connection: BaseDatabaseWrapper
    ) -> CodedEnum | None:
        return None if value is None else self.enum.from_code(value)

    @override
    def to_python(self, value: Any) -> Any:
        try:
            return self._member(value)
        except InvalidValue as error:
            raise ValidationError(str(error), code="invalid_choice") from error

    @override
    def get_prep_value(self, value: Any) -> Any:
        if hasattr(value, "resolve_expression"):
            return value
        member = self._member(value)
        return None if member is None else member.code

    @override
    def value_to_string(self, obj: models.Model) -> str:
        return str(self.value_from_object(obj))

    def _member(self, value: Any) -> CodedEnum | None:
        if value is None or isinstance(value, self.enum):
            return value
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise InvalidValue(f"a {type(value).__name__} is not a {self.enum.__name__}")
        if isinstance(value, CodedEnum):
            raise InvalidValue(f"a {type(value).__name__} is not a {self.enum.__name__}")
        if isinstance(value, str):
            # Forms and fixtures hand codes over as text.
            return self.enum.from_code(int(value)) if _is_code(value) else self.enum.parse(value)
        return self.enum.from_code(value)


def _is_code(text: str) -> bool:
    return text.removeprefix("-").isdecimal()


class TagArrayField(_Array):
    """A set of tags or labels in a text[] column, kept sorted and free of repetitions.

    A GIN index and its operators are the model's business. `max_items` counts after repetitions
    are gone, as the wire does.
    """

    default_items: ClassVar[int] = MAX_TAGS

    def __init__(self, *, max_items: int = MAX_TAGS, **kwargs: Any) -> None:
        self.max_items = max_items
        kwargs.pop("base_field", None)
        kwargs.setdefault("default", list)
        kwargs.setdefault("blank", True)
        super().__init__(models.TextField(), **kwargs)

    @override
    def deconstruct(self) -> Any:
        name, path, args, kwargs = super().deconstruct()
        kwargs.pop("base_field", None)
        if self.max_items != self.default_items:
            kwargs["max_items"] = self.max_items
        return name, path, args, kwargs

    @override
    def to_python(self, value: Any) -> Any:
        if value is None:
            return None
        try:
            return normalised_tags(super().to_python(value), max_items=self.max_items)
        except InvalidValue as error:
            raise ValidationError(str(error), code="invalid") from error

    @override
    def get_db_prep_value(
        self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False
    ) -> Any:
        if isinstance(value, list | tuple | set | frozenset):
            value = normalised_tags(value, max_items=self.max_items)
        return super().get_db_prep_value(value, connection, prepared)


def normalised_tags(tags: Iterable[object], *, max_items: int = MAX_TAGS) -> list[str]:
    """Sorted, unique, each 1 to 256 bytes without NUL; raises InvalidValue naming the culprit."""
    unique: set[str] = set()
    for tag in tags:
        if not isinstance(tag, str):
            raise InvalidValue(f"a tag must be text, not {type(tag).__name__}")
        if not tag:
            raise InvalidValue("a tag must not be empty")
        if "\x00" in tag:
            raise InvalidValue("a tag must not hold a NUL")
        if len(tag.encode("utf-8", "surrogatepass")) > MAX_TAG_BYTES:
            raise InvalidValue(f"the tag {tag[:32]!r}... is longer than {MAX_TAG_BYTES} bytes")
        unique.add(tag)
    if len(unique) > max_items:
        raise InvalidValue(f"{len(unique)} tags, but at most {max_items} are allowed")
    return sorted(unique)
