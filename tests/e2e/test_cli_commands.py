"""Every command of `mitosis` against a running cluster with one agent."""

import json
import os
import re
import stat
import subprocess
import sys
import tarfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from mitosis_client.cli import hints
from tests.e2e.agent_lab import AgentLab
from tests.e2e.cli_answers import check_answer
from tests.e2e.cli_lab import Shell, running_lab, shell_of
from tests.e2e.cli_tree import all_commands
from tests.harness import TestServices
from tests.integration.workers.live_user import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with running_lab(tmp_path_factory.mktemp("cli")) as found:
        yield found


@pytest.fixture(scope="module")
def shell(lab: AgentLab, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    found = shell_of(lab, tmp_path_factory.mktemp("home"))
    found.login()
    return found


@pytest.fixture(scope="module")
def swept(shell: Shell) -> dict[str, Any]:
    """A suite of six tasks, one of which fails; run once, looked at by many tests."""
    done = shell.run(
        "run", "--suite", "sweep", "--workers", "2", "--wait", "-o", "json", "--",
        "sh", "-c", 'echo "{x}-{y}"; test {x}{y} != 2b', "--x", "1..3", "--y", "a,b",
    )  # fmt: skip
    assert done.returncode == 1, (done.stdout, done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return {**found, "stderr": done.stderr}


def age(lab: AgentLab, table: str) -> None:
    """As if everything in it had been written two hours ago."""
    with psycopg.connect(lab.cluster.database_url, autocommit=True) as connection:
        connection.execute(f"UPDATE {table} SET updated_at = updated_at - interval '2 hours'")


def test_login_keeps_the_token_in_a_private_file(shell: Shell):
    tokens = shell.home / "config" / "mitosis" / "tokens.json"
    assert stat.S_IMODE(tokens.stat().st_mode) == 0o600
    assert shell.json("whoami")["user"] == shell.user
    assert [one["name"] for one in shell.json("contexts", "list")] == ["default"]
    tokens.chmod(0o644)
    refused = shell.run("whoami")
    tokens.chmod(0o600)
    assert refused.returncode == 2
    assert "others can read it" in refused.stderr


def test_contexts_are_chosen_by_flag_and_by_variable(shell: Shell):
    made = shell.json("login", "--coordinator", shell.url, "--user", shell.user, "--password-stdin",
                      "--save-as", "second", stdin=shell.password)  # fmt: skip
    assert (made["context"], made["token_store"]) == ("second", "file")
    shell.json("contexts", "use", "default")
    assert shell.run("whoami", "--context", "nowhere").returncode == 2
    done = shell.run("-o", "json", "whoami", MITO_COORDINATOR="http://127.0.0.1:9")
    assert done.returncode == 4, "a token is not sent to an address it was not given by"
    assert shell.run("whoami", "--context", "second",
                     MITO_COORDINATOR="http://127.0.0.1:9").returncode == 0  # fmt: skip
    assert shell.run("whoami", MITO_CONTEXT="second").returncode == 0
    other = Shell(shell.home / "other", shell.url, shell.user, shell.password)
    other.home.mkdir()
    other.login()
    other.json("contexts", "remove", "default")
    assert other.json("contexts", "list") == []
    assert other.run("whoami", "--coordinator", shell.url).returncode == 4


def test_a_keyring_holds_the_token_where_there_is_one(shell: Shell, tmp_path: Path):
    """In real processes: nothing but the keyring's file connects the three of them."""
    backend = "tests.fakes.keyring_file.FileKeyring"
    env = {"PYTHON_KEYRING_BACKEND": backend, "MITO_TOKENS": "auto"}
    user = Shell(tmp_path, shell.url, shell.user, shell.password)
    words = ("login", "--coordinator", shell.url, "--user", shell.user, "--password-stdin")
    done = user.process(*words, stdin=f"{shell.password}\n", env=env)
    assert "token in the keyring" in done.stdout, done
    kept = (tmp_path / "config" / "mitosis" / "tokens.json").read_text()
    [token] = json.loads((tmp_path / "keyring.json").read_text()).values()
    assert token not in kept
    assert user.process("whoami", "-o", "quiet", env=env).stdout.strip() == shell.user
    assert user.process("logout", env=env).returncode == 0
    assert token not in (tmp_path / "keyring.json").read_text()


def test_a_sweep_runs_every_combination_and_tells_of_the_failure(
    shell: Shell, swept: dict[str, Any]
):
    check_answer("run", {key: swept[key] for key in swept if key != "stderr"})
    assert swept["count"] == 6
    assert swept["outcomes"] == {"succeeded": 5, "failed": 1}
    assert "failed" in swept["stderr"]
    outputs = {shell.ok("tasks", "logs", uuid_).strip() for uuid_ in swept["uuids"][:3]}
    assert outputs == {"1-a", "1-b", "2-a"}


def test_suites_can_be_listed_shown_and_found_by_prefix_name_and_last(
    shell: Shell, swept: dict[str, Any]
):
    uuid_ = swept["suite_uuid"]
    rows = shell.json("suites", "list")
    assert uuid_ in [one["uuid"] for one in rows]
    for text in (uuid_[:8], "sweep", uuid_):
        assert shell.json("suites", "show", text)["uuid"] == uuid_
    assert "sweep" in shell.ok("suites", "show", uuid_[:8])
    assert shell.ok("suites", "list", "-o", "quiet", "--name", "sweep").split() == [uuid_]
    assert shell.ok("suites", "show", "last", "-o", "quiet").strip()


def test_tasks_can_be_listed_shown_explained_and_their_archives_fetched(
    shell: Shell, lab: AgentLab, swept: dict[str, Any]
):
    rows = shell.json("tasks", "list", "--suite", "sweep")
    assert {one["uuid"] for one in rows} >= set(swept["uuids"])
    [failed] = shell.json("tasks", "list", "--suite", "sweep", "--outcome", "failed")
    assert shell.json("tasks", "show", failed["uuid"][:10])["info"]["uuid"] == failed["uuid"]
    assert "exit_code" in shell.ok("tasks", "show", failed["uuid"])
    assert shell.json("tasks", "explain", failed["uuid"])["summary"]
    assert shell.ok("explain", failed["uuid"])
    kinds = [one["content_type"] for one in shell.json("tasks", "artifacts", failed["uuid"])]
    assert kinds == ["std-log"]
    shell.ok("artifacts", "download", failed["uuid"], "--type", "std-log", "--to", "log.tgz")
    with tarfile.open(shell.home / "log.tgz") as archive:
        assert "std-log/stdout.log" in archive.getnames()
    number = str(failed["task_id"])
    assert shell.json("tasks", "show", number)["info"]["uuid"] == failed["uuid"]
    done = swept["uuids"][0]
    assert shell.json("artifacts", "download", done, "--type", "std-log", "--to", "d")["size"] > 0
    assert shell.run("artifacts", "delete", done, "--type", "std-log").returncode == 2
    age(lab, "artifacts")
    shell.json("artifacts", "delete", done, "--type", "std-log")
    assert shell.json("artifacts", "list", done) == []
    assert shell.run("artifacts", "download", done, "--type", "std-log").returncode == 3


def test_a_suite_is_exported_as_json_lines_and_csv(shell: Shell, swept: dict[str, Any]):
    whole = shell.json("suites", "export", "sweep")
    assert len(whole["tasks"]) >= 6
    assert whole["suite"]["uuid"] == swept["suite_uuid"]
    lines = shell.ok("suites", "export", "sweep", "--format", "jsonl").splitlines()
    assert {json.loads(line)["uuid"] for line in lines} >= set(swept["uuids"])
    shell.ok("suites", "export", "sweep", "--format", "csv", "--to", "out.csv")
    assert (shell.home / "out.csv").read_text().startswith("uuid,task_id,state,outcome")
    assert shell.run("suites", "export", "sweep", "--format", "xml").returncode == 2


def test_failed_tasks_run_again(shell: Shell, swept: dict[str, Any]):
    [failed] = shell.json("tasks", "list", "--suite", "sweep", "--outcome", "failed")[:1]
    again = shell.json("suites", "rerun", "sweep", "--failed")
    assert again["tasks"][0]["rerun_of"] == failed["uuid"]
    waited = shell.run("suites", "wait", "sweep", "--timeout", "60", "-o", "json")
    assert waited.returncode == 1
    check_answer("suites wait", json.loads(waited.stdout))
    assert "was run again before" in shell.run("tasks", "rerun", failed["uuid"]).stderr
    newest = again["tasks"][0]["uuid"]
    assert shell.json("tasks", "rerun", newest)[0]["rerun_of"] == newest


def test_the_life_of_a_suite_is_steered(shell: Shell):
    made = shell.json("suites", "create", "steered", "--workers", "1", "--tag", "nowhere")
    uuid_ = made["uuid"]
    assert shell.json("suites", "pause", "steered")["is_paused"] is True
    assert shell.json("suites", "resume", uuid_)["is_paused"] is False
    assert shell.json("suites", "close", uuid_)["suite_state"] == "Closed"
    assert shell.json("suites", "reopen", uuid_)["suite_state"] == "Open"
    scaled = shell.json("suites", "scale", uuid_, "--workers", "3", "--max-running", "2")
    assert scaled["worker_schedule"]["worker_count"] == 3
    task = shell.ok("tasks", "submit", "--suite", "steered", "-o", "quiet", "--", "true").strip()
    assert shell.json("suites", "explain", "steered")["can_run"] is False
    assert "nowhere" in shell.ok("explain", uuid_)
    assert shell.json("explain", task[:8])["can_run"] is False
    assert shell.run("suites", "wait", uuid_, "--timeout", "0.2").returncode == 124
    assert shell.json("tasks", "cancel", task)["cancelled_count"] == 1
    assert shell.run("tasks", "cancel", task).returncode == 3
    assert shell.json("tasks", "array", "--suite", uuid_, "--", "echo", "{x}",
                      "--x", "1..3")["count"] == 3  # fmt: skip
    ids = shell.ok("tasks", "array", "--suite", uuid_, "-o", "quiet", "--", "echo").split()
    assert shell.json("tasks", "show", ids[0])["info"]["suite_uuid"] == uuid_
    assert shell.json("suites", "cancel", uuid_)["cancelled_task_count"] == 4
    assert shell.run("suites", "reopen", uuid_).returncode == 6


def test_a_file_with_tasks_makes_and_fills_a_suite(shell: Shell):
    (shell.home / "campaign.yaml").write_text(
        "name: campaign\nworkers: 2\ntags: [nowhere]\n"
        "tasks:\n  - args: [echo, '{x}']\n    params: {x: 1..5}\n  - args: ['true']\n"
    )
    made = shell.json("suites", "create", "--file", "campaign.yaml")
    assert made["count"] == len(made["uuids"]) == 6
    assert shell.json("suites", "show", "campaign")["pending_tasks"] == 6
    shell.ok("suites", "cancel", "campaign")


def test_a_suite_is_made_from_a_file(shell: Shell):
    (shell.home / "suite.toml").write_text(
        'name = "filed"\ntags = ["nowhere"]\n[worker_schedule]\nworker_count = 2\n'
        '[env_preparation]\nargs = ["true"]\ntimeout = "1m"\n'
    )
    made = shell.json("suites", "create", "--file", "suite.toml")
    assert shell.json("suites", "show", made["uuid"])["env_preparation"]["args"] == ["true"]
    (shell.home / "bad.json").write_text('{"worker_schedule": {"worker_count": 0}}')
    refused = shell.run("suites", "create", "--file", "bad.json")
    assert refused.returncode == 2
    assert "worker_count" in refused.stderr


def test_hooks_run_before_and_after_a_sweep(shell: Shell):
    done = shell.json(
        "run", "--suite", "hooked", "--prep", "echo 41 > $MITOSIS_SUITE_DIR/n",
        "--cleanup", "true", "--wait", "--", "sh", "-c", "cat $MITOSIS_SUITE_DIR/n; echo {x}",
        "--x", "7",
    )  # fmt: skip
    assert shell.ok("tasks", "logs", "-f", done["uuids"][0]) == "41\n7\n"


def test_managers_are_listed_and_steered(shell: Shell, lab: AgentLab):
    [one] = shell.json("managers", "list")
    prefix = one["uuid"][:8]
    assert shell.json("managers", "show", prefix)["groups"] == {lab.user.name: "Admin"}
    assert shell.json("managers", "drain", prefix, "--reason", "look")["state"] == "Draining"
    assert shell.json("managers", "show", prefix)["reason"] == "look"
    assert shell.json("managers", "undrain", prefix)["state"] == "Active"
    assert shell.json("managers", "quarantine", prefix)["state"] == "Quarantined"
    assert shell.json("managers", "release", prefix)["state"] == "Active"
    assert shell.json("managers", "metrics", prefix)["manager_id"] == one["uuid"]
    shell.json("groups", "create", "guests")
    assert shell.json("managers", "grant", prefix, "guests=read")["consents"]["guests"]
    shell.json("managers", "withdraw", prefix, "guests")
    assert shell.run("managers", "grant", prefix, "guests=king").returncode == 2


def test_workers_without_a_manager_are_listed_and_sent_home(shell: Shell, lab: AgentLab):
    body = {"tags": [], "labels": [], "groups": [], "lifetime": None}
    made = lab.user.call("POST", "/workers", json=body)["worker_id"]
    assert made in shell.ok("workers", "list", "-o", "quiet").split()
    assert shell.json("workers", "show", made[:8])["worker_id"] == made
    assert made in [one["worker_id"] for one in shell.json("workers", "list")]
    shell.json("workers", "shutdown", made, "--force")
    assert made not in shell.ok("workers", "list", "-o", "quiet").split()


def test_groups_users_and_quotas(shell: Shell, lab: AgentLab):
    name = f"ann-{uuid.uuid4().hex[:6]}"
    shell.json("admin", "create-user", name, "--password-stdin", stdin="first\n")
    team = f"team-{name}"
    shell.ok("groups", "create", team)
    shell.json("groups", "add", team, f"{name}=write")
    assert shell.json("groups", "show", team)["users_in_group"][name] == "Write"
    assert {"group": team, "role": "Admin"} in shell.json("groups", "list")
    assert {"group": team, "role": "Admin"} in shell.json("users", "groups")
    shell.json("groups", "remove", team, name)
    assert shell.json("admin", "group-quota", name, "+1")["group_quota"] == 9
    assert shell.json("admin", "storage-quota", team, "1GB")["storage_quota"] == 10**9
    other = Shell(shell.home / name, shell.url, name, "first")
    other.home.mkdir()
    other.login()
    other.json("users", "password", "--password-stdin", stdin="first\nsecond\n")
    theirs = f"theirs-{name}"
    other.ok("groups", "create", theirs)
    other.ok("groups", "add", theirs, f"{shell.user}=write")
    [host] = shell.json("managers", "list")
    granted = shell.json("managers", "grant", host["uuid"], f"{theirs}=read")
    answer = other.json("managers", "consent", host["uuid"], "--group", theirs, "--refuse")
    assert answer["consent"] != granted["consents"][theirs], "the host waited for their word"
    assert other.json("whoami")["user"] == name
    assert other.run("admin", "create-user", "x", "--password-stdin", stdin="p\n").returncode == 4
    assert shell.json("admin", "lock-user", name)["state"] == "Locked"
    assert other.run("whoami").returncode == 4
    assert shell.json("admin", "unlock-user", name)["state"] == "Active"
    shell.json("admin", "set-password", name, "--password-stdin", stdin="third\n")
    assert shell.json("admin", "delete-user", name)["state"] == "Deleted"
    shell.ok("contexts", "list")
    other.json("logout")
    assert other.run("whoami").returncode == 4


def test_files_and_directories_are_uploaded_and_fetched(shell: Shell, lab: AgentLab):
    folder = shell.home / "data"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.txt").write_text("a")
    (folder / "sub" / "b.txt").write_text("bb")
    (folder / "link").symlink_to("/etc/hostname")
    assert shell.json("attachments", "upload", "data")["keys"] == ["data/a.txt", "data/sub/b.txt"]
    rows = shell.json("attachments", "list", "--key", "data/")
    assert [one["key"] for one in rows] == ["data/a.txt", "data/sub/b.txt"]
    assert shell.json("attachments", "show", "data/sub/b.txt")["size"] == 2
    shell.json("attachments", "download", "data/sub/b.txt", "--to", "back.txt")
    assert (shell.home / "back.txt").read_text() == "bb"
    young = shell.run("attachments", "delete", "data/a.txt")
    assert young.returncode == 2
    assert "hour" in young.stderr
    age(lab, "attachments")
    shell.json("attachments", "delete", "data/a.txt")
    assert shell.run("attachments", "show", "data/a.txt").returncode == 3
    again = shell.ok("attachments", "upload", "data", "--key", "deep/er", "-o", "quiet")
    assert again.splitlines() == ["deep/er/a.txt", "deep/er/sub/b.txt"]


def test_no_command_at_all_shows_the_help(shell: Shell):
    done = shell.run()
    assert done.returncode == 2
    assert "Usage: mitosis" in done.stdout
    assert not done.stderr
    assert "Usage: mitosis suites" in shell.run("suites").stdout
    assert shell.run("run", "--help").returncode == 0


def test_what_is_missing_is_status_three_and_an_error_may_be_json(shell: Shell):
    done = shell.run("suites", "show", "no-such-suite", "-o", "json")
    assert done.returncode == 3
    assert json.loads(done.stderr)["error"]["exit_status"] == 3
    assert shell.run("tasks", "show", str(uuid.uuid4())).returncode == 3


def test_a_prefix_that_fits_several_names_them(shell: Shell):
    made = shell.ok("tasks", "array", "-o", "quiet", "--", "echo", "{x}", "--x", "1..100").split()
    letters = [one[0] for one in made if one[0].isalpha()]  # a digit alone is a task's number
    several = max(letters, key=letters.count)
    for words in (("show", several), ("cancel", several), ("logs", several)):
        done = shell.run("tasks", *words)
        assert done.returncode == 3, done
        assert re.search(f"'{several}' fits [0-9]+ tasks: {several}", done.stderr)
    assert shell.json("tasks", "cancel", *made)["cancelled_count"] == 100


def test_the_shell_completes_commands(shell: Shell):
    def completed(line: str) -> list[str]:
        env = {"_MITOSIS_COMPLETE": "complete_bash", "COMP_WORDS": line,
               "COMP_CWORD": str(len(line.split(" ")) - 1)}  # fmt: skip
        return shell.process(env=env).stdout.split()

    assert completed("mitosis sui") == ["suites"]
    assert completed("mitosis suites re") == ["reopen", "resume", "rerun"]


def test_doctor_judges_this_host_against_the_coordinator(shell: Shell):
    checks = {one["name"]: one for one in shell.json("doctor")}
    assert checks["coordinator"]["level"] == checks["clock"]["level"] == "ok"
    assert {"cgroups", "ipc", "disk", "shared memory"} <= checks.keys()
    lost = shell.run("doctor", "--coordinator", "http://127.0.0.1:9")
    assert lost.returncode == 1
    assert "FAIL" in lost.stdout
    nothing = shell.run("status", "--data-dir", "nowhere", "-o", "json")
    assert nothing.returncode == 3
    check_answer("status", json.loads(nothing.stdout))
    assert "tasks left" in shell.ok("top", "--frames", "1")


def test_a_run_on_a_warm_host_returns_soon(shell: Shell):
    words = ("run", "--suite", "warm", "--wait", "-o", "quiet", "--", "true")
    shell.ok(*words)
    began = time.monotonic()
    done = shell.process(*words)
    took_s = time.monotonic() - began
    print(f"run --wait -- true in {took_s:.2f} s")
    assert done.returncode == 0
    assert took_s < 20, "1.5 s on a quiet machine; others may be busy here"


def test_a_run_without_a_name_closes_the_suite_it_made(shell: Shell):
    suites = [shell.ok("run", "--wait", "-o", "quiet", "--", "true").strip() for _ in range(2)]
    assert len(set(suites)) == 2
    shown = [shell.json("suites", "show", uuid_) for uuid_ in suites]
    assert {one["state"] for one in shown} <= {"Closed", "Complete"}
    assert all(one["closed_at"] for one in shown)


def test_ten_thousand_tasks_are_submitted_from_one_line(shell: Shell):
    began = time.monotonic()
    done = shell.json("run", "--suite", "many", "--tag", "nowhere", "--",
                      "echo", "{x}", "--x", "1..10000")  # fmt: skip
    print(f"10,000 tasks in {time.monotonic() - began:.2f} s")
    assert done["count"] == len(set(done["uuids"])) == 10_000
    shell.ok("suites", "cancel", "many")


def test_a_wait_for_what_cannot_run_says_why(shell: Shell, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(hints, "QUIET_S", 0.2)
    words = ("run", "--suite", "stuck", "--tag", "nowhere", "--wait", "--wait-timeout", "3")
    done = shell.run(*words, "--", "true")
    assert done.returncode == 124
    why, told = done.stderr.splitlines()
    assert why.startswith("waiting: ")
    assert "nowhere" in why
    assert "have not ended" in told
    shell.ok("suites", "cancel", "stuck")


def test_a_wait_outlives_a_coordinator_that_is_away_for_a_while(shell: Shell, lab: AgentLab):
    web = lab.cluster.child("web0")
    shell.ok("suites", "create", "patient")
    words = ("run", "--suite", "patient", "--wait", "-o", "json", "--", "sleep", "6")
    with shell.start(*words) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        eventually(lambda: shell.json("tasks", "list", "--suite", "patient"), what="it is there")
        lab.cluster.kill("web0")
        assert "still waiting" in running.stderr.readline()
        lab.cluster.revive(web.spec)
        answer, told = json.loads(running.stdout.read()), running.stderr.read()
        assert running.wait(timeout=60) == 0, told
    assert answer["outcomes"] == {"succeeded": 1}
    assert "is back" in told


def test_a_host_and_a_coordinator_are_sent_home(shell: Shell, lab: AgentLab):
    """The last one of this file that has a use for them."""
    [host] = shell.json("managers", "list")
    lab.cluster.expect_exit("one")
    assert shell.json("managers", "shutdown", host["uuid"][:8], "--force")["uuid"] == host["uuid"]
    eventually(lambda: lab.cluster.child("one").poll() is not None, within_s=60)
    wrong = shell.run("admin", "shutdown", stdin="wrong\n")
    assert wrong.returncode == 4
    secret = subprocess.run(
        [sys.executable, "manage.py", "shutdown_secret"],
        env={**os.environ, **lab.cluster.environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    lab.cluster.expect_exit("web0")
    shell.json("admin", "shutdown", stdin=f"{secret}\n")
    eventually(lambda: lab.cluster.child("web0").poll() is not None, within_s=60)
    assert shell.run("whoami").returncode == 5


def test_every_command_was_driven_here(request: pytest.FixtureRequest):
    here = [item for item in request.session.items if item.path == request.path]
    if len(here) < sum(name.startswith("test_") for name in globals()):
        pytest.skip("only some tests of this file were asked for")
    elsewhere = {"up", "down", "allocate slurm"}  # test_embedded_stack.py, test_allocate_slurm.py
    assert set(all_commands()) - elsewhere <= Shell.driven | {"status"}
