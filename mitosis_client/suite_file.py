"""A suite from a file: YAML, TOML or JSON with the members of `POST /suites`, and its tasks.

Shorter forms for people: a hook may be a line for the shell, `workers: 4` a worker schedule. Each
of `tasks` is a command with parameters as in `mitosis run`.
"""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, TypeAlias

import msgspec

from mitosis_client.calls.tasks import NewTask
from mitosis_client.errors import ConfigError
from mitosis_client.params import Row, checked_rows, rows_of, values_of
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.specs import EnvHookSpec, WorkerSchedule
from mitosis_protocol.suites import SuiteSpec

Value: TypeAlias = str | int | float | bool
HOOKS: Final = ("env_preparation", "env_cleanup")
HOOK_TIMEOUT: Final = "30m"


class TaskBlock(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tasks of one kind: a command, and the values that `{name}` stands for in it."""

    args: Annotated[list[str], msgspec.Meta(min_length=1)]
    params: dict[str, Value | list[Value]] = {}
    rows: str | None = None  # a file beside this one
    envs: dict[str, str] = {}
    tags: list[str] = []
    labels: list[str] = []
    timeout: str = "1h"
    priority: int = 0
    retry: dict[str, Any] | None = None
    limits: dict[str, Any] | None = None

    def sweep(self, folder: Path) -> list[Row]:
        """One row per task. Raises ConfigError."""
        given = {name: _values(value) for name, value in self.params.items()}
        return checked_rows(self.args, given, rows_of(folder / self.rows) if self.rows else ())

    def template(self, group: str, suite: str) -> NewTask:
        members = msgspec.structs.asdict(self)
        del members["params"], members["rows"]
        return NewTask(group_name=group, suite_uuid=suite, **members)


class SuiteFile(msgspec.Struct, frozen=True):
    """What a file describes."""

    spec: SuiteSpec
    blocks: list[tuple[TaskBlock, list[Row]]]


def read_suite(path: Path, *, group: str) -> SuiteFile:
    """The group may be left open in the file. Raises ConfigError."""
    try:
        document = _parse(path.suffix.lower(), path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: a table of members is needed")
    members = {"group_name": group, **document}
    try:
        blocks = msgspec.convert(members.pop("tasks", None) or [], list[TaskBlock])
        spec = msgspec.convert(_in_full(members), SuiteSpec)
        for block in blocks:
            block.template(group, "").body()  # refused before there is a suite without tasks
    except (msgspec.ValidationError, InvalidValue) as error:
        raise ConfigError(f"{path}: {error}") from error
    return SuiteFile(spec, [(block, block.sweep(path.parent)) for block in blocks])


def hook_of(text: str | None) -> EnvHookSpec | None:
    """A line for the shell; what it leaves in $MITOSIS_SUITE_DIR the tasks find there."""
    return None if text is None else EnvHookSpec(args=["sh", "-ec", text], timeout=HOOK_TIMEOUT)


def schedule_of(workers: int) -> WorkerSchedule:
    """So many workers on each host, with one task in store for each."""
    return WorkerSchedule(worker_count=workers, task_prefetch_count=workers)


def _in_full(members: Mapping[str, Any]) -> dict[str, Any]:
    """The short forms written out; what is wrong is left for the check that follows."""
    found = dict(members)
    for name in HOOKS:
        if isinstance(found.get(name), str):
            found[name] = msgspec.to_builtins(hook_of(found[name]))
    workers = found.get("workers")
    if isinstance(workers, int) and workers > 0 and "worker_schedule" not in found:
        del found["workers"]
        found["worker_schedule"] = msgspec.to_builtins(schedule_of(workers))
    return found


def _values(value: Value | list[Value]) -> list[Any]:
    """A text as on the command line (`1..5`, `a,b`); anything else as it stands there."""
    if isinstance(value, str):
        return list(values_of(value))
    return value if isinstance(value, list) else [value]


def _parse(suffix: str, text: str) -> Any:
    if suffix == ".toml":
        return tomllib.loads(text)
    if suffix == ".json":
        return json.loads(text)
    if suffix in (".yaml", ".yml"):
        return _yaml(text)
    raise ValueError("the name has to end in .yaml, .yml, .toml or .json")


def _yaml(text: str) -> Any:
    import yaml  # noqa: PLC0415 - 30 ms that only those who use it should wait

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
