"""A store for one peer: the embedded PostgreSQL or Valkey, as durable as in the product."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

from benchmarks.peers.catalogue import Store
from mitosis_stack.assembly import build_backing
from mitosis_stack.layout import DataDir, remove_runtime_dir
from mitosis_stack.process import spawn, wait_until
from mitosis_stack.settings import ExternalServices, read_settings

VARIABLES: Final = {"postgres": "DATABASE_URL", "valkey": "REDIS_URL"}


@contextmanager
def running_store(kind: Store) -> Iterator[str]:
    """Its address; an empty one for a peer that needs none. Nothing is kept."""
    if kind == "none":
        yield ""
        return
    with tempfile.TemporaryDirectory(prefix="mb-") as directory:
        data = DataDir(Path(directory) / "data")
        data.create()
        settings = read_settings(data_dir=data.root, port=None, agents=0, asgi_server="uvicorn")
        # Servers that a user named are not for benchmarks, and nobody needs an S3 here.
        settings = replace(settings, external=ExternalServices(s3={"S3_ENDPOINT_URL": ""}))
        backing = build_backing(data, settings, {})
        [service] = [one for one in backing.services if one.name == kind]
        service.prepare()
        child = spawn(service.spec())
        try:
            wait_until(service.is_ready, child=child, timeout_s=service.start_timeout_s)
            yield backing.environment[VARIABLES[kind]]
        finally:
            child.stop()
            remove_runtime_dir(backing.sockets)
