"""What the supervisor needs to know of a part: how to start it and when it is ready."""

from typing import Protocol

from mitosis_stack.process import ChildSpec


class Service(Protocol):
    """A part that runs as one child process."""

    @property
    def name(self) -> str: ...

    @property
    def start_timeout_s(self) -> float: ...

    def prepare(self) -> None:
        """Create what the first start needs; must be safe to repeat after a crash at any point."""

    def spec(self) -> ChildSpec: ...

    def is_ready(self) -> bool: ...
