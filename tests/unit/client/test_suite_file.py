"""A suite and its tasks from a file: short forms, sweeps, and mistakes told by their place."""

from pathlib import Path

import pytest

from mitosis_client.errors import ConfigError
from mitosis_client.suite_file import SuiteFile, read_suite

EXAMPLES = Path(__file__).resolve().parents[3] / "docs" / "examples"


def read(folder: Path, text: str, name: str = "suite.yaml") -> SuiteFile:
    (folder / name).write_text(text)
    return read_suite(folder / name, group="me")


def test_short_forms_say_the_same_as_long_ones(tmp_path: Path):
    short = read(tmp_path, "name: a\nworkers: 3\nenv_preparation: 'echo hi'\n").spec
    long = read(
        tmp_path,
        '{"name": "a", "group_name": "me",'
        ' "worker_schedule": {"worker_count": 3, "task_prefetch_count": 3},'
        ' "env_preparation": {"args": ["sh", "-ec", "echo hi"], "timeout": "30m"}}',
        "suite.json",
    ).spec
    toml = read(tmp_path, 'name = "a"\nworkers = 3\nenv_preparation = "echo hi"\n', "s.toml").spec
    assert short == long == toml


def test_tasks_are_swept_as_on_the_command_line(tmp_path: Path):
    (tmp_path / "rows.csv").write_text("who\nann\nbob\n")
    text = """
workers: 1
tasks:
  - args: [echo, "{who}", "{n}", "{flag}"]
    rows: rows.csv
    params: {n: 1..2, flag: [true, x]}
    labels: [one]
  - args: [echo, done]
"""
    found = read(tmp_path, text)
    (first, rows), (second, single) = found.blocks
    assert len(rows) == 8
    assert rows[0] == {"who": "ann", "n": "1", "flag": True}
    assert single == [{}]
    assert first.template("me", "s").body()["labels"] == ["one"]
    assert second.template("me", "s").body()["task_spec"]["args"] == ["echo", "done"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("workers: 0\n", "workers"),
        ("workers: 1\nnmae: x\n", "nmae"),
        ("workers: 1\ntasks:\n  - arsg: [x]\n", r"\$\[0\]"),
        ("workers: 1\ntasks:\n  - args: [x]\n    params: {y: 1..2}\n", "does not use {y}"),
        ("workers: 1\ntasks:\n  - args: [x]\n    rows: missing.csv\n", "missing.csv"),
        ("workers: 1\ntasks:\n  - args: [x]\n    timeout: soon\n", "timeout"),
        ("workers: 1\ntasks:\n  - args: []\n", "args"),
        ("- a\n- b\n", "a table"),
        ("a: [\n", "suite.yaml"),
        ("!!python/object/apply:os.system [true]\n", "suite.yaml"),
    ],
)
def test_a_mistake_is_told_by_its_place(tmp_path: Path, text: str, told: str):
    with pytest.raises(ConfigError, match=told):
        read(tmp_path, text)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.yaml")), ids=lambda path: path.name)
def test_the_examples_are_good(path: Path):
    found = read_suite(path, group="me")
    assert found.spec.env_preparation is not None
    assert sum(len(rows) for _, rows in found.blocks) > 5
