"""The generated protocol files follow the code, and the check notices when they do not."""

from pathlib import Path

import jsonschema
import msgspec
import pytest

from mitosis_protocol import schema
from mitosis_protocol.specs import TaskSpec

ROOT = Path(__file__).resolve().parents[3]


def test_the_files_in_the_repository_are_current():
    assert schema.drift(ROOT / "docs" / "protocol") == []
    ws = schema.render_control_plane()
    assert schema.drift(ROOT / "docs" / "schema" / "ws", ws) == []


def test_what_is_written_has_no_drift(tmp_path):
    assert schema.main(["--out", str(tmp_path)]) == 0
    assert schema.main(["--check", "--out", str(tmp_path)]) == 0


@pytest.mark.parametrize("harm", ["edit", "delete", "add"])
def test_the_check_fails_on_drift(tmp_path, capsys, harm):
    schema.write(tmp_path)
    if harm == "edit":
        (tmp_path / "task_spec.json").write_text("{}")
    elif harm == "delete":
        (tmp_path / "suite_states.mmd").unlink()
    else:
        (tmp_path / "old_message.json").write_text("{}")
    assert schema.main(["--check", "--out", str(tmp_path)]) == 1
    assert "python -m mitosis_protocol.schema" in capsys.readouterr().err


@pytest.mark.parametrize("name", schema.SCHEMAS)
def test_every_schema_is_a_valid_schema(name):
    jsonschema.Draft202012Validator.check_schema(schema.schema_of(schema.SCHEMAS[name]))


def test_an_encoded_spec_satisfies_its_schema():
    validator = jsonschema.Draft202012Validator(schema.schema_of(TaskSpec))
    assert validator.is_valid(msgspec.to_builtins(TaskSpec(args=["true"], envs={"A": "b"})))
    assert not validator.is_valid({"args": "true"})
