"""A suite as its creator describes it: where it may run, with how many workers, and when to stop.

The HTTP body of `POST /suites` and what the client builds. From humans, so a misspelt member is
refused instead of ignored. Worker plans and hooks are in mitosis_protocol.specs; caps hold here.
"""

from collections.abc import Callable
from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from mitosis_protocol.enums import PartitionPolicy
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import (
    MAX_DESCRIPTION_BYTES,
    MAX_DESCRIPTION_CHARS,
    MAX_FAILURES_CEILING,
    MAX_HOOKS_BYTES,
    MAX_LABELS,
    MAX_NAME_CHARS,
    MAX_TAG_BYTES,
    MAX_TAGS,
    MAX_TAGS_BYTES,
)
from mitosis_protocol.specs import EnvHookSpec, Int32, WorkerSchedule

MAX_SETTLE_S: Final = 86_400  # a day: longer, and a finished suite would look unfinished
MAX_LINGER_S: Final = 86_400  # a day: longer would pin hosts to suites nobody comes back to
MAX_SUITE_COUNT: Final = 1_000_000_000  # of running or failed tasks; beyond any real suite

Count: TypeAlias = Annotated[int, Meta(ge=1, le=MAX_SUITE_COUNT)]
Tag: TypeAlias = Annotated[str, Meta(min_length=1)]


class OomPolicy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a task that ran out of memory is tried again: `memory` times `factor`, up to `max`."""

    factor: Annotated[float, Meta(gt=1, le=16)]
    max: Annotated[int, Meta(ge=1, le=2**50)]


class ResourceLimits(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What one task may use, in bytes, cores and processes; enforced or refused, never ignored."""

    memory: Annotated[int, Meta(ge=1 << 20, le=2**50)] | None = None
    cpus: Annotated[float, Meta(gt=0, le=4096)] | None = None
    pids: Annotated[int, Meta(ge=1, le=4_194_304)] | None = None
    on_oom: OomPolicy | None = None

    def __post_init__(self) -> None:
        if self.on_oom is not None and self.memory is None:
            raise InvalidValue("on_oom needs a memory limit to start from")


class RetryOn(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """Which ends are tried again beside crashes and lost runners."""

    exit_codes: Annotated[list[Annotated[int, Meta(ge=0, le=255)]], Meta(max_length=256)] = []
    signals: Annotated[list[Annotated[int, Meta(ge=1, le=64)]], Meta(max_length=64)] = []
    oom: bool = False
    timeout: bool = False


class RetryDefaults(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """What tasks of the suite get unless they say otherwise."""

    max_failures: Annotated[int, Meta(ge=1, le=MAX_FAILURES_CEILING)] | None = None
    backoff_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    backoff_max_s: Annotated[float, Meta(ge=0, le=86_400)] | None = None
    retry_on: RetryOn | None = None


class SuiteSpec(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Everything `POST /suites` takes. None means the installation's default."""

    group_name: Annotated[str, Meta(min_length=1, max_length=MAX_NAME_CHARS)]
    worker_schedule: WorkerSchedule
    name: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | None = None
    description: Annotated[str, Meta(max_length=MAX_DESCRIPTION_CHARS)] | None = None
    tags: Annotated[list[Tag], Meta(max_length=MAX_TAGS)] = []
    labels: Annotated[list[Tag], Meta(max_length=MAX_LABELS)] = []
    priority: Int32 = 0
    env_preparation: EnvHookSpec | None = None
    env_cleanup: EnvHookSpec | None = None
    limits: ResourceLimits | None = None
    retry: RetryDefaults | None = None
    max_running: Count | None = None
    max_failures: Count | None = None
    failure_rate: Annotated[float, Meta(gt=0, le=1)] | None = None
    settle_seconds: Annotated[int, Meta(ge=0, le=MAX_SETTLE_S)] | None = None
    linger_seconds: Annotated[int, Meta(ge=0, le=MAX_LINGER_S)] | None = None
    auto_match: bool = True
    on_partition: PartitionPolicy = PartitionPolicy.KEEP

    def __post_init__(self) -> None:
        # Texts reach jsonb and text[] columns, which cannot hold a NUL.
        for member in ("name", "description"):
            _refuse(member, getattr(self, member) or "", _has_nul, "must not hold a NUL")
        for member in ("tags", "labels"):
            for text in getattr(self, member):
                _refuse(member, text, _has_nul, "must not hold a NUL")
                _refuse(member, text, _is_long, f"are at most {MAX_TAG_BYTES} bytes each")
            _fit(member, getattr(self, member), MAX_TAGS_BYTES)
        _fit("description", self.description, MAX_DESCRIPTION_BYTES)
        hooks = (self.env_preparation, self.env_cleanup)
        _fit("env_preparation and env_cleanup", hooks, MAX_HOOKS_BYTES)


class SuiteChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`PATCH /suites/{uuid}`: what may change after creation. UNSET leaves a member alone."""

    name: Annotated[str, Meta(max_length=MAX_NAME_CHARS)] | msgspec.UnsetType | None = msgspec.UNSET
    description: (
        Annotated[str, Meta(max_length=MAX_DESCRIPTION_CHARS)] | msgspec.UnsetType | None
    ) = msgspec.UNSET
    labels: Annotated[list[Tag], Meta(max_length=MAX_LABELS)] | msgspec.UnsetType = msgspec.UNSET
    priority: Int32 | msgspec.UnsetType = msgspec.UNSET

    def __post_init__(self) -> None:
        if self.description is not msgspec.UNSET:
            _fit("description", self.description, MAX_DESCRIPTION_BYTES)
        if self.labels is not msgspec.UNSET:
            _fit("labels", self.labels, MAX_TAGS_BYTES)


class SuiteScale(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`PUT /suites/{uuid}/scale`: the worker plan and the cap; hosts take it up as they go."""

    worker_schedule: WorkerSchedule | msgspec.UnsetType = msgspec.UNSET
    max_running: Count | msgspec.UnsetType | None = msgspec.UNSET


def _refuse(member: str, text: str, is_wrong: Callable[[str], bool], rule: str) -> None:
    if is_wrong(text):
        raise InvalidValue(f"{member} {rule}")


def _fit(member: str, value: object, most: int) -> None:
    """As it is encoded for the host: an escaped character takes more than it had."""
    size = len(msgspec.json.encode(value))
    if size > most:
        raise InvalidValue(
            f"{member}: {size} bytes as JSON, at most {most} fit the frame that tells a host"
        )


def _has_nul(text: str) -> bool:
    return "\x00" in text


def _is_long(text: str) -> bool:
    return len(text.encode()) > MAX_TAG_BYTES
