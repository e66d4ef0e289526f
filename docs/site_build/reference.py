"""Writes the reference pages from what the code exports: the OpenAPI document and JSON Schemas.

Built with the site, never committed: they cannot be out of date.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[2]
METHODS = ("get", "post", "put", "patch", "delete")
SCHEMA_FOLDERS = ("protocol", "schema/ws")


def http_api() -> str:
    """Every route with what it takes and answers, by the first word of its path."""
    command = [
        *(sys.executable, "-W", "ignore", "manage.py", "spectacular"),
        *("--settings", "mitosis_site.settings.test"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"the OpenAPI document could not be made:\n{done.stderr}")
    return "\n".join(_routes(yaml.safe_load(done.stdout)))


def _routes(document: dict[str, Any]) -> Iterator[str]:
    section = None
    for path in sorted(document["paths"], key=lambda text: (text.split("/")[1], text)):
        first = path.split("/")[1] or "/"
        if first != section:
            section = first
            yield f"\n## {first}\n"
        for method in METHODS:
            if method in document["paths"][path]:
                yield from _route(method, path, document["paths"][path][method])


def _route(method: str, path: str, operation: dict[str, Any]) -> Iterator[str]:
    yield f"\n### `{method.upper()} {path}`\n"
    text = operation.get("description") or operation.get("summary") or ""
    yield _plain(text)
    rows = [
        f"| {item['in']} | `{item['name']}` | {_type(item.get('schema', {}))} "
        f"| {'yes' if item.get('required') else ''} |"
        for item in operation.get("parameters", ())
    ]
    if rows:
        yield from ("", "| in | name | type | required |", "|---|---|---|---|", *rows)
    body = operation.get("requestBody", {}).get("content", {})
    if body:
        kinds = ", ".join(_type(next(iter(body.values())).get("schema", {})).split(" | "))
        yield f"\nBody: {kinds}"
    answers = [
        f"| {status} | {_plain(answer.get('description', ''))} | {_answer(answer)} |"
        for status, answer in sorted(operation.get("responses", {}).items())
    ]
    yield from ("", "| answer | meaning | body |", "|---|---|---|", *answers)


def _answer(answer: dict[str, Any]) -> str:
    content = answer.get("content", {})
    return _type(next(iter(content.values())).get("schema", {})) if content else ""


def protocol() -> str:
    """Every message of every exported schema, field by field."""
    lines: list[str] = []
    for folder in SCHEMA_FOLDERS:
        for file in sorted((ROOT / "docs" / folder).glob("*.json")):
            lines += _schema(file.relative_to(ROOT / "docs"), json.loads(file.read_text()))
    return "\n".join(lines)


def _schema(path: Path, schema: dict[str, Any]) -> Iterator[str]:
    yield f"\n## {path.stem}\n\nFile: [{path}](../{path})\n"
    types = schema.get("$defs") or {schema.get("title", path.stem): schema}
    for name, definition in types.items():
        yield from _definition(f"{path.stem}: {name}", definition)


def _definition(title: str, definition: dict[str, Any]) -> Iterator[str]:
    yield f"\n### {title}\n"
    yield _plain(definition.get("description", ""))
    properties = definition.get("properties", {})
    if not properties:
        yield f"\nOne of: {_type(definition)}" if _type(definition) else ""
        return
    required = set(definition.get("required", ()))
    yield from ("", "| field | type | required | default |", "|---|---|---|---|")
    for name, field in properties.items():
        default = json.dumps(field["default"]) if "default" in field else ""
        shown = f"`{default}`" if default else ""
        yield f"| `{name}` | {_type(field)} | {'yes' if name in required else ''} | {shown} |"


def _type(schema: dict[str, Any] | bool) -> str:
    if isinstance(schema, bool):  # JSON Schema for "anything"
        return "anything"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " or ".join(_type(one) for one in schema[several])
    values = schema.get("enum") or [schema[key] for key in ("const",) if key in schema]
    if values:
        return ", ".join(f"`{value}`" for value in values)
    return _simple_type(schema)


def _simple_type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return f"`{schema['$ref'].rpartition('/')[2]}`"
    if schema.get("type") == "array":
        return f"array of {_type(schema.get('items', {})) or 'anything'}"
    kind = schema.get("type", "")
    named = kind if isinstance(kind, str) else " or ".join(kind)
    return f"{named} ({schema['format']})" if "format" in schema else named


def _plain(text: str) -> str:
    """One line that a table cell can hold."""
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")
