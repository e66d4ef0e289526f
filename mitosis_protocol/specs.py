"""What a task, a hook and a worker plan are made of, as they cross every wire.

The coordinator stores TaskSpec as jsonb, the agent runs it, the client builds it. Rules that a
type cannot say are checked in `__post_init__`, so a decoded spec is a valid one. Unknown members
are ignored, as the existing server does.
"""

import re
from typing import Annotated, Final, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from mitosis_protocol.durations import parse_duration
from mitosis_protocol.enums import ArtifactContentType, CpuStrategy, TaskExecState
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import (
    MAX_ARGS,
    MAX_ATTACHMENT_KEY_BYTES,
    MAX_ENV_BYTES,
    MAX_LOCAL_PATH_BYTES,
    MAX_PREFETCH,
    MAX_RESOURCES,
    MAX_WORKERS,
    max_prefetch,
)
from mitosis_protocol.node_calls import NodeCall

Int32: TypeAlias = Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)]
Int64: TypeAlias = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Args: TypeAlias = Annotated[list[str], Meta(max_length=MAX_ARGS)]

MAX_CORES: Final = 4096  # more than any host has; bounds what a user can make us store

Core: TypeAlias = Annotated[int, Meta(ge=0, lt=MAX_CORES)]

_ENV_NAME: Final = re.compile(r"[^=\x00]+")


class ArtifactRef(msgspec.Struct, frozen=True):
    """An archive left by another task of the same group."""

    uuid: UUID
    content_type: ArtifactContentType


class AttachmentRef(msgspec.Struct, frozen=True):
    """A file uploaded to the group."""

    key: str

    def __post_init__(self) -> None:
        check_attachment_key(self.key)


class RemoteResource(
    msgspec.Struct,
    frozen=True,
    omit_defaults=True,
    rename={"artifact": "Artifact", "attachment": "Attachment"},
):
    """Externally tagged: `{"Artifact": {...}}` or `{"Attachment": {...}}`, exactly one."""

    artifact: ArtifactRef | None = None
    attachment: AttachmentRef | None = None

    def __post_init__(self) -> None:
        if (self.artifact is None) == (self.attachment is None):
            raise InvalidValue("a remote file is either an Artifact or an Attachment")


class ResourceRef(msgspec.Struct, frozen=True):
    """A remote file and where it goes below the resource directory."""

    remote_file: RemoteResource
    local_path: str

    def __post_init__(self) -> None:
        check_local_path(self.local_path)


Resources: TypeAlias = Annotated[list[ResourceRef], Meta(max_length=MAX_RESOURCES)]


class TaskSpec(msgspec.Struct, frozen=True):
    """One command to run. `args` may be empty here: the existing server takes it too.

    With `node` it is a call of a handler in a direct worker instead, and `args` are not run.
    """

    args: Args
    envs: dict[str, str] = {}
    resources: Resources = []
    terminal_output: bool = False
    watch: tuple[UUID, TaskExecState] | None = None
    # Unset, not null, where it is absent: existing workers get the spec as it is stored.
    node: NodeCall | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        check_args(self.args)
        check_envs(self.envs)


class EnvHookSpec(msgspec.Struct, frozen=True):
    """A command run once per host, before the first task or after the last."""

    args: Annotated[list[str], Meta(min_length=1, max_length=MAX_ARGS)]
    timeout: str
    envs: dict[str, str] = {}
    resources: Resources = []

    def __post_init__(self) -> None:
        check_args(self.args)
        check_envs(self.envs)
        if self.timeout_s == 0:
            raise InvalidValue("a hook needs a timeout above zero")

    @property
    def timeout_s(self) -> int:
        """The timeout in whole seconds."""
        return parse_duration(self.timeout)


class CpuBinding(msgspec.Struct, frozen=True):
    """Which cores the workers get: named ones, or so many each from whatever the host has."""

    strategy: CpuStrategy = CpuStrategy.ROUND_ROBIN
    cores: Annotated[
        list[Annotated[int, Meta(ge=0, lt=MAX_CORES)]], Meta(max_length=MAX_CORES)
    ] = []
    cores_per_worker: Annotated[int, Meta(ge=1, le=MAX_CORES)] | None = None

    def __post_init__(self) -> None:
        if len(set(self.cores)) != len(self.cores):
            raise InvalidValue("a core is named twice")


class WorkerSchedule(msgspec.Struct, frozen=True):
    """How many workers a suite wants on each host and how far they read ahead."""

    worker_count: Annotated[int, Meta(ge=1, le=MAX_WORKERS)]
    task_prefetch_count: Annotated[int, Meta(ge=0, le=MAX_PREFETCH)] = 0
    cpu_binding: CpuBinding | None = None

    def __post_init__(self) -> None:
        most = max_prefetch(self.worker_count)
        if self.task_prefetch_count > most:
            raise InvalidValue(
                f"{self.worker_count} workers may prefetch at most {most} tasks, "
                f"not {self.task_prefetch_count}"
            )


def check_args(args: list[str]) -> None:
    """Refuse what no process can be started with."""
    if any("\x00" in argument for argument in args):
        raise InvalidValue("an argument holds a NUL")


def check_envs(envs: dict[str, str]) -> None:
    """Refuse names and values that execve cannot carry, and more of them than it takes."""
    size = 0
    for name, value in envs.items():
        if _ENV_NAME.fullmatch(name) is None:
            raise InvalidValue(
                f"{name[:64]!r} cannot name an environment variable: "
                "it must not be empty nor hold `=` or NUL"
            )
        if "\x00" in value:
            raise InvalidValue(f"the environment variable {name[:64]!r} holds a NUL")
        size += len(name.encode()) + len(value.encode()) + 2
    if size > MAX_ENV_BYTES:
        raise InvalidValue(f"the environment has {size} bytes, at most {MAX_ENV_BYTES} fit")


def check_local_path(path: str) -> None:
    """A path that stays below the directory it is joined to, and names a file there."""
    parts = path.split("/")
    if path.startswith("/") or ".." in parts:
        raise InvalidValue("Resource local path is absolute or contains `..`")
    if "\x00" in path:
        raise InvalidValue("Resource local path holds a NUL")
    if parts[-1] in {"", "."}:
        raise InvalidValue("Resource local path names no file")
    if len(path.encode()) > MAX_LOCAL_PATH_BYTES:
        raise InvalidValue(f"Resource local path is longer than {MAX_LOCAL_PATH_BYTES} bytes")


def check_attachment_key(key: str, *, group: str = "") -> None:
    """The rule of the existing server on `<group>/<key>`, which also keeps S3 keys unambiguous."""
    full = f"{group}/{key}"
    if not key or "\x00" in key:
        raise InvalidValue("an attachment key must not be empty nor hold a NUL")
    if len(full.encode()) > MAX_ATTACHMENT_KEY_BYTES:
        raise InvalidValue(f"group and key have more than {MAX_ATTACHMENT_KEY_BYTES} bytes")
    if any(part in {"", ".", ".."} for part in key.split("/")):
        raise InvalidValue("an attachment key must not have an empty, `.` or `..` part")
