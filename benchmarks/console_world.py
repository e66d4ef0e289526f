"""The grown database of benchmarks.console: rows like real ones, written in bulk."""

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import psycopg

from benchmarks.live_stack import LiveStack

MANAGERS: Final = 1000
SUITES: Final = 1000
LIVE_SUITES: Final = 100
AT_WORK: Final = 20  # live suites with hosts
ARCHIVED: Final = 1_000_000
GROUPS: Final = 20
PASSWORD: Final = "a password of the benchmark"
SPREAD_DAYS: Final = 10  # over which the archive ended


@dataclass(frozen=True)
class Grown:
    """What pages are asked about."""

    suites: list[str]  # at work, of the member's group
    managers: list[str]
    task: str
    middle_task_id: int
    member: str
    password: str
    suite_ids: list[int]


def grow(stack: LiveStack) -> Grown:
    _people(stack)
    suite = stack.post(
        "/suites",
        {"group_name": "team0", "name": "sweep 0", "worker_schedule": {"worker_count": 4}},
    )["uuid"]
    manager = stack.post("/managers", {"groups": ["team0:admin"], "labels": ["rack-0"]})
    worker = stack.register_worker()
    stack.post("/tasks", stack.task())
    task = worker.get("/workers/tasks").raise_for_status().json()
    report = {"id": task["id"], "op": {"Commit": {"exit_status": 0, "msg": None}}}
    worker.post("/workers/tasks", json=report).raise_for_status()
    worker.close()
    with psycopg.connect(stack.database_url, autocommit=True) as connection:
        return _bulk(connection, str(suite), str(manager["manager_uuid"]))


def _people(stack: LiveStack) -> None:
    """The benchmark's user with a known password, a member of one group, and twenty groups."""
    digest = _digest(PASSWORD)
    user = {"username": "member", "md5_password": digest, "admin": False}
    _send(stack, "POST", "/admin/users", user)
    _send(stack, "POST", f"/admin/users/{stack.group}/password", {"new_md5_password": digest})
    stack.log_in(stack.group, PASSWORD)
    quota = {"group_quota": str(GROUPS + 8)}
    _send(stack, "POST", f"/admin/users/{stack.group}/group-quota", quota)
    for number in range(GROUPS):
        _send(stack, "POST", "/groups", {"group_name": f"team{number}"})
    _send(stack, "PUT", "/groups/team0/users", {"relations": {"member": "Write"}})


def _send(stack: LiveStack, method: str, path: str, body: dict[str, Any]) -> None:
    stack.http.request(method, path, json=body).raise_for_status()


def _bulk(connection: psycopg.Connection[Any], suite: str, manager: str) -> Grown:
    run = connection.execute
    copy_rows(
        connection, "task_suites", f"uuid = '{suite}'", SUITES - 1,
        id="t.id + g", uuid="gen_random_uuid()", name="'sweep ' || g",
        group_id=_a_group("g"), state=f"CASE WHEN g < {LIVE_SUITES} THEN 0 ELSE 3 END",
        created_at="t.created_at - make_interval(mins => g::int)",
    )  # fmt: skip
    copy_rows(
        connection, "runners", f"uuid = '{manager}'", MANAGERS - 1,
        id="t.id + 1000 + g", uuid="gen_random_uuid()", labels="ARRAY['rack-' || g]",
        tags="ARRAY['gpu']",
    )  # fmt: skip
    first = _one(run("SELECT id FROM runners WHERE uuid = %s", [manager]))
    copy_rows(
        connection, "node_managers", f"runner_id = {first}", MANAGERS - 1,
        runner_id="t.runner_id + 1000 + g",
        state="CASE WHEN g % 10 = 0 THEN 4 WHEN g % 2 = 0 THEN 2 ELSE 0 END",
    )  # fmt: skip
    copy_rows(
        connection, "runner_leases", f"runner_id = {first}", MANAGERS - 1,
        runner_id="t.runner_id + 1000 + g",
    )  # fmt: skip
    run(
        "INSERT INTO group_runners (group_id, runner_id, role, consent, created_at, updated_at) "
        f"SELECT {_a_group('r.id')}, r.id, 2, 1, now(), now() FROM runners r WHERE r.id > %s "
        "ON CONFLICT DO NOTHING",
        [first + 1000],
    )
    run("UPDATE node_managers SET metrics = %s::jsonb", [SAMPLE])
    run(
        "INSERT INTO suite_assignments (suite_id, manager_id, state, lease_expires_at, renewals, "
        "prepared_at) SELECT s.id, n.runner_id, 2, now() + interval '1 hour', 0, now() "
        "FROM (SELECT id, row_number() OVER (ORDER BY id) AS place FROM task_suites LIMIT %s) s "
        "JOIN (SELECT runner_id, row_number() OVER (ORDER BY runner_id) AS place "
        f"FROM node_managers WHERE state = 2) n ON n.place %% {AT_WORK} = s.place - 1",
        [AT_WORK],
    )
    run(
        "INSERT INTO manager_samples (manager_id, at, numbers) SELECT %s, now() - "
        "make_interval(secs => 30 * g), %s::jsonb FROM generate_series(1, 2880) g",
        [first, NUMBERS],
    )
    run(
        "INSERT INTO suite_count_deltas (suite_id, total, pending, succeeded, failed, cancelled) "
        "SELECT id, 1000, CASE WHEN state < 2 THEN 100000 ELSE 0 END, 880, 20, 0 FROM task_suites"
    )
    _archive(connection)
    for table in ("task_suites", "runners", "node_managers", "group_runners", "suite_assignments",
                  "archived_tasks", "suite_count_deltas", "task_events"):  # fmt: skip
        run(f"VACUUM ANALYZE {table}")
    return _grown(connection, suite, manager)


