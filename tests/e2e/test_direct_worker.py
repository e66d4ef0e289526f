"""`nodeagent worker --direct` and handlers against a running coordinator."""

import contextlib
import hashlib
import io
import json
import re
import sys
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from mitosis_stack.ports import pick_free
from mitosis_stack.process import Child
from tests.e2e.cluster import Cluster
from tests.integration.workers.live_user import SHORT_LEASE, LiveUser, eventually, worker_program

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(120)]

GUIDE = Path(__file__).parents[2] / "docs" / "direct-workers.md"
MODULE, PROGRAM = re.findall(r"^```python\n(.*?)^```$", GUIDE.read_text(), re.DOTALL | re.MULTILINE)
# What the page has no place for.
MORE = """
import asyncio


@handler("wait")
async def wait(ctx: Context, params: dict) -> dict:
    ctx.emit("llm", "a fragment")
    await asyncio.Event().wait()
    return {}


@handler("package.read")
async def read_package(ctx: Context, params: dict) -> dict:
    file = ctx.packages_dir / "models" / "1.0" / "weights"
    while not file.exists():
        await asyncio.sleep(0.05)
    (ctx.result_dir / "weights").write_bytes(file.read_bytes())
    return {}
"""


@pytest.fixture(scope="module")
def cluster(services: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("cluster"), environment=SHORT_LEASE) as running:
        yield running


@pytest.fixture(scope="module")
def user(cluster: Cluster) -> Iterator[LiveUser]:
    found = LiveUser(cluster)
    yield found
    found.close()


@contextmanager
def direct_worker(user: LiveUser, name: str, *flags: str) -> Iterator[Child]:
    home = user.cluster.root / f"modules-{name}"
    home.mkdir()
    (home / "my_handlers.py").write_text(MODULE + MORE)
    path = f"{home}:{Path.cwd()}"
    with worker_program(user, name, "--direct", *flags, PYTHONPATH=path) as child:
        yield child


@pytest.fixture(scope="module")
def metrics_port() -> int:
    return pick_free(["metrics"], {})["metrics"]


@pytest.fixture(scope="module")
def _worker(user: LiveUser, metrics_port: int) -> Iterator[None]:
    flags = ("--concurrency", "3", "--handlers", "my_handlers", "--allow-packages")
    with direct_worker(user, "direct", *flags, "--metrics-listen", f"127.0.0.1:{metrics_port}"):
        yield


def submit_node(user: LiveUser, node_type: str, **parameters: Any) -> str:
    node = {"type": node_type, "parameters": parameters}
    return user.submit(node=node)


class Stream(threading.Thread):
    """What `curl -N` shows of a task, as it comes."""

    def __init__(self, user: LiveUser, uuid: str) -> None:
        super().__init__(daemon=True)
        self.events: list[tuple[str, dict[str, Any]]] = []
        self._user = user
        self._uuid = uuid
        self.start()

    def run(self) -> None:
        url, headers = (
            f"{self._user.cluster.url}/tasks/{self._uuid}/events",
            self._user.http.headers,
        )
        # A later test may kill the coordinator that still serves us.
        with (
            contextlib.suppress(httpx2.TransportError),
            httpx2.stream("GET", url, headers=headers, timeout=60) as answer,
        ):
            name = ""
            for line in answer.iter_lines():
                if line.startswith("event:"):
                    name = line.removeprefix("event:").strip()
                elif line.startswith("data:"):
                    self.events.append((name, json.loads(line.removeprefix("data:"))))

    def until(self, name: str, text: str) -> None:
        """An event of that name which holds the text."""
        eventually(lambda: any(n == name and text in str(body) for n, body in self.events))


def logs(user: LiveUser, uuid: str) -> str:
    answer = user.http.get(f"/tasks/{uuid}/logs", params={"stream": "stdout", "offset": 0})
    return answer.text if answer.status_code == 200 else ""


