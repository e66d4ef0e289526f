"""Which setting wins, and that tokens stay private and with their coordinator."""

import stat
from pathlib import Path

import pytest

from mitosis_client.errors import ConfigError
from mitosis_client.settings import Contexts, Home, read_settings


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "config" / "mitosis")


@pytest.fixture
def local(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_each_layer_beats_the_one_before(home: Home, local: Path):
    def group(env: dict[str, str], **flags: str) -> str | None:
        return read_settings(home, env, local, flags).group

    assert group({}) is None
    home.folder.mkdir(parents=True)
    home.user_file.write_text('[client]\ngroup = "user file"\n')
    assert group({}) == "user file"
    home.save_contexts(Contexts(current="c", contexts={"c": {"group": "current context"}}))
    assert group({}) == "current context"
    (local / "mitosis.toml").write_text('[client]\ngroup = "local file"\n')
    assert group({}) == "local file"
    assert group({"MITO_CONTEXT": "c"}) == "current context"
    assert group({"MITO_GROUP": "variable", "MITO_CONTEXT": "c"}) == "variable"
    assert group({"MITO_GROUP": "variable"}, context="c") == "current context"
    assert group({"MITO_GROUP": "variable"}, context="c", group="flag") == "flag"


@pytest.mark.parametrize(
    "text", ["[client]\nunknown = 'x'\n", "[client]\ngroup = 1\n", "client = 1\n", "[[["]
)
def test_a_file_with_a_mistake_is_refused_by_name(home: Home, local: Path, text: str):
    (local / "mitosis.toml").write_text(text)
    with pytest.raises(ConfigError, match=r"mitosis\.toml"):
        read_settings(home, {}, local, {})


def test_wrong_values_are_refused(home: Home, local: Path):
    with pytest.raises(ConfigError, match="output"):
        read_settings(home, {"MITO_OUTPUT": "xml"}, local, {})
    with pytest.raises(ConfigError, match="address"):
        read_settings(home, {}, local, {"coordinator": "ftp://x"})
    with pytest.raises(ConfigError, match="no context"):
        read_settings(home, {}, local, {"context": "nowhere"})


def test_tokens_are_private_and_belong_to_one_address(home: Home):
    home.save_token("http://a/", "me", "secret")
    path = home.folder / "tokens.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(home.folder.stat().st_mode) == 0o700
    assert home.token("http://a", "me") == home.token("http://a", None) == "secret"
    assert home.token("http://b", "me") is None
    home.save_token("http://a", "you", "other")
    assert home.token("http://a", None) is None, "two users: one has to be named"
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="others can read"):
        home.token("http://a", "me")
    path.chmod(0o600)
    home.forget_token("http://a", "me")
    assert home.token("http://a", "me") is None
    home.forget_token("http://a", "nobody")
