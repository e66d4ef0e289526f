"""Two coordinators as a site runs them: behind nginx, with PostgreSQL behind PgBouncer.

Both programs run with the example files of docker/, in which only addresses are replaced; an
example that stops working fails the tests.
"""

import os
import urllib.parse
from collections.abc import Mapping
from pathlib import Path

import psycopg
from typing_extensions import override

from mitosis_stack.assembly import base_url
from mitosis_stack.ports import LOOPBACK, pick_free
from mitosis_stack.privileges import ServiceUser, find_service_user
from mitosis_stack.probes import http_status
from mitosis_stack.process import ChildSpec, spawn, wait_until
from tests.debian_setup import find_program
from tests.e2e.cluster import Cluster

DOCKER = Path(__file__).resolve().parents[2] / "docker"
NGINX = """\
daemon off;
{user}
pid {root}/nginx.pid;
error_log stderr;
worker_processes 1;
events {{}}
http {{
    access_log off;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/proxy;
    fastcgi_temp_path {root}/fastcgi;
    uwsgi_temp_path {root}/uwsgi;
    scgi_temp_path {root}/scgi;
    include {root}/mitosis.conf;
}}
"""


class ProxiedCluster(Cluster):
    """`url` is nginx; coordinators know PgBouncer only; the test itself asks PostgreSQL."""

    def __init__(self, root: Path, environment: dict[str, str]) -> None:
        self._nginx, self._pgbouncer = pick_free(["nginx", "pgbouncer"], {}).values()
        self.places = {name: root / name for name in ("nginx", "pgbouncer")}
        super().__init__(root, coordinators=2, environment=environment)

    @property
    @override
    def url(self) -> str:
        return base_url(self._nginx)

    def pooled_url(self, database: str = "mitosis") -> str:
        parts = urllib.parse.urlsplit(self.database_url)
        login = parts.netloc.rpartition("@")[0]
        return f"postgresql://{login}@{LOOPBACK}:{self._pgbouncer}/{database}"

    @override
    def __enter__(self) -> "ProxiedCluster":
        super().__enter__()
        self._start_nginx()
        return self

    @override
    def _prepare(self) -> None:
        """As an operator does: the schema by a session of its own, the rest through the pooler."""
        super()._prepare()
        self._start_pgbouncer()
        self._extra |= {"DATABASE_URL": self.pooled_url(), "DATABASE_POOLING": "transaction"}

    def _start_pgbouncer(self) -> None:
        parts = urllib.parse.urlsplit(self.database_url)
        sockets = urllib.parse.parse_qs(parts.query)["host"][0]
        target = f"host={sockets} port=5432 dbname={self._database}"
        place = self.places["pgbouncer"]
        user = find_service_user()
        text = fill(
            DOCKER / "pgbouncer/pgbouncer.ini",
            {
                "host=postgres port=5432 dbname=mitosis": target,
                "listen_addr = 0.0.0.0": f"listen_addr = {LOOPBACK}\nunix_socket_dir =",
                "listen_port = 6432": f"listen_port = {self._pgbouncer}",
                # Relative: its user may not pass through the directories above.
                "/etc/pgbouncer/userlist.txt": "userlist.txt",
                # Without the limits, to see that somebody notices.
                "[pgbouncer]": f"bare = {target}\n[pgbouncer]",
            },
        )
        _write(place / "pgbouncer.ini", text, user)
        password = urllib.parse.unquote(parts.password or "")
        _write(place / "userlist.txt", f'"{parts.username}" "{password}"\n', user)
        self._run("pgbouncer", "pgbouncer.ini", user=user)
        wait_until(self._is_pooler_ready, child=self._children["pgbouncer"], timeout_s=30)

    def _is_pooler_ready(self) -> bool:
        try:
            psycopg.connect(self.pooled_url(), connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True

    def _start_nginx(self) -> None:
        place = self.places["nginx"]
        changes = {
            f"server coordinator-{number}:5000": f"server {LOOPBACK}:{port}"
            for number, port in enumerate(self._ports, start=1)
        }
        changes |= {
            "listen 443 ssl;": f"listen {LOOPBACK}:{self._nginx};",
            "    ssl_certificate     /etc/nginx/tls/fullchain.pem;\n": "",
            "    ssl_certificate_key /etc/nginx/tls/privkey.pem;\n": "",
        }
        self._run("nginx", *nginx_arguments(place, changes))
        child = self._children["nginx"]
        wait_until(lambda: http_status(self._nginx, "/readyz") == 200, child=child, timeout_s=30)

    def _run(self, name: str, *arguments: str, user: ServiceUser | None = None) -> None:
        program = find_program(name)
        assert program is not None, name
        self._children[name] = spawn(
            ChildSpec(
                name=name,
                argv=(program, *arguments),
                log=self.logs / f"{name}.log",
                env=dict(os.environ),
                cwd=self.places[name],
                user=user,
            )
        )


def fill(example: Path, changes: Mapping[str, str]) -> str:
    """The example with addresses of its own; each replaced text has to be there, once."""
    text = example.read_text()
    for old, new in changes.items():
        assert text.count(old) == 1, (example.name, old)
        text = text.replace(old, new)
    return text


def nginx_arguments(place: Path, changes: Mapping[str, str]) -> tuple[str, ...]:
    """For nginx with the example of docker/, changed and below `place`."""
    _write(place / "mitosis.conf", fill(DOCKER / "nginx/mitosis.conf", changes))
    # Its workers would otherwise be a user that cannot pass through a test's directories.
    user = "user root;" if os.geteuid() == 0 else ""
    _write(place / "nginx.conf", NGINX.format(root=place, user=user))
    return "-e", "stderr", "-c", str(place / "nginx.conf")


def _write(path: Path, text: str, owner: ServiceUser | None = None) -> None:
    path.parent.mkdir(exist_ok=True)
    path.touch(mode=0o600)
    path.write_text(text)
    if owner is not None:
        os.chown(path, owner.uid, owner.gid)
        os.chown(path.parent, owner.uid, owner.gid)
