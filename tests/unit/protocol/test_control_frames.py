"""The frames of the control plane: envelope first, payload second, a typed complaint otherwise."""

import json
from uuid import uuid4

import jsonschema
import pytest

from mitosis_protocol import schema
from mitosis_protocol.control_codes import WORKER_SESSION, ControlCode, WorkerSessionState
from mitosis_protocol.control_payloads import Ack, Chunk, Feedback, Handshake, Result
from mitosis_protocol.control_plane import (
    ACK_MAX_S,
    ACK_TRIES,
    PAYLOADS,
    FrameRefused,
    Sender,
    Stamp,
    open_frame,
    retry_delay_s,
    seal,
)
from mitosis_protocol.errors import InvalidValue

WORKER = str(uuid4())
STAMP = Stamp("m1", "2026-01-01T00:00:00Z", "ann", Sender(role="worker", id=WORKER))
SCHEMAS = {
    name.removeprefix("ws.").removesuffix(".schema.json"): json.loads(text)
    for name, text in schema.render_control_plane().items()
}


def a_frame(**changes: object) -> dict[str, object]:
    frame = json.loads(seal(Ack(for_id="x"), STAMP))
    frame.update(changes)
    return {name: value for name, value in frame.items() if value is not ...}


def refused(frame: object) -> tuple[ControlCode, str | None, str]:
    with pytest.raises(FrameRefused) as caught:
        open_frame(json.dumps(frame) if not isinstance(frame, str | bytes) else frame)
    error = caught.value.error
    return error.code, error.for_id, error.message


def test_a_frame_survives_the_wire_with_everything_it_had():
    payload = Result(task_id=7, status="succeeded", outputs={"a": [1, None]})
    envelope, back = open_frame(seal(payload, STAMP, corr="7", seq=3, wants_ack=True))
    assert back == payload
    assert (envelope.corr, envelope.seq, envelope.wants_ack) == ("7", 3, True)
    assert (envelope.id, envelope.tenant, envelope.sender.id) == ("m1", "ann", WORKER)


@pytest.mark.parametrize("field", ["type", "id", "ts", "tenant", "sender", "payload"])
def test_every_required_member_of_the_envelope_is_required(field):
    code, _, message = refused(a_frame(**{field: ...}))
    assert code is ControlCode.PROTOCOL_MALFORMED
    assert field in message
    assert not jsonschema.Draft202012Validator(SCHEMAS["envelope"]).is_valid(
        a_frame(**{field: ...})
    )


def test_the_envelope_is_judged_before_the_payload():
    frame = a_frame(payload={"nonsense": 1}, seq="one")
    assert refused(frame)[2].startswith("envelope")


def test_a_wrong_payload_names_the_field_and_the_message():
    code, about, message = refused(a_frame(type="result", payload={"task_id": "x", "status": "ok"}))
    assert (code, about) == (ControlCode.PROTOCOL_MALFORMED, "m1")
    assert "task_id" in message


def test_an_unknown_type_is_told_apart_and_still_names_the_message():
    assert refused(a_frame(type="cmd.fly"))[:2] == (ControlCode.CMD_UNKNOWN, "m1")


def test_what_is_no_json_and_what_is_too_large_is_refused():
    assert refused("{")[0] is ControlCode.PROTOCOL_MALFORMED
    assert refused(b"\xff\xfe")[0] is ControlCode.PROTOCOL_MALFORMED
    assert refused("x" * (300 << 10))[0] is ControlCode.PROTOCOL_TOO_LARGE


@pytest.mark.parametrize("kind", PAYLOADS)
def test_every_schema_is_valid_and_every_type_has_one(kind):
    jsonschema.Draft202012Validator.check_schema(SCHEMAS[kind.value])


def test_what_is_sealed_satisfies_both_schemas():
    handshake = Handshake(worker_id=uuid4(), process_id=uuid4())
    frame = json.loads(seal(handshake, STAMP, wants_ack=True))
    jsonschema.validate(frame, SCHEMAS["envelope"])
    jsonschema.validate(frame["payload"], SCHEMAS[frame["type"]])


def test_a_chunk_is_text_or_data_and_output_has_its_offset():
    assert Chunk(channel="llm", text="é").content == "é".encode()
    for wrong in ({"text": "a", "data": b"a", "channel": "llm"}, {"channel": "llm"}):
        with pytest.raises(InvalidValue):
            Chunk(**wrong)
    with pytest.raises(InvalidValue, match="offset"):
        Feedback(task_id=1, chunks=[Chunk(channel="stdout", text="a")])


def test_the_waits_for_an_ack_double_up_to_the_ceiling():
    waits = [retry_delay_s(tries, jitter=0.5) for tries in range(1, ACK_TRIES + 1)]
    assert waits == [0.2, 0.4, 0.8, 1.6, 3.2, ACK_MAX_S]
    assert retry_delay_s(1, jitter=0.0) < 0.2 < retry_delay_s(1, jitter=0.99)


def test_every_state_leads_out_and_only_closed_is_an_end():
    assert set(WORKER_SESSION) == set(WorkerSessionState)
    ends = [state for state, targets in WORKER_SESSION.items() if not targets]
    assert ends == [WorkerSessionState.CLOSED]
