"""The OpenAPI schema of a msgspec struct, with every reference in place.

For bodies that other wires share (TaskSpec, SuiteSpec), so that they are described once. Used by
the API modules of every app.
"""

from collections.abc import Mapping
from typing import Any

import msgspec


def openapi_schema(body: type[msgspec.Struct]) -> dict[str, Any]:
    """The schema of `body` as OpenAPI 3.0 writes it, with every reference in place."""
    [schema], components = msgspec.json.schema_components([body])
    inlined = _inline(schema, components)
    if not isinstance(inlined, dict):
        raise TypeError(f"{body.__name__} has no object schema")
    return inlined


def _inline(node: Any, components: Mapping[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline(item, components) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = components[node["$ref"].rsplit("/", 1)[-1]]
        rest = {name: value for name, value in node.items() if name != "$ref"}
        return {**_inline(target, components), **_inline(rest, components)}
    choices = node.get("anyOf")
    if choices is not None:
        return _inline_choice(node, choices, components)
    converted = {name: _inline(value, components) for name, value in node.items()}
    return _as_openapi_3_0(converted)


def _inline_choice(node: dict[str, Any], choices: list[Any], components: Mapping[str, Any]) -> Any:
    """`X or null` has a keyword of its own in OpenAPI 3.0."""
    kinds = [_inline(choice, components) for choice in choices if choice != {"type": "null"}]
    rest = {name: _inline(value, components) for name, value in node.items() if name != "anyOf"}
    if rest.get("default", ...) is None:
        del rest["default"]
    inner = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
    nullable = {"nullable": True} if len(kinds) < len(choices) else {}
    return {**inner, **nullable, **rest}


def _as_openapi_3_0(schema: dict[str, Any]) -> dict[str, Any]:
    """3.0 has no tuples, no rules for names and no empty `required`; exclusive bounds are flags."""
    schema.pop("propertyNames", None)
    if schema.get("required") == []:
        del schema["required"]
    prefix = schema.pop("prefixItems", None)
    if prefix is not None:
        schema["items"] = {"anyOf": prefix}
    for bound, flag in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        limit = schema.get(flag)
        if limit is not None and not isinstance(limit, bool):
            schema[bound], schema[flag] = limit, True
    return schema
