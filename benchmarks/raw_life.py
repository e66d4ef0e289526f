"""The least a durable queue can do: insert, claim with SKIP LOCKED, finish, archive, in psycopg.

The limit of benchmarks.coordinator: tables without anything that is not needed for that, in the
database of the same stack, with the same durability, from several connections at once.
"""

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import psycopg

TABLES: Final = """
DROP TABLE IF EXISTS bench_queue, bench_archive;
CREATE TABLE bench_queue (id bigserial PRIMARY KEY, state smallint NOT NULL DEFAULT 1,
    attempt int NOT NULL DEFAULT 0, exit_status int, spec jsonb NOT NULL);
CREATE INDEX bench_queue_ready ON bench_queue (id) WHERE state = 1;
CREATE TABLE bench_archive (id bigint PRIMARY KEY, attempt int NOT NULL, spec jsonb NOT NULL,
    exit_status int, ended_at timestamptz NOT NULL DEFAULT now());
"""
INSERT: Final = (
    'INSERT INTO bench_queue (spec) SELECT \'{"args": ["/bin/true"]}\'::jsonb'
    " FROM generate_series(1, %s)"
)
CLAIM: Final = """
UPDATE bench_queue SET state = 2, attempt = attempt + 1
WHERE id = ANY (ARRAY(SELECT id FROM bench_queue WHERE state = 1 ORDER BY id LIMIT %s
    FOR UPDATE SKIP LOCKED))
RETURNING id
"""
FINISH: Final = "UPDATE bench_queue SET state = 3, exit_status = 0 WHERE id = ANY (%s)"
ARCHIVE: Final = """
WITH gone AS (DELETE FROM bench_queue WHERE id = ANY (%s) RETURNING id, attempt, spec, exit_status)
INSERT INTO bench_archive (id, attempt, spec, exit_status)
SELECT id, attempt, spec, exit_status FROM gone
"""


def lives_per_s(url: str, *, connections: int, batch: int, count: int) -> float:
    """Tasks a second from insert to archive; every statement is a transaction."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(TABLES)
    rounds = max(1, count // (connections * batch))
    with ThreadPoolExecutor(connections) as threads:
        began = time.monotonic()
        done = sum(threads.map(lambda _: _live(url, batch, rounds), range(connections)))
        return done / (time.monotonic() - began)


def _live(url: str, batch: int, rounds: int) -> int:
    done = 0
    with psycopg.connect(url, autocommit=True) as connection:
        for _ in range(rounds):
            connection.execute(INSERT, [batch], prepare=True)
            claimed = [row[0] for row in connection.execute(CLAIM, [batch], prepare=True)]
            connection.execute(FINISH, [claimed], prepare=True)
            connection.execute(ARCHIVE, [claimed], prepare=True)
            done += len(claimed)
    return done
