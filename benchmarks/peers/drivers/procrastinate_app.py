"""The Procrastinate application of benchmarks' driver and of its workers."""

import os

from command import run_command
from procrastinate import App, PsycopgConnector

app = App(connector=PsycopgConnector(conninfo=os.environ["PEER_STORE"]))
task = app.task(run_command, name="run_command")
