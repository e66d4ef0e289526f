"""Builds the parts of one stack from the user's wishes; the test harness uses the same builders."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from mitosis_stack.binaries import find_postgres, find_valkey, find_weed
from mitosis_stack.coordinator import SETTINGS_MODULE, AsgiServer, CeleryProcess
from mitosis_stack.layout import DataDir, runtime_dir
from mitosis_stack.ports import LOOPBACK, pick_free
from mitosis_stack.postgres import Postgres
from mitosis_stack.privileges import find_service_user
from mitosis_stack.process import ChildSpec
from mitosis_stack.seaweed import PORT_NAMES, Seaweed, SeaweedSecrets
from mitosis_stack.secret_store import load_secrets
from mitosis_stack.services import Service
from mitosis_stack.settings import ExternalServices, StackSettings
from mitosis_stack.valkey import Valkey


@dataclass(frozen=True)
class Backing:
    """The stores: those to start here, and the environment by which all of them are found."""

    services: tuple[Service, ...]
    environment: Mapping[str, str]
    sockets: Path  # made here; remove_runtime_dir once everything has stopped
    ports: Mapping[str, int] = field(default_factory=dict)


def build_backing(
    data: DataDir,
    settings: StackSettings,
    remembered: Mapping[str, int],
    postgres_overrides: Mapping[str, str] | None = None,
) -> Backing:
    """PostgreSQL, Valkey and S3, each embedded unless the user named a server of his own."""
    secrets = load_secrets(data)
    external = settings.external
    services: list[Service] = []
    environment: dict[str, str] = _external_environment(external)
    ports: dict[str, int] = {}
    user = None if external.database_url else find_service_user(settings.service_user)
    sockets = runtime_dir(data, user, settings.runtime_base)
    if not external.database_url:
        postgres = Postgres(
            directory=data.postgres,
            sockets=sockets / "pg",
            log=data.logs / "postgres.log",
            password=secrets.postgres_password,
            programs=find_postgres(user),
            user=user,
            inherited=settings.inherited,
            overrides=postgres_overrides or {},
        )
        services.append(postgres)
        environment["DATABASE_URL"] = postgres.url
    if not external.redis_url:
        valkey = Valkey(
            program=find_valkey(),
            directory=data.valkey,
            socket=sockets / "valkey.sock",
            log=data.logs / "valkey.log",
            inherited=settings.inherited,
        )
        services.append(valkey)
        environment["REDIS_URL"] = valkey.url
    if not external.s3:
        ports = pick_free(PORT_NAMES, remembered)
        seaweed = Seaweed(
            program=find_weed(),
            directory=data.objects,
            sockets=sockets,
            log=data.logs / "s3.log",
            ports=ports,
            secrets=SeaweedSecrets(
                secrets.s3_access_key, secrets.s3_secret_key, secrets.s3_internal_key
            ),
            inherited=settings.inherited,
        )
        services.append(seaweed)
        environment.update(seaweed.environment)
    return Backing(tuple(services), environment, sockets, ports)


def coordinator_environment(
    data: DataDir, settings: StackSettings, backing: Backing, url: str
) -> dict[str, str]:
    return {
        **settings.inherited,
        **backing.environment,
        "DJANGO_SETTINGS_MODULE": SETTINGS_MODULE,
        "MITOSIS_KEYS_DIR": str(data.keys),
        "MITOSIS_PUBLIC_URL": url,
        "MITOSIS_LOG_FORMAT": "json",
        "PYTHONUNBUFFERED": "1",
    }


def build_coordinator(
    data: DataDir, settings: StackSettings, port: int, env: Mapping[str, str]
) -> tuple[Service, ...]:
    return (
        AsgiServer(port=port, log=data.logs / "web.log", env=env, kind=settings.asgi_server),
        *(
            CeleryProcess(
                role=role, directory=data.celery, log=data.logs / f"celery-{role}.log", env=env
            )
            for role in ("worker", "beat")
        ),
    )


def bootstrap_spec(data: DataDir, env: Mapping[str, str], url: str) -> ChildSpec:
    """Migrations, keys, the admin user and the buckets; safe to repeat at every start."""
    command = ("-m", "django", "bootstrap", "--admin-file", str(data.admin), "--url", url)
    return ChildSpec(
        name="bootstrap",
        argv=(sys.executable, *command),
        log=data.logs / "bootstrap.log",
        env=env,
    )


def base_url(port: int) -> str:
    return f"http://{LOOPBACK}:{port}"


def _external_environment(external: ExternalServices) -> dict[str, str]:
    environment: dict[str, str] = dict(external.s3 or {})
    if external.database_url:
        environment["DATABASE_URL"] = external.database_url
    if external.redis_url:
        environment["REDIS_URL"] = external.redis_url
    return environment
