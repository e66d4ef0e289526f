"""systemd units, nginx and PgBouncer files, each read by the program it is written for."""

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from django.conf import settings
from psycopg.conninfo import conninfo_to_dict

from mitosis_stack.coordinator import SERVERS
from mitosis_stack.ports import pick_free
from tests.deploy.validators import DOCKER, VENV, check, systems
from tests.harness import TestServices

UNITS = sorted((DOCKER / "systemd").glob("*.service"))
DEADLINE_S = 30


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """The units as an operator would have them, with programs that exist on this machine."""
    for source in (DOCKER / "systemd").iterdir():
        text = source.read_text().replace("/opt/mitosis/bin", str(VENV))
        (tmp_path / source.name).write_text(text)
    return tmp_path


def test_systemd_accepts_the_units(installed: Path) -> None:
    program = systems("systemd-analyze")
    files = [*installed.glob("*.service"), *installed.glob("*.target")]
    # A template is checked as an instance of it.
    names = [str(file).replace("@.service", "@8001.service") for file in files]
    for template in installed.glob("*@.service"):
        shutil.copy(template, str(template).replace("@.", "@8001."))
    environment = {**os.environ, "SYSTEMD_UNIT_PATH": f"{installed}:"}
    said = check(program, "verify", "--man=no", *names, env=environment)
    # It warns with status 0 about settings it does not know.
    complaints = [line for line in said.splitlines() if str(installed) in line]
    assert not complaints


def test_the_agent_tells_systemd_and_owns_its_cgroups() -> None:
    lines = (DOCKER / "systemd" / "mitosis-agent.service").read_text().splitlines()
    assert {"Type=notify", "Delegate=yes", "KillMode=mixed"} <= set(lines)


def test_the_unit_serves_with_the_flags_of_the_embedded_stack() -> None:
    text = (DOCKER / "systemd" / "mitosis-web@.service").read_text()
    line = next(line for line in text.splitlines() if line.startswith("ExecStart="))
    expected = [word.replace("8001", "%i") for word in SERVERS["uvicorn"](8001)]
    assert line.split()[1:] == expected[2:]


def test_nginx_accepts_the_proxy_of_the_compose_file(tmp_path: Path) -> None:
    text = (DOCKER / "nginx" / "nginx.conf").read_text()
    # Names of containers do not resolve here, and nginx insists.
    text = text.replace("web1:", "127.0.0.1:").replace("web2:", "127.0.0.2:")
    _nginx_accepts(text, tmp_path)


def test_nginx_accepts_the_site_with_tls(tmp_path: Path) -> None:
    certificate = tmp_path / "fullchain.pem"
    key = tmp_path / "privkey.pem"
    check(
        systems("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1",
        "-subj", "/CN=mitosis.example.org", "-keyout", str(key), "-out", str(certificate),
    )  # fmt: skip
    site = (DOCKER / "nginx" / "tls.conf").read_text()
    site = site.replace("/etc/mitosis/tls", str(tmp_path))
    head = f"pid {tmp_path}/nginx.pid;\nerror_log stderr;\nevents {{}}\nhttp {{\n"
    _nginx_accepts(f"{head}access_log off;\n{site}\n}}\n", tmp_path)


def _nginx_accepts(text: str, directory: Path) -> None:
    program = systems("nginx")
    file = directory / "nginx.conf"
    file.write_text(text.replace("/tmp/nginx.pid", f"{directory}/nginx.pid"))
    said = check(program, "-t", "-q", "-p", str(directory), "-c", str(file))
    assert "warn" not in said, said


@pytest.fixture
def pgbouncer(services: TestServices, tmp_path: Path) -> Iterator[str]:
    """PgBouncer with our file in front of the test run's PostgreSQL; its address."""
    program = systems("pgbouncer")
    server = conninfo_to_dict(settings.DATABASE_URL)
    port = pick_free(("pgbouncer",), {})["pgbouncer"]
    text = (DOCKER / "pgbouncer" / "pgbouncer.ini").read_text()
    line = "mitosis = host=postgres port=5432 dbname=mitosis"
    assert line in text
    wanted = ("host", "dbname", "user", "password")
    ours = " ".join(f"{name}={server[name]}" for name in wanted if server.get(name))
    text = text.replace(line, f"mitosis = {ours}").replace("6432", str(port))
    text = text.replace("listen_addr = 0.0.0.0", "listen_addr = 127.0.0.1")
    text = text.replace("/etc/pgbouncer/userlist.txt", str(tmp_path / "userlist.txt"))
    (tmp_path / "pgbouncer.ini").write_text(text)
    (tmp_path / "userlist.txt").write_text('"mitosis" "a-password-of-this-test"\n')
    # It refuses to be root; whom it becomes has to reach its files and PostgreSQL's socket.
    user = ("--user", _owner(Path(str(server["host"])))) if os.geteuid() == 0 else ()
    with (tmp_path / "log").open("wb") as log:
        tmp_path.chmod(0o755)
        _open_the_way(tmp_path)
        process = subprocess.Popen(
            [program, *user, str(tmp_path / "pgbouncer.ini")], stdout=log, stderr=log
        )
    try:
        yield f"postgresql://mitosis:a-password-of-this-test@127.0.0.1:{port}/mitosis"
    finally:
        process.terminate()
        process.wait(10)


def test_connections_through_pgbouncer_have_our_limits(pgbouncer: str) -> None:
    limits = {
        "lock_timeout": "2s",
        "statement_timeout": "15s",
        "idle_in_transaction_session_timeout": "30s",
        "jit": "off",
    }
    with _connected(pgbouncer) as connection:
        for name, value in limits.items():
            assert connection.execute(f"SHOW {name}").fetchall() == [(value,)], name


def _connected(url: str) -> "psycopg.Connection[tuple[object, ...]]":
    deadline = time.monotonic() + DEADLINE_S
    while True:
        try:
            return psycopg.connect(url, autocommit=True, connect_timeout=5)
        except psycopg.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _owner(path: Path) -> str:
    return next(parent for parent in (path, *path.parents) if parent.exists()).owner()


def _open_the_way(path: Path) -> None:
    """Lets another user walk to pytest's private directories; the files are this test's own."""
    for parent in path.parents:
        if parent.owner() != "root" or parent == Path("/tmp"):
            break
        if parent.name.startswith("pytest-"):
            parent.chmod(parent.stat().st_mode | 0o011)
