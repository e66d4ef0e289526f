"""Every line that leaves the process is one JSON object, and no secret is in it."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog
from django.conf import settings

from mitosis_site.logs import make_formatter

CANARY = "canary-5f1c"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the configured handler writes, caught in memory."""
    # By exact type: pytest's own capturing handlers are subclasses.
    ours = [item for item in logging.getLogger().handlers if type(item) is logging.StreamHandler]
    [handler] = ours
    stream = io.StringIO()
    before = handler.setStream(stream)
    yield stream
    handler.setStream(before)


def events(stream: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_structlog_events_are_json_with_level_time_and_logger(lines: io.StringIO):
    structlog.get_logger("mitosis.test").warning("task.claimed", attempt=3, tags=["a"])
    [event] = events(lines)
    assert event["event"] == "task.claimed"
    assert event["attempt"] == 3
    assert event["level"] == "warning"
    assert event["logger"] == "mitosis.test"
    assert str(event["timestamp"]).endswith("Z")


def test_records_of_the_standard_library_have_the_same_shape(lines: io.StringIO):
    logging.getLogger("some.library").warning("lost %s of %d", "one", 2)
    [event] = events(lines)
    assert event["event"] == "lost one of 2"
    assert event["level"] == "warning"


def test_lines_carry_the_id_of_the_request(lines: io.StringIO):
    with structlog.contextvars.bound_contextvars(request_id="abc-123"):
        structlog.get_logger("x").warning("inside")
        logging.getLogger("y").warning("inside, too")
    assert [event["request_id"] for event in events(lines)] == ["abc-123", "abc-123"]


def test_secrets_in_events_are_masked(lines: io.StringIO):
    log = structlog.get_logger("x")
    log.warning("a", password=CANARY, envs={"HOME": CANARY}, authorization=f"Bearer {CANARY}")
    log.warning("b", url=f"http://s3/x?X-Amz-Signature={CANARY}&y=1")
    log.warning("c", nested={"deep": [{"refresh_token": CANARY}]})
    log.warning("d", problem=ValueError(f"postgresql://u:{CANARY}@h/db"))
    log.warning("header was Bearer %s", CANARY)
    assert len(events(lines)) == 5
    assert CANARY not in lines.getvalue()


def test_secrets_in_records_and_tracebacks_are_masked(lines: io.StringIO):
    log = logging.getLogger("some.library")
    log.warning("Authorization: Bearer %s", CANARY)
    log.warning("asked", extra={"request": f"GET /?token={CANARY}"})
    try:
        _connect(CANARY)
    except ValueError:
        log.exception("failed")
        structlog.get_logger("x").exception("failed")
    assert len(events(lines)) == 4
    assert CANARY not in lines.getvalue()


def _connect(token: str) -> None:
    raise ValueError(f"redis://:{token}@h")


@pytest.mark.parametrize("name", ["botocore", "httpx2", "uvicorn.access", "websockets", "urllib3"])
def test_chatty_libraries_stay_silent_about_requests(name: str, lines: io.StringIO):
    logging.getLogger(name).info("GET http://h/?X-Amz-Signature=abc")
    assert lines.getvalue() == ""


def test_the_console_style_masks_as_well():
    record = logging.LogRecord("n", logging.INFO, "f", 1, {"event": "e", "token": CANARY}, (), None)
    record._name = "info"
    record._logger = logging.getLogger("n")
    text = make_formatter("console").format(record)
    assert "e" in text
    assert CANARY not in text


def test_one_handler_writes_everything():
    assert list(settings.LOGGING["root"]["handlers"]) == ["stderr"]
    for name in settings.LOGGING["loggers"]:
        # Libraries put null handlers on their loggers; those write nothing.
        assert all(type(item) is logging.NullHandler for item in logging.getLogger(name).handlers)
