"""What `mitosis` draws on a terminal, what keys do there, and what can never reach it."""

import json
import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agent_lab import AgentLab
from tests.e2e.cli_answers import check_answer
from tests.e2e.cli_lab import Shell, running_lab, shell_of
from tests.harness import TestServices

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

# Sets the title, rings, turns red, clears the screen by a C1 control, and writes backwards.
EVIL = "\x1b]0;owned\x07\x1b[31mred\u009b2J\u202e"
RAW = (b"\x1b]0", b"\x07", b"\x1b[31m", "\u009b".encode(), "\u202e".encode())
SCREEN_TAKEN, SCREEN_GIVEN_BACK = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with running_lab(tmp_path_factory.mktemp("terminal")) as found:
        yield found


@pytest.fixture(scope="module")
def shell(lab: AgentLab, tmp_path_factory: pytest.TempPathFactory) -> Shell:
    found = shell_of(lab, tmp_path_factory.mktemp("home"))
    found.login()
    return found


@pytest.fixture(scope="module")
def evil(shell: Shell) -> dict[str, Any]:
    """A suite whose name, command and output are hostile; its task fails."""
    script = 'printf %b "$0"; printf %b "$0" >&2; exit 3'
    done = shell.run(
        "run",
        "--suite",
        f"evil{EVIL}",
        "--wait",
        "-o",
        "json",
        "--",
        "sh",
        "-c",
        script,
        f"x{EVIL}",
    )
    assert done.returncode == 1, done
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def plain(seen: bytes) -> bytes:
    """Without the colours and moves of our own."""
    return re.sub(rb"\x1b\[[0-9;?]*[A-Za-z]", b"", seen)


def test_nothing_hostile_reaches_the_terminal_on_any_way(
    shell: Shell, evil: dict[str, Any], lab: AgentLab
):
    suite, [task] = evil["suite_uuid"], evil["uuids"]
    shell.ok("managers", "drain", lab.managers()[0]["uuid"], "--reason", f"why{EVIL}")
    shell.ok("managers", "undrain", lab.managers()[0]["uuid"])
    shell.ok("suites", "create", f"other{EVIL}", "--tag", f"tag{EVIL}")
    shell.ok("tasks", "submit", "--suite", f"other{EVIL}", "--", f"arg{EVIL}")
    [waiting] = shell.ok("tasks", "list", "--suite", f"other{EVIL}", "-o", "quiet").split()
    shell.ok("login", "--coordinator", shell.url, "--user", shell.user, "--password-stdin",
             "--save-as", f"ctx{EVIL}", stdin=shell.password)  # fmt: skip
    ways: list[tuple[tuple[str, ...], bytes]] = [
        (("suites", "list"), b"evil\\x1b]0;owned"),
        (("suites", "list", "-o", "json"), b"evil\\u001b"),
        (("suites", "show", suite), b"evil\\x1b]0;owned"),
        (("suites", "show", f"none{EVIL}"), b"none"),
        (("suites", "export", suite, "--format", "csv"), b"u001b"),
        (("suites", "export", suite), b"u001b"),
        (("suites", "explain", f"other{EVIL}"), b"tag\\x1b]0;owned"),
        (("tasks", "list", "--suite", suite), b"\\x1b]0;owned"),
        (("tasks", "show", task), b"u001b"),
        (("tasks", "logs", task), b"x\\x1b]0;owned"),
        (("tasks", "logs", task, "--stderr"), b"x\\x1b]0;owned"),
        (("tasks", "explain", waiting), b"tag\\x1b"),
        (("explain", f"none{EVIL}"), b"none"),
        (("contexts", "list"), b"ctx\\x1b]0;owned"),
        (("contexts", "use", f"ctx{EVIL}"), b"ctx\\x1b]0;owned"),
        (("groups", "show", f"none{EVIL}"), b""),
        (("attachments", "upload", f"none{EVIL}"), b"none"),
        (("whoami", "--context", f"none{EVIL}"), b"none"),
        (("managers", "grant", lab.managers()[0]["uuid"], f"g=king{EVIL}"), b"king"),
        (("top", "--frames", "1"), b"evil\\x1b]0;owned"),
        ((f"none{EVIL}",), b"none"),
    ]  # fmt: skip
    for start in range(0, len(ways), 7):  # a few at a time: they mostly wait
        with ExitStack() as stack:
            part = [(words, shown, stack.enter_context(shell.terminal(*words)))
                    for words, shown in ways[start : start + 7]]  # fmt: skip
            for words, shown, terminal in part:
                _, seen = terminal.finish()
                assert not [raw for raw in RAW if raw in seen], (words, seen)
                assert shown in plain(seen), (words, seen)
    shell.ok("suites", "cancel", f"other{EVIL}", "--reason", f"because{EVIL}")
    piped = shell.process("tasks", "logs", task)
    assert piped.stdout == f"x{EVIL}", "into a pipe it goes byte for byte"


def test_a_failure_is_told_without_what_the_task_wrote_raw(shell: Shell):
    words = ("run", "--suite", f"fails{EVIL}", "--wait", "--", "sh", "-c", "exit 3", EVIL)
    with shell.terminal(*words) as terminal:
        status, seen = terminal.finish()
    assert status == 1
    assert b"failed" in plain(seen)
    assert not [raw for raw in RAW if raw in seen], seen


def test_progress_is_drawn_on_a_terminal_and_failures_as_they_happen(shell: Shell):
    with shell.terminal(
        "run", "--suite", "drawn", "--workers", "2", "--wait", "--",
        "sh", "-c", "sleep 0.2; test {x} != 3", "--x", "1..6",
    ) as terminal:  # fmt: skip
        status, seen = terminal.finish()
    text = plain(seen)
    assert status == 1
    assert b"6/6" in text
    assert re.search(rb"[0-9a-f-]{36} failed", text)
    assert b"5 succeeded" in text


