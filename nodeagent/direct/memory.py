"""What a worker remembers of the past for a while: bounded, oldest first out. Pure."""

from collections import OrderedDict
from typing import Final, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

# Six repeats of every frame that can be under way, many times over.
KEPT: Final = 2048


class Recent(Generic[K, V]):
    """A map of the last KEPT entries."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __contains__(self, key: K) -> bool:
        return key in self._entries

    def get(self, key: K) -> V | None:
        return self._entries.get(key)

    def put(self, key: K, value: V) -> None:
        self._entries[key] = value
        self._entries.move_to_end(key)
        if len(self._entries) > self._kept:
            self._entries.popitem(last=False)
