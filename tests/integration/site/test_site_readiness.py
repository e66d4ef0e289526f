"""/readyz names exactly what is down, soon enough for any supervisor, and keeps secrets."""

import asyncio
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from django.test import AsyncClient

from mitosis_site.readiness import Check, Dependencies, check_readiness
from tests.chaos.clocks import Clock
from tests.harness import TestServices

# The promise is 2 s per part; a busy test machine gets half a second on top.
LIMIT_S = 2.0
SOON_S = 2.5
CANARY = "canary-77aa"


async def broken_parts(needs: Dependencies) -> dict[str, str]:
    started = time.monotonic()
    checks = await check_readiness(needs, limit_s=LIMIT_S)
    assert time.monotonic() - started < SOON_S
    assert set(checks) == {"postgres", "redis", "s3"}
    return {name: check.detail for name, check in checks.items() if not check.ok}


async def test_all_stores_up_is_ready(needs: Dependencies):
    checks = await check_readiness(needs, limit_s=LIMIT_S)
    assert checks == dict.fromkeys(("postgres", "redis", "s3"), Check(ok=True, detail="ok"))


async def test_a_refused_connection_names_its_part(needs: Dependencies):
    nobody = "127.0.0.1:9"
    down = replace(needs, database_url=f"postgresql://u:{CANARY}@{nobody}/db")
    assert await broken_parts(down) == {"postgres": "no connection"}
    down = replace(needs, redis_url=f"redis://:{CANARY}@{nobody}/0")
    assert await broken_parts(down) == {"redis": "no connection"}
    down = replace(needs, store=replace(needs.store, endpoint_url=f"http://{nobody}"))
    assert await broken_parts(down) == {"s3": "no connection"}


async def test_a_socket_that_is_not_there_is_no_connection(needs: Dependencies):
    down = replace(
        needs,
        database_url="postgresql://u@/db?host=/nonexistent",
        redis_url="unix:///nonexistent/valkey.sock",
    )
    assert await broken_parts(down) == {"postgres": "no connection", "redis": "no connection"}


async def test_a_store_that_accepts_and_never_answers_is_found_in_time(
    needs: Dependencies, mute_port: int
):
    mute = f"127.0.0.1:{mute_port}"
    told = f"no answer within {LIMIT_S:g} s"
    down = replace(needs, database_url=f"postgresql://u:{CANARY}@{mute}/db")
    assert await broken_parts(down) == {"postgres": told}
    down = replace(needs, redis_url=f"redis://:{CANARY}@{mute}/0")
    assert await broken_parts(down) == {"redis": told}
    down = replace(needs, store=replace(needs.store, endpoint_url=f"http://{mute}"))
    assert await broken_parts(down) == {"s3": told}


async def test_three_hung_stores_take_no_longer_than_one(needs: Dependencies, mute_port: int):
    mute = f"127.0.0.1:{mute_port}"
    down = Dependencies(
        database_url=f"postgresql://u@{mute}/db",
        redis_url=f"redis://{mute}/0",
        store=replace(needs.store, endpoint_url=f"http://{mute}"),
    )
    assert set(await broken_parts(down)) == {"postgres", "redis", "s3"}


@pytest.mark.parametrize("ahead_s", [-600.0, 600.0])
def test_a_coordinator_whose_clock_is_ten_minutes_off_is_ready(
    services: TestServices, tmp_path: Path, ahead_s: float
):
    clock = Clock(tmp_path / "clock")
    clock.step_to(ahead_s)
    program = (
        "import asyncio, django, time; django.setup()\n"
        "from mitosis_site.health import _dependencies\n"
        "from mitosis_site.readiness import check_readiness\n"
        "checks = asyncio.run(check_readiness(_dependencies(), limit_s=30))\n"
        "print(time.time()); print(*(check.detail for check in checks.values()), sep='\\n')\n"
    )
    environment = {**os.environ, **clock.environment(str(Path.cwd()))}
    told = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    assert float(told[0]) == pytest.approx(time.time() + ahead_s, abs=60)
    assert told[1:] == ["ok", "ok", "ok"]


async def test_a_wrong_s3_key_and_a_missing_bucket_are_told_apart(needs: Dependencies):
    wrong = replace(needs, store=replace(needs.store, secret_access_key=CANARY))
    bucket = needs.store.buckets[0]
    assert await broken_parts(wrong) == {"s3": f"access to bucket {bucket} is denied"}
    missing = replace(needs, store=replace(needs.store, buckets=("no-such-bucket",)))
    assert await broken_parts(missing) == {"s3": "bucket no-such-bucket is missing"}


async def test_readyz_answers_503_and_the_name_of_the_part(needs: Dependencies, settings):
    settings.REDIS_URL = f"redis://:{CANARY}@127.0.0.1:9/0"
    response = await AsyncClient().get("/readyz")
    assert response.status_code == 503
    assert response.headers["Cache-Control"] == "no-store"
    assert response.json() == {
        "status": "unavailable",
        "checks": {
            "postgres": {"ok": True, "detail": "ok"},
            "redis": {"ok": False, "detail": "no connection"},
            "s3": {"ok": True, "detail": "ok"},
        },
    }
    assert CANARY not in response.content.decode()


async def test_readyz_answers_200_when_all_is_well(needs: Dependencies):
    response = await AsyncClient().get("/readyz")
    assert response.status_code == 200
    assert response.json()["status"] == "ok"


@pytest.mark.alone
async def test_requests_during_a_check_share_its_connections(
    needs: Dependencies, mute_port: int, settings
):
    settings.REDIS_URL = f"redis://127.0.0.1:{mute_port}/0"
    started = time.monotonic()
    client = AsyncClient()
    responses = await asyncio.gather(*(client.get("/readyz") for _ in range(20)))
    assert time.monotonic() - started < SOON_S
    assert {response.status_code for response in responses} == {503}


async def test_a_caller_that_hangs_up_does_not_end_the_check_of_others(
    needs: Dependencies, mute_port: int, settings
):
    settings.REDIS_URL = f"redis://127.0.0.1:{mute_port}/0"
    client = AsyncClient()
    impatient = asyncio.create_task(client.get("/readyz"))
    patient = asyncio.create_task(client.get("/readyz"))
    await asyncio.sleep(0.2)
    impatient.cancel()
    assert (await patient).status_code == 503


@pytest.mark.alone
@pytest.mark.parametrize("path", ["/healthz", "/health"])
async def test_health_answers_while_every_store_is_away(path: str, mute_port: int, settings):
    settings.DATABASE_URL = f"postgresql://u@127.0.0.1:{mute_port}/db"
    settings.REDIS_URL = f"redis://127.0.0.1:{mute_port}/0"
    settings.S3_ENDPOINT_URL = f"http://127.0.0.1:{mute_port}"
    started = time.monotonic()
    response = await AsyncClient().get(path)
    assert response.json() == {"status": "ok"}
    assert time.monotonic() - started < 0.5


@pytest.mark.parametrize("path", ["/healthz", "/readyz", "/health"])
async def test_health_is_read_only(path: str):
    assert (await AsyncClient().post(path)).status_code == 405
