"""The numbers in what a manager measured: a flat map from `family.name` to number. Pure.

Agents send the RFC's numbers and six families (system, worker_pool, task_execution, task_group,
ipc, lease), each a flat group; other clients may nest them as they like one level deep. Texts,
lists and what is no finite number stay in the newest sample and have no history.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Final

OWN: Final = "manager"  # the family of numbers that stand by themselves
MAX_NUMBERS: Final = 256  # of one sample; six families have about sixty
MAX_NAME_CHARS: Final = 64


def numbers_of(metrics: Mapping[str, object]) -> dict[str, float]:
    """Every number with its name; the first MAX_NUMBERS of them."""
    found: dict[str, float] = {}
    for family, name, value in _walk(metrics):
        if len(found) >= MAX_NUMBERS:
            break
        if _is_name(family) and _is_name(name):
            found[f"{family}.{name}"] = value
    return found


def split_name(full: str) -> tuple[str, str]:
    """Family and name of a number."""
    family, _, name = full.partition(".")
    return family, name


def _walk(metrics: Mapping[str, object]) -> Iterator[tuple[str, str, float]]:
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            groups = value if name == "families" else {name: value}
            for family, group in groups.items():
                if isinstance(group, Mapping):
                    yield from _family(str(family).removesuffix("_metrics"), group)
        elif (number := _number(value)) is not None:
            yield OWN, name, number


def _family(family: str, group: Mapping[str, object]) -> Iterator[tuple[str, str, float]]:
    for name, value in group.items():
        number = _number(value)
        if number is not None:
            yield family, name, number


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= MAX_NAME_CHARS and text.isprintable() and "." not in text