def test_the_first_ctrl_c_detaches_and_the_second_cancels(shell: Shell):
    words = ("run", "--suite", "long", "--workers", "1", "--wait", "--", "sleep", "60")
    with shell.terminal(*words) as terminal:
        terminal.read_until("0/1")
        terminal.interrupt()
        terminal.read_until("Detached")
        status, seen = terminal.finish()
    assert status == 130
    assert b"Traceback" not in seen
    [left] = shell.json("tasks", "list", "--suite", "long")
    assert left["outcome"] is None
    with shell.terminal(*words) as terminal:
        terminal.read_until("0/1")
        terminal.interrupt()
        terminal.read_until("Detached")
        terminal.interrupt()
        terminal.read_until("Cancelled 1 task.")
        assert terminal.finish()[0] == 130
    shell.ok("suites", "cancel", "long")


@pytest.fixture
def gate() -> Iterator[Path]:
    """A file that tasks can wait for, whoever they run as."""
    with tempfile.TemporaryDirectory(prefix="mitosis-gate-") as folder:
        Path(folder).chmod(0o755)
        yield Path(folder) / "open"


def test_the_output_of_a_running_task_is_followed(shell: Shell, gate: Path):
    script = f"echo first; until [ -e {gate} ]; do sleep 0.1; done; echo last"
    [task] = shell.json("run", "--suite", "spoken", "--", "sh", "-c", script)["uuids"]
    words = ("tasks", "logs", "-f", task)
    with shell.terminal(*words) as drawn, shell.start(*words) as follower:
        assert follower.stdout is not None
        assert follower.stderr is not None
        assert follower.stdout.readline() == "first\n"
        drawn.read_until("first")
        gate.touch()
        status, seen = drawn.finish()
        assert (status, plain(seen).split()) == (0, [b"first", b"last"])
        assert (follower.stdout.read(), follower.stderr.read()) == ("last\n", "")
        assert follower.wait(timeout=60) == 0


def test_a_password_is_asked_for_and_not_shown(shell: Shell, tmp_path: Path):
    user = Shell(tmp_path, shell.url, shell.user, shell.password)
    with user.terminal("login", "--coordinator", user.url, "--user", user.user) as terminal:
        terminal.read_until("Password of")
        terminal.type(f"{user.password}\n")
        status, seen = terminal.finish()
    assert status == 0, seen
    assert user.password.encode() not in seen
    with user.terminal("login", "--coordinator", user.url, "--user", user.user) as terminal:
        terminal.read_until("Password of")
        terminal.interrupt()
        status, seen = terminal.finish()
    assert status == 130
    assert b"Traceback" not in seen


def test_an_upload_of_a_directory_shows_how_far_it_is(shell: Shell):
    folder = shell.home / "big"
    (folder / "sub").mkdir(parents=True)
    for name in ("a", "sub/b"):
        (folder / name).write_bytes(b"x" * 2_000_000)
    with shell.terminal("attachments", "upload", "big") as terminal:
        status, seen = terminal.finish()
    assert status == 0, seen
    assert b"4.0/4.0 MB" in plain(seen)
    assert b"2 files, 4000000 bytes" in plain(seen)
    with shell.terminal("attachments", "download", "big/sub/b", "--to", "back") as terminal:
        status, seen = terminal.finish()
    assert status == 0, seen
    assert (shell.home / "back").stat().st_size == 2_000_000


def test_doctor_draws_a_table(shell: Shell):
    with shell.terminal("doctor") as terminal:
        status, seen = terminal.finish()
    assert status == 0, seen
    assert re.search(rb"ok\s+coordinator", plain(seen))


def test_views_are_watched_full_screen_through_a_restart(
    shell: Shell, lab: AgentLab, evil: dict[str, Any]
):
    suite, [task] = evil["suite_uuid"], evil["uuids"]
    web = lab.cluster.child("web0")
    with ExitStack() as stack:
        watched = {
            words: stack.enter_context(shell.terminal(*words))
            for words in (
                ("top", "--interval", "0.2"),
                ("suites", "list", "--watch"),
                ("tasks", "show", task, "--watch"),
                ("managers", "list", "--watch"),
                ("explain", suite, "--watch"),
            )
        }
        for terminal in watched.values():
            terminal.read_until(SCREEN_TAKEN.decode())
        watched["top", "--interval", "0.2"].read_until("tasks left")
        lab.cluster.kill("web0")
        for terminal in watched.values():
            terminal.read_until("cannot reach")
            terminal.seen = b""
        lab.cluster.revive(web.spec)
        watched["top", "--interval", "0.2"].read_until("tasks left")
        watched["suites", "list", "--watch"].read_until("evil")
        watched["tasks", "show", task, "--watch"].read_until(task)
        for words, terminal in watched.items():
            terminal.interrupt()
            status, seen = terminal.finish()
            assert status == 130, (words, seen)
            assert SCREEN_GIVEN_BACK in seen
            assert b"Traceback" not in seen
            assert not [raw for raw in RAW if raw in seen], (words, seen)


def test_in_a_pipe_a_watch_gives_a_json_line_a_second(shell: Shell, evil: dict[str, Any]):
    words = ("suites", "show", evil["suite_uuid"], "--watch", "-o", "json")
    with shell.start(*words) as watching:
        assert watching.stdout is not None
        for _ in range(2):
            check_answer("suites show", json.loads(watching.stdout.readline()))
        watching.terminate()
