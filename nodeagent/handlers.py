"""Write functions that tasks call: a worker of your own in a few lines.

    from nodeagent.handlers import Context, handler, run_worker

    @handler("text.count")
    async def count(ctx: Context, params: dict) -> dict:
        ctx.feedback(progress=0.5, message="half way")
        return {"words": len(params["text"].split())}

    run_worker(coordinator="http://127.0.0.1:5000", user="ada", password="...")

The guide is docs/direct-workers.md. Needs neither Django nor the coordinator's packages.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from nodeagent.config import load_worker_config
from nodeagent.direct.context import Context
from nodeagent.direct.nodes import Handler, Handlers, handler
from nodeagent.direct.worker import DirectWorker, open_worker, run_direct_worker
from nodeagent.log_setup import configure_logging

__all__ = ["Context", "DirectWorker", "Handler", "Handlers", "handler", "run_worker", "worker"]


def run_worker(*, handlers: Handlers | None = None, **settings: object) -> int:
    """Run a worker with the registered handlers until SIGTERM; the exit status.

    `settings` are those of `nodeagent worker --direct`, by the same names (`heartbeat_interval`
    for `--heartbeat-interval`); what is not given comes from the environment and the
    configuration file. Raises ConfigInvalid.
    """
    config = load_worker_config(settings)
    configure_logging(level=config.log_level, form=config.log_format)
    return run_direct_worker(config, handlers)


@asynccontextmanager
async def worker(
    *, handlers: Handlers | None = None, **settings: object
) -> AsyncIterator[DirectWorker]:
    """The same beside code of one's own: `async with worker(...) as running: ...`.

    Takes tasks while the block runs, leaves politely afterwards. Signals stay the caller's.
    """
    async with open_worker(load_worker_config(settings), handlers) as running:
        yield running
