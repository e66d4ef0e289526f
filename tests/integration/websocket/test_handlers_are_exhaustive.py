"""Every message has one handler, one need in the policy table, and a page in the docs."""

from pathlib import Path
from typing import get_args

from mitosis_protocol.control_plane import (
    PAYLOADS,
    TYPE_OF,
    FromDirectWorker,
    MessageType,
    ToDirectWorker,
)
from mitosis_protocol.from_manager import FromManager
from mitosis_protocol.to_manager import ToManager
from websocket.inbound import HANDLERS
from websocket.policy import MANAGER_MESSAGES, WORKER_MESSAGES
from websocket.worker_inbound import HANDLERS as WORKER_HANDLERS

ROOT = Path(__file__).resolve().parents[3]


def tags(union: object) -> set[str]:
    return {str(kind.__struct_config__.tag) for kind in get_args(union)}


def test_every_message_of_a_manager_has_exactly_one_handler():
    assert set(HANDLERS) == set(get_args(FromManager))
    assert len(set(HANDLERS.values())) == len(HANDLERS)
    for kind, handler in HANDLERS.items():
        assert handler.__name__ == f"on_{kind.__struct_config__.tag}"


def test_every_message_of_a_manager_is_in_the_policy_table():
    assert set(MANAGER_MESSAGES) == tags(FromManager)


def test_every_message_is_described_in_the_docs():
    page = (ROOT / "docs" / "protocol" / "manager-websocket.md").read_text()
    missing = [tag for tag in tags(FromManager) | tags(ToManager) if f"`{tag}`" not in page]
    assert missing == []


def test_every_message_of_a_direct_worker_has_exactly_one_handler_and_a_need():
    assert set(WORKER_HANDLERS) == set(get_args(FromDirectWorker))
    for kind, handler in WORKER_HANDLERS.items():
        assert handler.__name__ == f"on_{TYPE_OF[kind].replace('.', '_')}"
    assert set(WORKER_MESSAGES) == {TYPE_OF[kind].value for kind in WORKER_HANDLERS}


def test_every_message_type_is_spoken_by_somebody_and_described():
    spoken = {*get_args(FromDirectWorker), *get_args(ToDirectWorker)}
    assert spoken == set(PAYLOADS.values())
    page = (ROOT / "docs" / "control-plane.md").read_text()
    assert [kind for kind in MessageType if f"`{kind.value}`" not in page] == []