@pytest.mark.usefixtures("_worker")
def test_a_command_task_runs_with_archives_and_output(user: LiveUser):
    script = "echo out; echo err >&2; echo r > $MITO_RESULT_DIR/r.txt; exit 3"
    uuid = user.submit("sh", "-c", script, terminal_output=True)
    info = user.ended(uuid, within_s=60)  # the worker is just being started
    assert (info["outcome"], info["result"]["exit_status"]) == ("failed", 3 * 256)
    assert user.archive(uuid, "result") == {"result/r.txt": b"r\n"}
    output = user.archive(uuid, "std-log")
    assert output == {"std-log/stdout.log": b"out\n", "std-log/stderr.log": b"err\n"}


@pytest.mark.usefixtures("_worker")
def test_a_handler_task_gives_feedback_outputs_and_an_artifact(user: LiveUser):
    uuid = submit_node(user, "text.count", text="to be")
    stream = Stream(user, uuid)
    info = user.ended(uuid)
    assert info["outcome"] == "succeeded"
    assert user.archive(uuid, "result") == {"result/words.txt": b"to be"}
    stream.until("node.state", "half way")
    assert logs(user, uuid) == "counting\n"


@pytest.mark.usefixtures("_worker")
def test_a_worker_shows_its_numbers(user: LiveUser, metrics_port: int):
    uuid = submit_node(user, "text.count", text="x")
    assert user.ended(uuid, within_s=60)["outcome"] == "succeeded"
    page = httpx2.get(f"http://127.0.0.1:{metrics_port}/metrics").text
    assert re.search(r"^inflight_tasks \d", page, re.MULTILINE)
    assert re.search(r"^heartbeat_sent_total [1-9]", page, re.MULTILINE)
    assert re.search(r"^heartbeat_degraded_total \d", page, re.MULTILINE)
    bucket = r'^task_duration_ms_bucket\{node_type="text.count",le="\+Inf"\} [1-9]'
    assert re.search(bucket, page, re.MULTILINE), page


@pytest.mark.usefixtures("_worker")
def test_a_package_reaches_a_worker_that_allows_it(user: LiveUser):
    worker = user.ended(submit_node(user, "text.count", text="x"))["reporter_uuid"]
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        member = tarfile.TarInfo("weights")
        member.size = 3
        tar.addfile(member, io.BytesIO(b"123"))
    data = packed.getvalue()
    digest = hashlib.sha256(data).hexdigest()
    asked = {"key": "models.tar.gz", "content_length": len(data), "sha256": digest}
    issued = user.call("POST", f"/groups/{user.name}/attachments", json=asked)
    assert httpx2.put(issued["url"], content=data).status_code == 200
    uuid = submit_node(user, "package.read")
    user.running(uuid)
    order = {"attachment_key": "models.tar.gz", "name": "models", "version": "1.0"}
    assert user.http.post(f"/workers/{worker}/packages", json=order).status_code == 202
    assert user.ended(uuid)["outcome"] == "succeeded"
    assert user.archive(uuid, "result") == {"result/weights": b"123"}
    # What was just installed is known, and can be removed in the same session.
    listed = eventually(lambda: user.call("GET", f"/workers/{worker}/packages")["packages"])
    assert listed == [{"name": "models", "version": "1.0", "sha256": digest}]
    removal = user.http.delete(f"/workers/{worker}/packages/models")
    assert removal.status_code == 202, removal.text
    eventually(lambda: user.call("GET", f"/workers/{worker}/packages")["packages"] == [])
    assert not list(user.cluster.root.glob("direct/cache/**/models/1.0"))


@pytest.mark.usefixtures("_worker")
def test_cancels_reach_commands_and_handlers(user: LiveUser):
    uuids = [user.submit("sleep", "60"), submit_node(user, "wait")]
    Stream(user, uuids[1]).until("node.result.delta", "a fragment")
    for uuid in uuids:
        user.running(uuid)
        user.call("DELETE", f"/tasks/{uuid}")
    for uuid in uuids:
        assert user.ended(uuid)["outcome"] == "cancelled"


