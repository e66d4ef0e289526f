"""What a task says to a worker that runs functions instead of commands, and where its state is.

`NodeCall` is the part of a TaskSpec that names a handler; affinity, resource references and
middleware stand beside the spec in a submission. Shared by submissions, the queue and the control
plane (mitosis_protocol.control_payloads).
"""

from typing import Annotated, Any, Final, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec import Meta

from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import KIB
from mitosis_protocol.timestamps import parse_rfc3339

COMMAND_NODE: Final = "command"  # the node type of a task that is a plain command
NODE_TAG_PREFIX: Final = "node:"  # tags that stand for node types; nobody may choose them himself
MAX_PARAMETERS_BYTES: Final = 32 * KIB  # light data; the rest goes by reference
MAX_METADATA_BYTES: Final = 4 * KIB

# Below the limit of a tag with its prefix.
NodeType: TypeAlias = Annotated[
    str, Meta(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9][A-Za-z0-9._/-]*$")
]
ShortText: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255)]
JsonObject: TypeAlias = dict[str, Any]


class NodeCall(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the handler `type` with free-form parameters."""

    type: NodeType
    parameters: JsonObject = {}

    def __post_init__(self) -> None:
        check_object_size("parameters", self.parameters, MAX_PARAMETERS_BYTES)


class Affinity(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Tasks of one key follow each other to one worker.

    `sticky`: only the worker that owns the key, as long as it lives. `preferred`: that worker
    first; after `wait_s` anybody.
    """

    key: ShortText
    mode: Literal["sticky", "preferred"] = "sticky"
    wait_s: Annotated[float, Meta(ge=0, le=3600)] = 5.0


class WorkerResource(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that lives on one worker: a browser session, a loaded model, a large result.

    In `resource_refs[]` of a task: it has to be there already. In a register or a result: it is
    there now. `expires_at` is RFC 3339.
    """

    resource_id: ShortText
    worker_id: UUID
    type: ShortText
    scope: ShortText | None = None
    expires_at: str | None = None
    size_bytes: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    inline: bool = False  # the frame already holds the data; nothing has to be resolved
    metadata: JsonObject = {}

    def __post_init__(self) -> None:
        if self.expires_at is not None:
            parse_rfc3339(self.expires_at)
        check_object_size("metadata", self.metadata, MAX_METADATA_BYTES)


class Middleware(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where a node stands in a chain; shown to people, never acted on.

    `chain_index` is None for the host node itself.
    """

    host_node_id: ShortText | None = None
    middleware_chain: Annotated[list[ShortText], Meta(max_length=64)] = []
    chain_index: Annotated[int, Meta(ge=0, lt=64)] | None = None


def node_tag(node_type: str) -> str:
    """The tag by which the queue knows the node type."""
    return f"{NODE_TAG_PREFIX}{node_type}"


def check_object_size(name: str, value: JsonObject, max_bytes: int) -> None:
    """Refuse a free-form object that does not fit beside the rest of a frame."""
    size = len(msgspec.json.encode(value))
    if size > max_bytes:
        raise InvalidValue(f"{name}: {size} bytes of JSON, at most {max_bytes} fit")
