"""The client library against a running cluster: typed answers, pages, streams, files, the executor,
campaigns, and every example of the documentation. One cluster for all of it."""

import asyncio
import math
import operator
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

import mitosis_client as mitosis
from mitosis_client.calls import suites, tasks
from mitosis_client.follow import Follower, wait_for_suite
from mitosis_protocol.specs import WorkerSchedule
from tests.e2e.agent_lab import AgentLab
from tests.e2e.cli_lab import Shell, client_of, running_lab, shell_of
from tests.harness import TestServices

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

EXAMPLES = Path(__file__).resolve().parents[2] / "docs" / "examples"


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with running_lab(tmp_path_factory.mktemp("sdk")) as found:
        yield found


@pytest.fixture(scope="module")
def client(lab: AgentLab) -> Iterator[mitosis.Client]:
    with client_of(lab) as found:
        yield found


@pytest.fixture(scope="module")
def suite(client: mitosis.Client, lab: AgentLab) -> str:
    """One warm suite for all tests, so that the host prepares once."""
    spec = mitosis.SuiteSpec(
        group_name=lab.user.name,
        name="sdk",
        worker_schedule=WorkerSchedule(worker_count=2, task_prefetch_count=4),
    )
    return client.suites.create(spec).uuid


def test_a_task_runs_and_its_output_and_archive_come_back(
    client: mitosis.Client, suite: str, lab: AgentLab, tmp_path: Path
):
    follower = Follower(client)
    command = ["sh", "-c", 'echo said; echo kept > "$MITO_RESULT_DIR/r"']
    task = mitosis.NewTask(args=command, group_name=lab.user.name, suite_uuid=suite)
    made = client.tasks.submit(task)
    follower.add([made.uuid])
    follower.wait(lambda _: None, timeout_s=60)
    found = client.tasks.show(made.uuid)
    assert (found.info.outcome, found.info.exit_code) == ("succeeded", 0)
    assert client.log(made.uuid, "stdout").data == b"said\n"
    assert {one.content_type for one in found.artifacts} == {"result", "std-log"}
    size = client.files.download_artifact(made.uuid, "result", tmp_path / "r.tar.gz")
    assert size == (tmp_path / "r.tar.gz").stat().st_size > 0


def test_an_array_with_the_same_key_is_taken_once(
    client: mitosis.Client, suite: str, lab: AgentLab
):
    template = mitosis.NewTask(args=["test", "{x}"], group_name=lab.user.name, suite_uuid=suite)
    first = client.tasks.submit_array(template, [{"x": 1}, {"x": 2}], key="sdk-once")
    again = client.tasks.submit_array(template, [{"x": 1}, {"x": 2}], key="sdk-once")
    assert first.uuids == again.uuids
    assert wait_for_suite(client, suite, timeout_s=60).pending_tasks == 0


def test_lists_are_read_page_by_page_to_their_end(
    client: mitosis.Client, suite: str, lab: AgentLab
):
    template = mitosis.NewTask(args=["true"], group_name=lab.user.name, suite_uuid=suite)
    made = client.tasks.submit_array(template, [{} for _ in range(25)])
    pages = tasks.query(suite_uuid=suite)
    small = type(pages)(pages.page, pages.items, pages.item, size=4)
    uuids = [one.uuid for one in client.pages(small)]
    assert len(uuids) == len(set(uuids))
    assert set(made.uuids) <= set(uuids)


def test_refusals_are_typed(client: mitosis.Client):
    with pytest.raises(mitosis.NotFound) as caught:
        client.suites.show("00000000-0000-4000-8000-000000000000")
    assert caught.value.status == 404
    with mitosis.Client(client.url) as other, pytest.raises(mitosis.AuthenticationFailed):
        other.login("nobody", "wrong")


def test_nobody_at_the_address_is_told_in_one_sentence():
    with (
        mitosis.Client("http://127.0.0.1:9", max_tries=2) as nobody,
        pytest.raises(mitosis.CoordinatorUnreachable, match=r"127\.0\.0\.1:9"),
    ):
        nobody.accounts.health()


def test_a_stream_goes_on_behind_the_event_it_is_given(
    client: mitosis.Client, suite: str, lab: AgentLab
):
    task = mitosis.NewTask(args=["true"], group_name=lab.user.name, suite_uuid=suite)
    made = client.tasks.submit(task)
    everything = [one for one in client.events(tasks.events_path(made.uuid)) if one.id]
    kinds = [one.data["kind"] for one in everything]
    assert kinds[0] == "submitted"
    assert kinds[-1] == "ended"
    rest = [
        one.data["kind"]
        for one in client.events(tasks.events_path(made.uuid), last_id=everything[0].id)
    ]
    assert rest == kinds[1:]


