"""Handlers: functions of this process that tasks call by their node type.

`@handler("image.resize")` puts a function into the registry that `run_worker` and the command line
use; a program with several sets makes `Handlers` of its own.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, TypeAlias, TypeVar

import msgspec

from mitosis_protocol.node_calls import COMMAND_NODE, NodeType
from nodeagent.direct.context import Context

Handler: TypeAlias = Callable[[Context, dict[str, Any]], Awaitable[dict[str, Any] | None]]
H = TypeVar("H", bound=Handler)


class Handlers:
    """Handlers by node type."""

    def __init__(self) -> None:
        self._by_type: dict[str, Handler] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._by_type))

    def __len__(self) -> int:
        return len(self._by_type)

    def handler(self, node_type: str) -> Callable[[H], H]:
        """Register the decorated `async def run(ctx, params)`; a type has one handler."""
        try:
            msgspec.convert(node_type, NodeType)
        except msgspec.ValidationError as error:
            raise ValueError(f"{node_type!r} is no node type: {error}") from error
        if node_type == COMMAND_NODE:
            raise ValueError(f"{COMMAND_NODE!r} is the type of plain command tasks")

        def register(function: H) -> H:
            if not _is_async(function):
                raise TypeError(f"the handler of {node_type!r} has to be an async function")
            if node_type in self._by_type:
                raise ValueError(f"{node_type!r} has a handler already")
            self._by_type[node_type] = function
            return function

        return register

    def get(self, node_type: str) -> Handler:
        return self._by_type[node_type]


def _is_async(function: object) -> bool:
    return inspect.iscoroutinefunction(function)


DEFAULT: Final = Handlers()


def handler(node_type: str) -> Callable[[H], H]:
    """`Handlers.handler` of the default registry."""
    return DEFAULT.handler(node_type)
