"""The environment reader: every form it takes, and one message for everything that is wrong."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from mitosis_site.env import EnvError, read_env
from mitosis_site.settings.celery import broker_url

GOOD = {
    "DATABASE_URL": "postgresql://mitosis:s3cret@db.example:5433/jobs",
    "REDIS_URL": "redis://:pw@redis.example:6380/2",
    "S3_ENDPOINT_URL": "https://s3.example",
    "S3_ACCESS_KEY_ID": "access",
    "S3_SECRET_ACCESS_KEY": "canary-secret",
    "MITOSIS_KEYS_DIR": "/var/lib/mitosis/keys",
}


def problems_of(**changes: str) -> tuple[str, ...]:
    with pytest.raises(EnvError) as caught:
        read_env({**GOOD, **changes})
    return caught.value.problems


def test_defaults_fill_what_may_be_left_out():
    env = read_env(GOOD)
    assert env.s3_region == "us-east-1"
    assert env.s3_artifacts_bucket == "mitosis-artifacts"
    assert env.s3_attachments_bucket == "mitosis-attachments"
    assert env.public_url == "http://127.0.0.1:5000"
    assert env.allowed_hosts == ()
    assert env.log_level == "INFO"
    assert env.log_format == "json"
    assert env.faults == ""
    assert env.policy == {}
    assert env.database_pooling == "session"
    assert env.keys_dir == Path("/var/lib/mitosis/keys")
    assert (env.metrics_token, env.webhook_hosts, env.otlp_endpoint) == ("", (), "")


def test_headers_of_a_collector_are_written_as_opentelemetry_does():
    raw = "authorization=Basic%20eA==, x-tenant = lab"
    headers = read_env({**GOOD, "OTEL_EXPORTER_OTLP_HEADERS": raw}).otlp_headers
    assert headers == {"authorization": "Basic eA==", "x-tenant": "lab"}


def test_the_kind_of_pooling_is_one_of_two():
    assert read_env({**GOOD, "DATABASE_POOLING": "transaction"}).database_pooling == "transaction"
    [problem] = problems_of(DATABASE_POOLING="statement")
    assert "DATABASE_POOLING is not valid: it has to be session or transaction" in problem


def test_a_database_over_tcp_is_taken_apart():
    address = read_env(GOOD).database
    assert (address.host, address.port, address.name) == ("db.example", 5433, "jobs")
    assert (address.user, address.password) == ("mitosis", "s3cret")


def test_a_database_on_a_unix_socket_has_a_directory_as_host():
    url = "postgresql://user:p%40ss%2Fword@/jobs?host=/run/postgres%20dir&sslmode=disable"
    address = read_env({**GOOD, "DATABASE_URL": url}).database
    assert (address.host, address.port, address.name) == ("/run/postgres dir", 5432, "jobs")
    assert address.password == "p@ss/word"
    assert address.options == {"sslmode": "disable"}


@pytest.mark.parametrize(
    "url",
    [
        "mysql://u@h/db",
        "postgresql://u@h",
        "postgresql:///db",
        "postgresql://u@h:port/db",
        "postgresql://u@/db?host=/run&port=x",
        "db",
    ],
)
def test_a_database_address_that_cannot_work_is_refused(url: str):
    [problem] = problems_of(DATABASE_URL=url)
    assert problem.startswith("DATABASE_URL is not valid: ")


@pytest.mark.parametrize(
    "url",
    ["redis://h", "rediss://u:p@h:6390/1", "unix:///run/valkey.sock", "unix:///run/v.sock?db=3"],
)
def test_every_form_of_a_redis_address_is_taken(url: str):
    assert read_env({**GOOD, "REDIS_URL": url}).redis_url == url


@pytest.mark.parametrize("url", ["http://h", "redis://", "unix://", "unix://valkey.sock", "h:6379"])
def test_a_redis_address_that_cannot_work_is_refused(url: str):
    [problem] = problems_of(REDIS_URL=url)
    assert problem.startswith("REDIS_URL is not valid: ")


@pytest.mark.parametrize(
    ("given", "celery_form"),
    [
        ("redis://:pw@h:6380/2", "redis://:pw@h:6380/2"),
        ("rediss://h/0", "rediss://h/0"),
        ("unix:///run/v.sock", "redis+socket:///run/v.sock?virtual_host=0"),
        ("unix:///run/v.sock?db=3", "redis+socket:///run/v.sock?virtual_host=3"),
        ("unix://u:pw@/run/v.sock?db=1", "redis+socket://u:pw@/run/v.sock?virtual_host=1"),
    ],
)
def test_celery_gets_its_own_spelling_of_a_redis_address(given: str, celery_form: str):
    assert broker_url(given) == celery_form


def test_all_problems_are_told_at_once():
    with pytest.raises(EnvError) as caught:
        read_env({"S3_ENDPOINT_URL": "ftp://x", "MITOSIS_LOG_LEVEL": "loud"})
    named = [problem.split(" is ")[0] for problem in caught.value.problems]
    assert named == [
        "DATABASE_URL",
        "REDIS_URL",
        "S3_ENDPOINT_URL",
        "S3_ACCESS_KEY_ID",
        "S3_SECRET_ACCESS_KEY",
        "MITOSIS_KEYS_DIR",
        "MITOSIS_LOG_LEVEL",
    ]
    assert all(problem.endswith(".") for problem in caught.value.problems)


def test_an_empty_variable_counts_as_missing():
    [problem] = problems_of(S3_ACCESS_KEY_ID="")
    assert problem.startswith("S3_ACCESS_KEY_ID is missing: ")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MITOSIS_PUBLIC_URL", "mitosis.example"),
        ("MITOSIS_PUBLIC_URL", "https://u@h/"),
        ("MITOSIS_PUBLIC_URL", "https://h/?x=1"),
        ("MITOSIS_ALLOWED_HOSTS", "https://h"),
        ("MITOSIS_KEYS_DIR", "relative/keys"),
        ("MITOSIS_LOG_FORMAT", "xml"),
        ("MITOSIS_POLICY", "heartbeat_s"),
        ("MITOSIS_POLICY", "heartbeat_s=soon"),
        ("METRICS_TOKEN", "short"),
        ("METRICS_TOKEN", "long enough but with spaces"),
        ("MITOSIS_WEBHOOK_HOSTS", "http://ci"),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4318"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "authorization"),
        ("S3_ARTIFACTS_BUCKET", "No Bucket"),
        ("S3_ATTACHMENTS_BUCKET", "ab"),
    ],
)
def test_a_wrong_value_is_named(name: str, value: str):
    [problem] = problems_of(**{name: value})
    assert problem.startswith(f"{name} is not valid: ")


def test_values_are_brought_into_shape():
    env = read_env(
        {
            **GOOD,
            "MITOSIS_PUBLIC_URL": "https://h.example/",
            "MITOSIS_ALLOWED_HOSTS": " a.example, b.example ,",
            "MITOSIS_LOG_LEVEL": "debug",
            "MITOSIS_POLICY": "heartbeat_s=1, lease_ttl_s=4.5",
        }
    )
    assert env.public_url == "https://h.example"
    assert env.allowed_hosts == ("a.example", "b.example")
    assert env.log_level == "DEBUG"
    assert env.policy == {"heartbeat_s": 1.0, "lease_ttl_s": 4.5}


def test_no_secret_shows_in_the_repr_or_in_a_complaint():
    assert "s3cret" not in repr(read_env(GOOD))
    assert "canary" not in repr(read_env(GOOD))
    told = " ".join(problems_of(DATABASE_URL="postgresql://u:canary@h", REDIS_URL="x://canary@h"))
    assert "canary" not in told


def test_a_process_with_a_bad_environment_ends_with_the_message_and_no_traceback():
    done = subprocess.run(
        [sys.executable, "manage.py", "check"],
        env={"PATH": os.environ["PATH"], "DJANGO_SETTINGS_MODULE": "mitosis_site.settings.prod"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert done.stderr.count("\n  - ") == 6
