"""How far a host reads ahead: low and high watermark of what waits unstarted. Pure.

Used by nodeagent.core.supply. Workers that wait count as room, so a suite without prefetch still
keeps every worker busy; the prefetch comes on top.
"""


def wanted(*, waiting: int, idle: int, prefetch: int) -> int:
    """Tasks to ask for now; 0 above the low mark.

    `waiting` is unstarted or already asked for, `idle` the workers without a task. Full is
    `idle + prefetch`; asked again below half of the prefetch, so that one fetch brings several.
    """
    if waiting < idle or waiting <= low_mark(prefetch):
        return max(0, idle + prefetch - waiting)
    return 0


def low_mark(prefetch: int) -> int:
    """-1 without prefetch: then only idle workers ask."""
    return prefetch // 2 if prefetch else -1
