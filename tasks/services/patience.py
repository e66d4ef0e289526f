"""Trying again for synchronous callers: rows that were locked a moment ago.

No statement of ours waits for a task row (that is what makes deadlocks impossible), so somebody
has to come back. The async side has tasks.batcher for this; here it is a loop with a deadline.
"""

import random
import time
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")
Answer = TypeVar("Answer")

MAX_WAIT_S: Final = 2.0  # as long as lock_timeout would let a waiting statement wait
MAX_PAUSE_S: Final = 0.05


def answer_all(
    items: Sequence[Item],
    ask: Callable[[Sequence[Item]], Sequence[Answer]],
    *,
    is_busy: Callable[[Answer], bool],
) -> list[Answer]:
    """One answer per item, in order; items that were busy are asked for again for a while."""
    deadline = time.monotonic() + MAX_WAIT_S
    answers: dict[int, Answer] = {}
    left = list(range(len(items)))
    pause_s = 0.001
    while left:
        given = ask([items[place] for place in left])
        answers.update(zip(left, given, strict=True))
        left = [place for place in left if is_busy(answers[place])]
        if not left or time.monotonic() >= deadline:
            break
        time.sleep(random.uniform(0, pause_s))  # noqa: S311 - jitter
        pause_s = min(MAX_PAUSE_S, pause_s * 2)
    return [answers[place] for place in range(len(items))]
