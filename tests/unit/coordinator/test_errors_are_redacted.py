"""No secret reaches a log line, by whichever road it travels."""

import io
import logging
import time

import pytest
import structlog

from core.redaction import RedactingFilter, redact_event, redact_text, redact_value

CANARY = "hunter2-canary"
JWT = "eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJoYXJyeSJ9.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    "text",
    [
        f"Authorization: Bearer {CANARY}",
        f"authorization: bearer {CANARY}==",
        f"Basic {CANARY}",
        f"password={CANARY}",
        f"{'very_' * 30}long_token_name={CANARY}",
        f"password: {CANARY}",
        f'{{"md5_password": [1, 2, 3], "old_password": "{CANARY}"}}',
        f"{{'token': '{CANARY}'}}",
        f"refresh_token={CANARY}&next=1",
        f'secret_access_key="{CANARY} with blanks"',
        f"https://s3/b/k?X-Amz-Credential={CANARY}%2F2025&X-Amz-Signature={CANARY}&x=1",
        f"https://s3/b/k?x-amz-security-token={CANARY}",
        f"postgresql://mitosis:{CANARY}@db/mitosis",
        f"redis://:{CANARY}@127.0.0.1:6379/0",
        f'{{"envs": {{"API_KEY": "{CANARY}"}}}}',
        f"TaskSpec(args=[], envs={{'A': '{CANARY}'}})",
    ],
)
def test_texts_lose_their_secrets(text):
    cleaned = redact_text(text)
    assert CANARY not in cleaned
    assert "***" in cleaned


def test_a_bare_jwt_is_recognised():
    assert JWT not in redact_text(f"could not verify {JWT} today")


def test_the_digest_of_a_password_is_masked():
    assert "17" not in redact_text('{"md5_password": [17, 17, 17]}')


@pytest.mark.alone
@pytest.mark.parametrize(
    "part",
    [
        "a-",
        "a",
        "token=[",
        'token="',
        "eyJ-",
        "eyJaaaaaaaa.",
        "a://",
        "://:",
        "env={",
        "password",
        " ",
        "bearer ",
    ],
)
def test_a_hostile_line_of_64_kib_costs_little(part):
    line = (part * 65_536)[:65_536]
    started = time.perf_counter()
    redact_text(line)
    assert time.perf_counter() - started < 1


@pytest.mark.parametrize(
    "text",
    [
        "task 5 of suite 7 finished in 3s",
        "GET /tasks?limit=5 200",
        "https://s3/bucket/key?X-Amz-Date=20250101&X-Amz-Expires=3600",
        "postgresql://mitosis@db/mitosis",
        "tokens issued: see metrics",
        "env preparation done",
    ],
)
def test_ordinary_texts_stay_as_they_are(text):
    assert redact_text(text) == text


@pytest.mark.parametrize(
    "value",
    [
        {"envs": {"A": CANARY}},
        {"spec": {"envs": {"A": CANARY}, "args": ["true"]}},
        {"rows": [{"md5_password": [CANARY]}]},
        {"token": CANARY},
        {"Authorization": f"Token {CANARY}"},
        {"secret_key": CANARY.encode()},
        {"headers": [("x", f"Bearer {CANARY}")]},
        {"set": {f"password={CANARY}"}},
    ],
)
def test_structured_values_lose_their_secrets(value):
    assert CANARY not in repr(redact_value(value))
    assert CANARY not in repr(redact_event(None, "info", dict(value)))


def test_what_lies_too_deep_to_be_looked_at_is_masked_unseen():
    value = CANARY
    for _ in range(10):
        value = {"deeper": value}
    assert CANARY not in repr(redact_value(value))


def test_numbers_about_tokens_are_kept():
    event = {"token_generation": 3, "password_changed": True, "attempt": 2, "ok": None}
    assert redact_value(event) == event


def test_the_original_value_is_not_touched():
    spec = {"envs": {"A": CANARY}}
    redact_value(spec)
    assert spec == {"envs": {"A": CANARY}}


def test_structlog_events_are_masked():
    out = io.StringIO()
    logger = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[redact_event, structlog.processors.JSONRenderer()],
    )
    logger.info("login.failed", md5_password=[1, 2], url=f"http://u:{CANARY}@h/", user="ann")
    assert CANARY not in out.getvalue()
    assert '"md5_password": "***"' in out.getvalue()
    assert '"user": "ann"' in out.getvalue()


@pytest.fixture
def stdlib_log():
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.addFilter(RedactingFilter())
    logger = logging.getLogger("test.redaction")
    logger.setLevel(logging.INFO)
    logger.propagate = False
    logger.addHandler(handler)
    yield logger, out
    logger.removeHandler(handler)


def test_standard_log_records_are_masked_after_formatting(stdlib_log):
    logger, out = stdlib_log
    logger.warning("header was %s and %d rows", f"Bearer {CANARY}", 5)
    assert out.getvalue() == "header was Bearer *** and 5 rows\n"


def test_tracebacks_are_masked(stdlib_log):
    logger, out = stdlib_log
    try:
        raise ValueError(f"password={CANARY}")  # noqa: TRY301 - a traceback is needed
    except ValueError:
        logger.exception("failed")
    assert "ValueError" in out.getvalue()
    assert CANARY not in out.getvalue()


def test_mappings_handed_over_by_structlog_stay_mappings(stdlib_log):
    logger, out = stdlib_log
    logger.info({"event": "x", "token": CANARY})
    assert out.getvalue() == "{'event': 'x', 'token': '***'}\n"
