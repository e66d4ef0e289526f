"""Request bodies: strict fields and the one way a view reads JSON.

DRF's own fields turn `1` into `"1"` and `"yes"` into True; these refuse what has the wrong type.
A body of the wrong shape is 422, broken JSON 400 (core.drf). Any app's API may use them.
"""

from typing import Any

from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from typing_extensions import override

from core.fields import normalised_tags
from mitosis_protocol.enums import CodedEnum
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_TAGS

MD5_BYTES = 16
_SHOWN_CHARS = 64


class WrongShape(ValidationError):
    """Valid JSON whose members are missing or of the wrong type."""

    status_code = 422


def read_body(request: Request, body: "type[serializers.Serializer[Any]]") -> dict[str, Any]:
    """The validated members of the request's JSON; unknown members are ignored."""
    serializer = body(data=request.data)
    if not serializer.is_valid():
        raise WrongShape(serializer.errors)
    return dict(serializer.validated_data)


class TextField(serializers.CharField):
    """A JSON string, kept exactly as it came."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(trim_whitespace=False, **{"allow_blank": True, **kwargs})

    @override
    def to_internal_value(self, data: object) -> str:
        if not isinstance(data, str):
            self.fail("invalid")
        return super().to_internal_value(data)


class FlagField(serializers.BooleanField):
    """A JSON boolean."""

    @override
    def to_internal_value(self, data: object) -> bool:
        if not isinstance(data, bool):
            self.fail("invalid", input=str(data)[:_SHOWN_CHARS])
        return data


class WholeNumberField(serializers.IntegerField):
    """A JSON integer; neither `"1"` nor `1.0` nor `true`."""

    @override
    def to_internal_value(self, data: object) -> int:
        if not isinstance(data, int) or isinstance(data, bool):
            self.fail("invalid")
        return data


class Md5Field(serializers.ListField):
    """The 16 raw bytes of an MD5 digest as integers; validated to `bytes`."""

    child = WholeNumberField(min_value=0, max_value=255)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"min_length": MD5_BYTES, "max_length": MD5_BYTES, **kwargs})

    @override
    def run_validation(self, data: Any = serializers.empty) -> Any:
        validated = super().run_validation(data)
        return bytes(validated) if isinstance(validated, list) else validated


class TagsField(serializers.ListField):
    """A set of tags or labels; repetitions collapse, order is not kept."""

    child = TextField()

    def __init__(self, *, max_items: int = MAX_TAGS, **kwargs: Any) -> None:
        self.max_items = max_items
        super().__init__(**kwargs)

    @override
    def run_validation(self, data: Any = serializers.empty) -> Any:
        texts = super().run_validation(data)
        if not isinstance(texts, list):
            return texts
        try:
            return normalised_tags(texts, max_items=self.max_items)
        except InvalidValue as error:
            raise ValidationError(str(error)) from error


class EnumField(serializers.ChoiceField):
    """A member of a CodedEnum by wire string or accepted alias; shown as the wire string."""

    def __init__(self, enum: type[CodedEnum], **kwargs: Any) -> None:
        self.enum = enum
        spellings = [text for member in enum for text in (member.value, *member.aliases)]
        super().__init__(choices=spellings, **kwargs)

    @override
    def to_internal_value(self, data: object) -> CodedEnum:
        if not isinstance(data, str) or data not in self.choices:
            self.fail("invalid_choice", input=str(data)[:_SHOWN_CHARS])
        return self.enum.parse(data)

    @override
    def to_representation(self, value: str) -> str:
        return str(value.value) if isinstance(value, CodedEnum) else value