async def test_the_asynchronous_client_sends_the_same_calls(
    client: mitosis.Client, suite: str, lab: AgentLab
):
    async with mitosis.AsyncClient(client.url) as other:
        await other.login(lab.user.name, lab.user.password)
        task = mitosis.NewTask(args=["true"], group_name=lab.user.name, suite_uuid=suite)
        made = await other.tasks.submit(task)
        async with asyncio.timeout(60):
            kinds = [one.data["kind"] async for one in other.events(tasks.events_path(made.uuid))
                     if one.id]  # fmt: skip
        assert kinds[-1] == "ended"
        assert (await other.tasks.show(made.uuid)).info.outcome == "succeeded"
        assert suite in [one.uuid async for one in other.suites.list(name="sdk")]
        with pytest.raises(mitosis.NotFound):
            await other.send(suites.show("00000000-0000-4000-8000-000000000000"))


def test_attachments_go_up_and_come_back(client: mitosis.Client, lab: AgentLab, tmp_path: Path):
    (tmp_path / "in").write_bytes(bytes(range(256)) * 5000)
    client.files.upload_attachment(lab.user.name, "deep/a b.bin", tmp_path / "in")
    listed = client.accounts.attachments(lab.user.name, key="deep/a b")
    assert [one.key for one in listed] == ["deep/a b.bin"]
    client.files.download_attachment(lab.user.name, "deep/a b.bin", tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == (tmp_path / "in").read_bytes()


def test_a_follower_sees_ends_that_came_before_the_answer_of_the_submit(
    client: mitosis.Client, suite: str, lab: AgentLab
):
    follower = Follower(client)
    task = mitosis.NewTask(args=["true"], group_name=lab.user.name, suite_uuid=suite)
    made = client.tasks.submit(task)
    deadline = time.monotonic() + 60
    while client.tasks.show(made.uuid).info.outcome is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert list(follower.poll()) == []
    follower.add([made.uuid])
    assert [one.uuid for one in follower.poll()] == [made.uuid]
    follower.add(["never"])
    with pytest.raises(mitosis.WaitTimedOut):
        follower.wait(lambda _: None, timeout_s=0.2)


@pytest.fixture(scope="module")
def executor(client: mitosis.Client) -> Iterator[mitosis.MitosisExecutor]:
    with mitosis.MitosisExecutor(client, workers=2) as found:
        yield found


@pytest.fixture(scope="module")
def shell(lab: AgentLab, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    found = shell_of(lab, tmp_path_factory.mktemp("home"))
    found.login()
    return found


def test_functions_give_back_values_in_order(executor: mitosis.MitosisExecutor):
    assert list(executor.map(math.factorial, range(6), timeout=60)) == [1, 1, 2, 6, 24, 120]
    assert list(executor.map(math.factorial, [])) == []
    assert executor.submit(int, "ff", base=16).result(60) == 255


def test_an_exception_comes_back_as_itself(executor: mitosis.MitosisExecutor):
    error = executor.submit(operator.truediv, 1, 0).exception(60)
    assert isinstance(error, ZeroDivisionError)


def test_a_call_too_large_for_a_spec_travels_as_a_file(executor: mitosis.MitosisExecutor):
    assert executor.submit(len, b"x" * 200_000).result(60) == 200_000


def test_commands_give_back_what_they_said_or_how_they_failed(
    executor: mitosis.MitosisExecutor,
):
    done = executor.submit(["sh", "-c", "echo out; echo err >&2"]).result(60)
    assert (done.exit_code, done.stdout, done.stderr) == (0, "out\n", "err\n")
    with pytest.raises(mitosis.TaskFailed, match="exit code 3: broken") as caught:
        executor.submit(["sh", "-c", "echo broken >&2; exit 3"]).result(60)
    assert caught.value.exit_code == 3


def test_cancelling_a_future_cancels_its_task(
    executor: mitosis.MitosisExecutor, client: mitosis.Client
):
    future = executor.submit(["sleep", "100"])
    assert future.cancel()
    with pytest.raises(CancelledError):
        future.result(60)
    info = client.tasks.show(future.uuid).info
    assert info.cancelling or info.outcome == "cancelled"


def test_functions_of_ones_own_travel_with_what_they_close_over(
    executor: mitosis.MitosisExecutor,
):
    there = executor.submit(["python3", "-c", "import sys; print(sys.version_info[:2])"])
    is_same = there.result(60).stdout.strip() == str(sys.version_info[:2])

    class Odd(ValueError):
        """Known only here."""

    def scaled(number: int) -> int:
        if number == 3:
            raise Odd(number)
        return number * factor

    factor = 7
    if not is_same:  # told, instead of run with the wrong interpreter
        with pytest.raises(RuntimeError, match="but the function is of Python"):
            executor.submit(scaled, 1).result(60)
        return
    assert list(executor.map(scaled, [1, 2], timeout=60)) == [7, 14]
    assert executor.submit(lambda: factor + 1).result(60) == 8
    error = executor.submit(scaled, 3).exception(60)
    assert isinstance(error, Odd)
    assert error.args == (3,)


def test_after_shutdown_nothing_is_taken_and_the_suite_is_closed(client: mitosis.Client):
    with mitosis.MitosisExecutor(client, name="short") as executor:
        uuid = executor.suite_uuid
    with pytest.raises(RuntimeError):
        executor.submit(["true"])
    assert client.suites.show(uuid).state != "Open"


def test_a_campaign_is_closed_at_its_end_and_cancelled_by_an_exception(
    client: mitosis.Client, lab: AgentLab
):
    spec = mitosis.SuiteSpec(
        group_name=lab.user.name, worker_schedule=mitosis.WorkerSchedule(worker_count=2)
    )
    with mitosis.Campaign(client, spec) as campaign:
        campaign.submit(["test", "{x}"], [{"x": n} for n in range(5)])
        assert campaign.wait(timeout_s=60).succeeded_tasks == 5
        assert len(list(campaign.tasks())) == 5
    assert client.suites.show(campaign.uuid).state in ("Closed", "Complete")
    broken = mitosis.Campaign(client, spec)
    with pytest.raises(KeyError), broken:
        raise KeyError("mine")
    assert client.suites.show(broken.uuid).state == "Cancelled"


def example(shell: Shell, *words: str) -> str:
    """Run an example as a reader would, with `mitosis` and `python3` on the path."""
    programs = shell.home / "bin"
    programs.mkdir(exist_ok=True)
    (programs / "mitosis").write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -m mitosis_client.cli.main "$@"\n'
    )
    (programs / "mitosis").chmod(0o755)
    env = {**shell.environment, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        words, env=env, text=True, capture_output=True, timeout=200, check=False, cwd=shell.home
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return done.stdout


def test_example_sweep_prepares_once_and_runs_every_combination(shell: Shell):
    said = example(shell, "sh", str(EXAMPLES / "sweep.sh"))
    lines = sorted(line for line in said.splitlines() if line.startswith("lr="))
    assert lines == [
        f"lr={lr} batch={batch} first=1" for lr in ("0.01", "0.1") for batch in ("16", "32")
    ]


def test_example_ci_suite_runs_the_failed_test_again(shell: Shell):
    said = example(shell, "sh", str(EXAMPLES / "ci_suite.sh"))
    assert "Running the failed ones again." in said
    assert said.rstrip().endswith("succeeded")


def test_example_log_batch_adds_up_what_the_hosts_counted(shell: Shell):
    (shell.home / "a.log").write_text("ERROR one\nfine\nERROR two\n")
    (shell.home / "b.log").write_text("fine\n")
    said = example(shell, sys.executable, str(EXAMPLES / "log_batch.py"), "a.log", "b.log")
    assert said.splitlines() == ["a.log: 2", "b.log: 0", "total: 2"]


def test_example_functions_brings_values_and_exceptions_back(shell: Shell):
    said = example(shell, sys.executable, str(EXAMPLES / "functions.py"))
    assert "factorials: [1, 1, 2, 6, 24, 120, 720, 5040]" in said
    assert "command: from a host" in said
    assert "exception: ZeroDivisionError" in said


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_example_files_describe_whole_campaigns(shell: Shell, path: Path):
    made = shell.json("suites", "create", "--file", str(path))
    assert made["count"] > 5
    assert shell.run("suites", "wait", made["uuid"], "--timeout", "120").returncode == 0
    shown = shell.json("suites", "show", made["uuid"])
    assert shown["succeeded_tasks"] == shown["total_tasks"] == made["count"]
    shell.ok("suites", "close", made["uuid"])
