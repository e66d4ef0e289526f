"""Layers of the worker's settings, and what never shows."""

from pathlib import Path

import pytest

from nodeagent.config import load_worker_config
from nodeagent.config_layers import Secret
from nodeagent.errors import ConfigInvalid

HOME = {"HOME": "/h"}


def test_defaults_are_those_of_the_documentation() -> None:
    config = load_worker_config({}, HOME)
    assert config.coordinator == "http://127.0.0.1:5000"
    assert (config.polling_interval_s, config.heartbeat_interval_s, config.grace_s) == (5, 30, 0)
    assert config.credential_path == Path("/h/.config/mitosis/credentials")
    assert config.cache_dir == Path("/h/.cache")


def test_flags_win_over_the_environment_and_both_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        '[worker]\ncoordinator_addr = "http://file"\npolling-interval = "1m 30s"\n'
        'heartbeat_interval = 7\ntags = ["a", "b"]\nuser = "file"\n'
    )
    env = {**HOME, "MITO_CONFIG": str(file), "MITO_USER": "env", "MITO_COORDINATOR": "http://env/"}
    config = load_worker_config({"user": "flag", "labels": "x, y,,x"}, env)
    assert (config.user, config.coordinator) == ("flag", "http://env")
    assert (config.polling_interval_s, config.heartbeat_interval_s) == (90, 7)
    assert (config.tags, config.labels) == (("a", "b"), ("x", "y"))


def test_xdg_directories_are_used() -> None:
    env = {**HOME, "XDG_CONFIG_HOME": "/cfg", "XDG_CACHE_HOME": "/cache"}
    config = load_worker_config({}, env)
    assert config.credential_path == Path("/cfg/mitosis/credentials")
    assert config.cache_dir == Path("/cache")


def test_unknown_settings_in_the_file_are_refused_by_name(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[worker]\npoling_interval = "5s"\n')
    with pytest.raises(ConfigInvalid, match="poling_interval"):
        load_worker_config({"config": str(file)}, HOME)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="no such file"):
        load_worker_config({"config": str(tmp_path / "none")}, HOME)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("polling_interval", "0s"),
        ("polling_interval", "soon"),
        ("coordinator", "ftp://x"),
        ("log_format", "xml"),
        ("retain", "maybe"),
        ("lifetime", "-5s"),
    ],
)
def test_a_bad_value_is_refused_with_its_name(name: str, value: str) -> None:
    with pytest.raises(ConfigInvalid, match=name):
        load_worker_config({name: value}, HOME)


def test_the_password_shows_nowhere() -> None:
    config = load_worker_config({}, {**HOME, "MITO_PASSWORD": "hunter2"})
    assert config.password is not None
    assert config.password.reveal() == "hunter2"
    assert "hunter2" not in repr(config)
    assert "hunter2" not in f"{Secret('hunter2')} {[Secret('hunter2')]}"


def test_commands_inherit_the_environment_without_our_settings() -> None:
    env = {**HOME, "MITO_PASSWORD": "x", "MITOSIS_ANY": "y", "LANG": "C", "MITOX": "kept"}
    assert load_worker_config({}, env).command_env == {**HOME, "LANG": "C", "MITOX": "kept"}


def test_names_of_a_surrounding_task_are_not_settings() -> None:
    load_worker_config({}, {**HOME, "MITO_TASK_UUID": "x", "MITO_RESULT_DIR": "y"})


TLS = {**HOME, "MITO_COORDINATOR": "https://c"}


def test_files_for_tls_are_read_at_the_start(tmp_path: Path) -> None:
    broken = tmp_path / "broken.pem"
    broken.write_text("nothing")
    for flags, what in (
        ({"tls_ca": str(tmp_path / "absent.pem")}, "tls_ca: No such file"),
        ({"tls_ca": str(broken)}, "tls_ca: .*broken.pem"),
        ({"tls_cert": str(broken)}, "tls_cert, tls_key: .*broken.pem"),
        ({"tls_key": str(broken)}, "tls_key: a key needs its certificate"),
    ):
        with pytest.raises(ConfigInvalid, match=what):
            load_worker_config(flags, TLS)


def test_files_for_tls_are_not_taken_for_a_plain_connection() -> None:
    with pytest.raises(ConfigInvalid, match="https"):
        load_worker_config({"tls_ca": "/any.pem"}, HOME)


def test_without_files_the_system_decides_whom_to_trust() -> None:
    tls = load_worker_config({}, TLS).tls.open("https://c")
    assert (tls.for_http, tls.for_socket("wss://c/ws"), tls.for_socket("ws://c/ws")) == (
        True,
        True,
        None,
    )
