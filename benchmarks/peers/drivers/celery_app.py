"""The Celery application of benchmarks' driver and of its workers."""

import os

from celery import Celery
from command import run_command

URL = os.environ["PEER_STORE"].replace("unix://", "redis+socket://")

app = Celery("peer", broker=URL, backend=URL)
app.conf.broker_connection_retry_on_startup = True
task = app.task(run_command, name="run_command")
