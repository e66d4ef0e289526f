"""The Dramatiq actor of benchmarks' driver and of its workers."""

import os

import dramatiq
from command import run_command
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

URL = os.environ["PEER_STORE"]

broker = RedisBroker(url=URL)
broker.add_middleware(Results(backend=RedisBackend(url=URL)))
dramatiq.set_broker(broker)
task = dramatiq.actor(store_results=True)(run_command)
