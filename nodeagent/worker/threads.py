"""Blocking calls off the event loop, without leaving them unattended.

`asyncio.to_thread` walks away from a running thread when it is cancelled; here the caller waits
for the thread, so a descriptor it uses is never closed, or reused, under its feet.
"""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def run_blocking(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run `function` in a thread; if cancelled, first let it come to its end."""
    thread = asyncio.ensure_future(asyncio.to_thread(function, *args, **kwargs))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        if not thread.done():
            await asyncio.wait({thread})
        if not thread.cancelled():
            thread.exception()  # seen, so that asyncio does not complain about it
        raise
