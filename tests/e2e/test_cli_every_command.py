"""Each command of `mitosis` when it is used wrongly and when nobody answers. No cluster needed.

The tables name every command; one that is added without a row fails here.
"""

import json
from pathlib import Path

import jsonschema
import pytest

from mitosis_client import transport
from mitosis_client.settings import Home
from tests.e2e.cli_answers import ANSWERS, ERROR, WITHOUT_JSON
from tests.e2e.cli_lab import Shell
from tests.e2e.cli_tree import all_commands

NOBODY = "http://127.0.0.1:9"
ID = "7f3e9a52-5c1d-4b6e-9a0f-2d8c4e6b1a37"  # the same in every process of a run

# Words with which each command gets as far as the coordinator.
CALLS: dict[str, tuple[str, ...]] = {
    "admin create-user": ("ann", "--password-stdin"),
    "admin delete-user": ("ann",),
    "admin group-quota": ("ann", "1"),
    "admin lock-user": ("ann",),
    "admin set-password": ("ann", "--password-stdin"),
    "admin shutdown": (),
    "admin storage-quota": ("team", "1GB"),
    "admin unlock-user": ("ann",),
    "artifacts delete": (ID,),
    "artifacts download": (ID,),
    "artifacts list": (ID,),
    "attachments delete": ("key",),
    "attachments download": ("key",),
    "attachments list": (),
    "attachments show": ("key",),
    "attachments upload": ("file",),
    "explain": (ID,),
    "groups add": ("team", "ann=read"),
    "groups create": ("team",),
    "groups list": (),
    "groups remove": ("team", "ann"),
    "groups show": ("team",),
    "login": ("--password-stdin",),
    "managers consent": (ID,),
    "managers drain": (ID,),
    "managers grant": (ID, "team=read"),
    "managers list": (),
    "managers metrics": (ID,),
    "managers quarantine": (ID,),
    "managers release": (ID,),
    "managers show": (ID,),
    "managers shutdown": (ID,),
    "managers undrain": (ID,),
    "managers withdraw": (ID, "team"),
    "run": ("--", "true"),
    "suites cancel": (ID,),
    "suites close": (ID,),
    "suites create": (),
    "suites explain": (ID,),
    "suites export": (ID,),
    "suites list": (),
    "suites pause": (ID,),
    "suites reopen": (ID,),
    "suites rerun": (ID,),
    "suites resume": (ID,),
    "suites scale": (ID, "--workers", "1"),
    "suites show": ("a-name",),
    "suites wait": (ID,),
    "tasks array": ("--", "true"),
    "tasks artifacts": (ID,),
    "tasks cancel": (ID,),
    "tasks explain": (ID,),
    "tasks list": ("--watch",),
    "tasks logs": (ID,),
    "tasks rerun": (ID,),
    "tasks show": ("12",),
    "tasks submit": ("--", "true"),
    "top": ("--frames", "1"),
    "users groups": (),
    "users password": ("--password-stdin",),
    "whoami": (),
    "workers list": (),
    "workers show": ("ab",),
    "workers shutdown": (ID,),
}
# They speak to this machine only; `doctor` finds the coordinator missing and says so in its table,
# and an allocation goes on until there is one again.
LOCAL = {"allocate slurm", "contexts list", "contexts remove", "contexts use", "doctor", "down",
         "logout", "status", "up"}  # fmt: skip


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    """Somebody who has logged in before the coordinator went away."""
    home = tmp_path_factory.mktemp("home")
    (home / "file").write_text("x")
    kept = Home(home / "config" / "mitosis")
    kept.save_token(NOBODY, "me", "token")
    kept.user_file.write_text(f'[client]\ncoordinator = "{NOBODY}"\nuser = "me"\n')
    return Shell(home, NOBODY, "me", "secret")


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pauses between tries are not what is looked at here."""
    monkeypatch.setattr(transport, "FIRST_PAUSE_S", 0.001)


def test_every_command_is_in_these_tables():
    assert sorted([*CALLS, *LOCAL]) == all_commands()
    assert sorted([*ANSWERS, *WITHOUT_JSON]) == all_commands()


@pytest.mark.parametrize("path", sorted(CALLS))
@pytest.mark.usefixtures("brief")
def test_nobody_at_the_address_is_one_line_and_status_five(shell: Shell, path: str):
    done = shell.run(*path.split(), *CALLS[path], stdin="one\ntwo\n")
    assert done.returncode == 5, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert "127.0.0.1:9" in done.stderr
    assert not done.stdout


@pytest.mark.parametrize("path", ["whoami", "run", "top", "attachments upload"])
@pytest.mark.usefixtures("brief")
def test_the_same_may_be_said_in_json(shell: Shell, path: str):
    done = shell.run("-o", "json", *path.split(), *CALLS[path])
    assert done.stderr.count("\n") == 1
    jsonschema.validate(json.loads(done.stderr), ERROR)
    assert json.loads(done.stderr)["error"]["exit_status"] == done.returncode == 5


@pytest.mark.parametrize("path", all_commands())
def test_a_wrong_flag_is_one_line_and_status_two(shell: Shell, path: str):
    done = shell.run(*path.split(), "--no-such\x1bflag")
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert "--no-such\\x1bflag" in done.stderr
    assert not done.stdout
    asked = shell.run(*path.split(), "--help")
    assert asked.returncode == 0, asked
    assert f"Usage: mitosis {path}" in asked.stdout


@pytest.mark.parametrize(
    "path", [path for path, words in CALLS.items() if words and not words[0].startswith("--")]
)
def test_a_missing_argument_is_one_line_and_status_two(shell: Shell, path: str):
    done = shell.run(*path.split())
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Missing argument" in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("suites", "list", "--limit", "many"),
        ("suites", "frobnicate"),
        ("suites", "list", "-o", "xml"),
        ("suites", "scale", ID),
        ("suites", "create", "name", "--file", "also.toml"),
        ("suites", "create", "--file", "missing.yaml"),
        ("suites", "rerun", ID, "--failed", "--outcome", "failed"),
        ("suites", "export", ID, "--format", "xml"),
        ("run", "--workers", "0", "--", "true"),
        ("run", "--", "echo", "{x}", "--x", "5..1:1"),
        ("run", "--param", "x", "--", "true"),
        ("run", "--param", "y=1", "--", "true"),
        ("run", "--env", "=x", "--", "true"),
        ("run", "--timeout", "soon", "--", "true"),
        ("tasks", "submit", "--timeout", "soon", "--", "true"),
        ("run", "--rows", "missing.csv", "--", "echo", "{x}"),
        ("run", "--", "echo", "{x}", "--x", "1..9999999"),
        ("tasks", "submit", "--env", "A", "--", "true"),
        ("artifacts", "download", ID, "--type", "core"),
        ("attachments", "upload", "missing"),
        ("managers", "grant", ID, "team=king"),
        ("contexts", "use", "nowhere"),
        ("contexts", "remove", "nowhere"),
        ("whoami", "--context", "nowhere"),
        ("whoami", "--coordinator", "ftp://x"),
        ("top",),
        ("login", "--user", "me"),
        ("up", "--port", "70000"),
    ],
    ids=" ".join,
)
def test_words_that_make_no_sense_are_told_before_anybody_is_asked(
    shell: Shell, words: tuple[str, ...]
):
    done = shell.run(*words)
    assert done.returncode == 2, done
    assert done.stderr.count("\n") == 1, done.stderr
    assert not done.stdout


def test_settings_that_make_no_sense_are_one_line_too(shell: Shell, tmp_path: Path):
    assert shell.run("whoami", MITO_OUTPUT="xml").returncode == 2
    assert shell.run("whoami", MITO_TOKENS="purse").returncode == 2
    local = Shell(tmp_path, NOBODY, "me", "secret")
    (tmp_path / "mitosis.toml").write_text("[client]\nuzer = 'x'\n")
    done = local.run("whoami")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "mitosis.toml" in done.stderr
    (tmp_path / "mitosis.toml").unlink()
    stranger = local.run("whoami")
    assert (stranger.returncode, stranger.stderr.count("\n")) == (4, 1)
    assert "mitosis login" in stranger.stderr
