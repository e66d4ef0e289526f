"""Frames of earlier versions stay readable, and frames of later ones do not hurt.

`frames/*.jsonl` holds one frame a line as it was sent once. Lines are only ever added.
"""

import json
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from mitosis_protocol.codec import JsonCodec
from mitosis_protocol.from_manager import FROM_MANAGER, FromManager
from mitosis_protocol.to_manager import TO_MANAGER, ToManager

FRAMES = Path(__file__).with_name("frames")
CORPUS = [
    (name, codec, line)
    for name, codec in (("from_manager", FROM_MANAGER), ("to_manager", TO_MANAGER))
    for line in (FRAMES / f"{name}.jsonl").read_text().splitlines()
]


def label(value: object) -> str:
    return str(json.loads(value)["type"]) if isinstance(value, str) and value[:1] == "{" else ""


@pytest.mark.parametrize(("name", "codec", "line"), CORPUS, ids=label)
def test_an_old_frame_means_what_it_meant(name: str, codec: JsonCodec[Any], line: str):
    """Every member that was sent comes back; members added since have their defaults."""
    message = codec.decode(line)
    assert contains(msgspec.to_builtins(message), json.loads(line)), name


@pytest.mark.parametrize(("name", "codec", "line"), CORPUS, ids=label)
def test_members_of_a_later_version_are_ignored(name: str, codec: JsonCodec[Any], line: str):
    later = {**json.loads(line), "invented_tomorrow": {"deep": [1, None]}}
    assert codec.decode(json.dumps(later)) == codec.decode(line), name


@pytest.mark.parametrize(
    ("name", "union"), [("from_manager", FromManager), ("to_manager", ToManager)]
)
def test_every_message_is_in_the_corpus(name: str, union: Any):
    lines = (FRAMES / f"{name}.jsonl").read_text().splitlines()
    tags = {json.loads(line)["type"] for line in lines}
    assert tags == {kind.__struct_config__.tag for kind in get_args(union)}


def contains(now: Any, then: Any) -> bool:
    if isinstance(then, dict):
        return isinstance(now, dict) and all(
            key in now and contains(now[key], value) for key, value in then.items()
        )
    if isinstance(then, list):
        return len(now) == len(then) and all(map(contains, now, then))
    return bool(now == then)