def _archive(connection: psycopg.Connection[Any]) -> None:
    """A thousand tasks per suite, in the order of their ends, one in fifty failed."""
    copy_rows(
        connection, "archived_tasks", "true", ARCHIVED,
        id="1000000 + g", uuid="gen_random_uuid()", number="1000000 + g",
        suite_id="(SELECT min(id) FROM task_suites) + (g / 1000) % 1000",
        group_id=_a_group("(g / 1000) % 1000"),
        attempt_id="NULL::bigint", op_id="gen_random_uuid()",
        labels="ARRAY['grown', 'n' || (g % 1000)]",
        outcome="CASE WHEN g % 50 = 0 THEN 1 WHEN g % 100000 = 1 THEN 4 ELSE 0 END",
        exit_status="CASE WHEN g % 50 = 0 THEN 256 * (1 + g % 3) ELSE 0 END",
        runner_id="(SELECT max(id) FROM runners) - g % 900",
        ended_at=f"now() - make_interval(secs => ({ARCHIVED} - g) * "
        f"{SPREAD_DAYS * 86400 / ARCHIVED})",
    )  # fmt: skip


def _grown(connection: psycopg.Connection[Any], suite: str, manager: str) -> Grown:
    run = connection.execute
    suites = run(
        "SELECT DISTINCT s.id, s.uuid FROM task_suites s JOIN suite_assignments a "
        "ON a.suite_id = s.id ORDER BY s.id"
    ).fetchall()
    managers = run(
        "SELECT r.uuid FROM runners r JOIN group_runners g ON g.runner_id = r.id "
        "JOIN groups x ON x.id = g.group_id WHERE x.name = 'team0' AND r.kind = 0 "
        "ORDER BY (r.uuid = %s) DESC, r.id LIMIT 20",
        [manager],
    ).fetchall()
    task = _one(run(
        "SELECT t.uuid FROM archived_tasks t JOIN groups x ON x.id = t.group_id "
        "WHERE x.name = 'team0' AND t.outcome = 1 ORDER BY t.id DESC LIMIT 1"
    ))  # fmt: skip
    # The member's suite comes first: it is the one whose page is measured.
    ordered = sorted(suites, key=lambda row: str(row[1]) != suite)
    return Grown(
        suites=[str(row[1]) for row in ordered],
        managers=[str(row[0]) for row in managers],
        task=str(task),
        middle_task_id=1_000_000 + ARCHIVED // 2,
        member="member",
        password=PASSWORD,
        suite_ids=[int(row[0]) for row in ordered],
    )


async def nudge(connection: psycopg.AsyncConnection[Any], grown: Grown) -> None:
    """News for the watched suites: what the commit of some tasks adds to their counts."""
    await connection.execute(
        "INSERT INTO suite_count_deltas (suite_id, succeeded, pending) "
        "SELECT unnest(%s::bigint[]), 3, -3",
        [grown.suite_ids],
    )


def copy_rows(
    connection: psycopg.Connection[Any], table: str, where: str, count: int, **fresh: str
) -> None:
    """`count` rows like the first one that matches, with some columns anew (`g` counts from 1)."""
    rows = connection.execute(
        "SELECT column_name FROM information_schema.columns WHERE is_generated = 'NEVER' "
        "AND table_name = %s AND table_schema = current_schema()",
        [table],
    )
    columns = [row[0] for row in rows]
    chosen = ", ".join(fresh.get(name, f't."{name}"') for name in columns)
    named = ", ".join(f'"{name}"' for name in columns)
    connection.execute(
        f"INSERT INTO {table} ({named}) SELECT {chosen} "
        f"FROM (SELECT * FROM {table} WHERE {where} LIMIT 1) t, generate_series(1, {count}) g"
    )


def _a_group(number: str) -> str:
    """One of the twenty, by number."""
    return f"(SELECT id FROM groups WHERE name = 'team' || mod(({number})::bigint, {GROUPS}))"


def _one(cursor: Any) -> Any:
    [value] = cursor.fetchone()
    return value


def _digest(password: str) -> list[int]:
    return list(hashlib.md5(password.encode(), usedforsecurity=False).digest())


_SYSTEM: Final = (
    '"cpu_usage_percent": 41.5, "memory_total_bytes": 64e9, "memory_used_bytes": 23e9, '
    '"disk_total_bytes": 2e12, "disk_used_bytes": 4e11, "load_avg_1min": 3.1'
)
_WORKERS: Final = ", ".join(
    f'"worker_{n}": "executing task={n} done=100 up=3600s"' for n in range(16)
)
SAMPLE: Final = (
    f'{{"active_workers": 16, "families": {{"system": {{{_SYSTEM}}}, "worker_pool": '
    f'{{"workers_active": 16, "workers_executing": 9, {_WORKERS}}}}}}}'
)
NUMBERS: Final = (
    '{"system.cpu_usage_percent": 41.5, "system.memory_used_bytes": 23e9, '
    '"system.memory_total_bytes": 64e9, "system.load_avg_1min": 3.1, '
    '"worker_pool.workers_active": 16, "worker_pool.workers_executing": 9, '
    '"ipc.fetch_p50_latency_us": 25, "ipc.fetch_p95_latency_us": 90}'
)
