"""Settings of `nodeagent run`."""

import os
from pathlib import Path

import pytest

from nodeagent.agent_config import load_agent_config
from nodeagent.errors import ConfigInvalid

HOME = {"HOME": "/h"}
ENOUGH = {"coordinator": "http://c", "token_file": "/t"}


def test_flags_win_over_the_environment_and_both_over_the_file(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text(
        '[agent]\ncoordinator = "http://file"\ntags = ["a"]\ntransport = "unix"\ngrace = "1m"\n'
        '[worker]\ncoordinator = "http://worker"\n'
    )
    env = {**HOME, "MITO_AGENT_CONFIG": str(file), "MITO_AGENT_TAGS": "b,c", "MITO_TAGS": "no"}
    config = load_agent_config({"token_file": "/t", "transport": "iceoryx2"}, env)
    assert (config.coordinator, config.tags, config.transport) == (
        "http://file",
        ("b", "c"),
        "iceoryx2",
    )
    assert config.grace_s == 60


def test_the_longest_pause_between_tries_to_connect_is_a_minute_unless_said() -> None:
    assert load_agent_config(ENOUGH, HOME).reconnect_max_s == 60
    shorter = load_agent_config(ENOUGH, {**HOME, "MITO_AGENT_RECONNECT_MAX": "5s"})
    assert shorter.reconnect_max_s == 5


def test_an_instance_has_a_directory_of_its_own() -> None:
    plain = load_agent_config(ENOUGH, {**HOME, "XDG_DATA_HOME": "/d"})
    named = load_agent_config({**ENOUGH, "instance": "two"}, {**HOME, "XDG_DATA_HOME": "/d"})
    assert plain.data_dir.name == "agent"
    assert named.data_dir == plain.data_dir.with_name("agent-two")
    assert named.lock_dir == plain.lock_dir
    if os.geteuid() == 0:
        assert plain.data_dir == Path("/var/lib/mitosis/agent")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({"token_file": "/t"}, "no coordinator"),
        ({"coordinator": "http://c"}, "no way to register"),
        ({"coordinator": "http://c", "user": "ada"}, "no way to register"),
        ({**ENOUGH, "coordinator": "c:1"}, "http:// or https://"),
        ({**ENOUGH, "instance": "../x"}, "expected up to 64"),
        ({**ENOUGH, "transport": "smoke"}, "expected one of: auto"),
        ({**ENOUGH, "grace": "soon"}, "grace from the command line"),
        ({**ENOUGH, "config": "/nowhere.toml"}, "no such file"),
    ],
)
def test_what_cannot_be_used_is_named(flags: dict[str, object], says: str) -> None:
    with pytest.raises(ConfigInvalid, match=says):
        load_agent_config(flags, HOME)


def test_a_misspelt_setting_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('[agent]\ncoordinater = "http://file"\n')
    with pytest.raises(ConfigInvalid, match=r"unknown settings in \[agent\]: coordinater"):
        load_agent_config({**ENOUGH, "config": str(file)}, HOME)


def test_commands_do_not_inherit_the_agents_own_settings() -> None:
    env = {**HOME, "MITO_AGENT_PASSWORD": "x", "MITOSIS_FAULTS": "a=drop", "PATH": "/bin"}
    config = load_agent_config({**ENOUGH, "user": "ada"}, env)
    assert dict(config.command_env) == {"HOME": "/h", "PATH": "/bin"}
    assert "x" not in repr(config.password)