@pytest.mark.usefixtures("_worker")
def test_a_restart_of_the_coordinator_costs_no_run(user: LiveUser, tmp_path: Path):
    gate = tmp_path / "gate"
    uuid = user.submit("sh", "-c", f"while ! test -e {gate}; do sleep 0.1; done; echo done")
    user.running(uuid)
    web = user.cluster.child("web0").spec
    user.cluster.kill("web0")
    user.cluster.revive(web)
    gate.touch()
    info = user.ended(uuid, within_s=60)
    assert (info["outcome"], info["attempt"], info["failures"]) == ("succeeded", 1, 0)


def test_output_streams_while_it_runs_and_stays_when_the_worker_is_killed(
    user: LiveUser, tmp_path: Path
):
    gate = tmp_path / "gate"
    script = f"test -e {gate} || {{ echo first; echo second; sleep 60; }}; echo last"
    uuid = user.submit("sh", "-c", script, tags=("doomed",), terminal_output=True)
    stream = Stream(user, uuid)
    with direct_worker(user, "doomed", "--tags", "doomed") as doomed:
        eventually(
            lambda: any(name == "node.result.delta" for name, _ in stream.events), within_s=60
        )
        assert eventually(lambda: logs(user, uuid)) == "first\nsecond\n"
        assert user.task(uuid)["state"] == "Running"
        user.cluster.expect_exit("doomed")
        doomed.kill()
        # The whole log is there although nobody is left who wrote it.
        assert logs(user, uuid) == "first\nsecond\n"
    gate.touch()
    with direct_worker(user, "heir", "--tags", "doomed"):
        info = user.ended(uuid, within_s=90)
    assert (info["outcome"], info["attempt"], info["failures"]) == ("succeeded", 2, 1)
    assert user.archive(uuid, "std-log")["std-log/stdout.log"] == b"last\n"


def test_a_polite_end_gives_the_task_back_uncharged(user: LiveUser):
    uuid = user.submit("sleep", "60", tags=("polite",))
    with direct_worker(user, "polite", "--tags", "polite") as polite:
        user.running(uuid, within_s=60)
        user.cluster.expect_exit("polite")
        polite.stop()
        assert polite.poll() == 0, user.cluster.log("polite")[-3000:]
    info = user.task(uuid)
    assert (info["state"], info["failures"]) == ("Ready", 0)
    user.call("DELETE", f"/tasks/{uuid}")


def test_the_program_of_the_guide_serves_beside_its_own_loop(user: LiveUser, tmp_path: Path):
    program = tmp_path / "serve.py"
    program.write_text(PROGRAM)
    environment = {
        "PATH": user.cluster.environment["PATH"],
        "PYTHONPATH": str(Path.cwd()),
        "HOME": str(tmp_path),
        "MITO_COORDINATOR": user.cluster.url,
        "MITO_USER": user.name,
        "MITO_PASSWORD": user.password,
    }
    child = user.cluster.start_program("serve", sys.executable, str(program), env=environment)
    info = user.ended(submit_node(user, "page.title", url="mitosis"), within_s=60)
    assert info["outcome"] == "succeeded"
    assert "serving as" in user.cluster.log("serve")
    user.cluster.expect_exit("serve")
    child.stop()


def test_an_operator_retires_a_worker_and_its_task_ends_first(user: LiveUser):
    uuid = user.submit("sleep", "2", tags=("retired",))
    with direct_worker(user, "retired", "--tags", "retired") as retired:
        user.running(uuid, within_s=60)
        [worker] = [one for one in user.workers() if one["assigned_task_id"] == uuid]
        user.call("DELETE", f"/workers/{worker['worker_id']}")
        info = user.ended(uuid)
        assert (info["outcome"], info["attempt"]) == ("succeeded", 1)
        user.cluster.expect_exit("retired")
        eventually(lambda: retired.poll() is not None, what=user.cluster.log("retired")[-2000:])
        assert retired.poll() == 0, user.cluster.log("retired")[-3000:]
