"""The `nodeagent` command: flags become a config, the config becomes a running program.

Thin by rule: no logic beyond reading flags. Settings, their order and defaults are in config.
"""

import sys
from typing import Annotated, TypeAlias

import typer

from nodeagent.agent_config import load_agent_config
from nodeagent.config import load_worker_config
from nodeagent.config_layers import Secret
from nodeagent.errors import ConfigInvalid
from nodeagent.log_setup import configure_logging
from nodeagent.worker.main import run_independent_worker

# Flags that say how to run, not what the worker is.
_NO_SETTINGS = ("independent", "direct", "password_stdin", "skip_redis")

TlsCa: TypeAlias = Annotated[
    str | None, typer.Option(help="PEM file: trust this authority, not the system's.")
]
TlsCert: TypeAlias = Annotated[
    str | None, typer.Option(help="PEM file: the client certificate to show.")
]
TlsKey: TypeAlias = Annotated[
    str | None, typer.Option(help="PEM file: its key, if not in the same file.")
]

app = typer.Typer(
    name="nodeagent",
    help="Runs Mitosis tasks on this host.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # its tracebacks print local variables, tokens included
)


@app.callback()
def nodeagent() -> None:
    """Runs Mitosis tasks on this host."""


@app.command()
def run(  # noqa: PLR0913 - one parameter per flag is how typer reads them
    *,
    config: Annotated[
        str | None, typer.Option(help="TOML file; its `agent` table is read.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", "-c", help="Address of the coordinator.")
    ] = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    token_file: Annotated[
        str | None, typer.Option(help="File with the token of the user who registers this host.")
    ] = None,
    user: Annotated[
        str | None, typer.Option("--user", "-u", help="Instead of --token-file.")
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password's line from stdin.")
    ] = False,
    tags: Annotated[
        str | None, typer.Option("--tags", "-t", help="What this host has: a,b")
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", "-l", help="Notes for people: a,b")
    ] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", "-g", help="Groups to serve: a,b:admin")
    ] = None,
    instance: Annotated[
        str | None, typer.Option(help="Name of this agent where a machine has several.")
    ] = None,
    data_dir: Annotated[
        str | None, typer.Option(help="Identity, outbox and work directories.")
    ] = None,
    work_dir: Annotated[
        str | None, typer.Option(help="Where hooks and tasks run, if not below --data-dir.")
    ] = None,
    lock_dir: Annotated[
        str | None, typer.Option(help="Where the agents of this machine find each other.")
    ] = None,
    transport: Annotated[
        str | None, typer.Option(help="To the workers: auto, iceoryx2 or unix.")
    ] = None,
    sandbox_user: Annotated[
        str | None, typer.Option(help="Whom commands run as when the agent is root.")
    ] = None,
    cgroup: Annotated[str | None, typer.Option(help="auto or off.")] = None,
    grace: Annotated[
        str | None, typer.Option(help="Time for tasks in hand after SIGTERM, such as 30s.")
    ] = None,
    reconnect_max: Annotated[
        str | None, typer.Option(help="Longest pause between tries to connect; 60s by default.")
    ] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    log_path: Annotated[str | None, typer.Option(help="Also log to this file.")] = None,
) -> None:
    """Serve suites on this host until stopped.

    Every flag can also be set as MITO_AGENT_<NAME> or in the `agent` table of the configuration
    file. The first SIGTERM finishes what runs, the second one leaves at once.
    """
    flags = {
        name: value
        for name, value in locals().items()
        if value is not None and name != "password_stdin"
    }
    if password_stdin:
        flags["password"] = Secret(sys.stdin.readline().rstrip("\r\n"))
    try:
        settings = load_agent_config(flags)
    except ConfigInvalid as error:
        typer.echo(f"nodeagent: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    configure_logging(level=settings.log_level, form=settings.log_format, file=settings.log_path)
    # Workers are many and start often: they do not load the agent.
    from nodeagent.agent import run_agent  # noqa: PLC0415

    raise typer.Exit(run_agent(settings))


@app.command()
def worker(  # noqa: PLR0913 - one parameter per flag is how typer reads them
    *,
    independent: Annotated[
        bool, typer.Option("--independent", help="Poll the coordinator over HTTP.")
    ] = False,
    direct: Annotated[
        bool, typer.Option("--direct", help="Hold a session on the coordinator's control plane.")
    ] = False,
    concurrency: Annotated[
        int | None, typer.Option(help="With --direct: tasks at the same time.")
    ] = None,
    handlers: Annotated[
        str | None, typer.Option(help="With --direct: Python modules that define handlers: a,b")
    ] = None,
    commands: Annotated[
        bool | None, typer.Option(help="With --direct: whether to take plain command tasks.")
    ] = None,
    allow_packages: Annotated[
        bool | None,
        typer.Option("--allow-packages", help="With --direct: install what the group sends."),
    ] = None,
    metrics_listen: Annotated[
        str | None, typer.Option(help="With --direct: HOST:PORT for GET /metrics.")
    ] = None,
    config: Annotated[
        str | None, typer.Option(help="TOML file; its `worker` table is read.")
    ] = None,
    coordinator: Annotated[
        str | None, typer.Option("--coordinator", "-c", help="Address of the coordinator.")
    ] = None,
    tls_ca: TlsCa = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    polling_interval: Annotated[
        str | None, typer.Option(help="Pause between fetches when idle, such as 5s.")
    ] = None,
    heartbeat_interval: Annotated[str | None, typer.Option(help="Such as 30s.")] = None,
    credential_path: Annotated[str | None, typer.Option(help="File of user:token lines.")] = None,
    user: Annotated[str | None, typer.Option("--user", "-u")] = None,
    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            "-p",
            help="Visible to every user of this host: prefer --password-stdin or MITO_PASSWORD.",
        ),
    ] = None,
    password_stdin: Annotated[
        bool, typer.Option("--password-stdin", help="Read the password's line from stdin.")
    ] = False,
    retain: Annotated[
        bool | None, typer.Option(help="Keep the user's other sessions when logging in.")
    ] = None,
    groups: Annotated[
        str | None, typer.Option("--groups", "-g", help="Groups to serve: a,b:admin")
    ] = None,
    tags: Annotated[
        str | None, typer.Option("--tags", "-t", help="What this worker has: a,b")
    ] = None,
    labels: Annotated[
        str | None, typer.Option("--labels", "-l", help="Notes for people: a,b")
    ] = None,
    lifetime: Annotated[
        str | None, typer.Option(help="How long the registration lives, such as 7d.")
    ] = None,
    grace: Annotated[
        str | None,
        typer.Option(help="Time to finish the task in hand after SIGTERM; 0 kills it at once."),
    ] = None,
    cache_dir: Annotated[str | None, typer.Option(help="Where work directories go.")] = None,
    log_level: Annotated[str | None, typer.Option(help="debug, info, warning or error.")] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json.")] = None,
    file_log: Annotated[
        bool | None, typer.Option("--file-log", help="Also log to a file of this worker.")
    ] = None,
    shared_log: Annotated[
        bool | None, typer.Option("--shared-log", help="Also log to a file all workers share.")
    ] = None,
    log_path: Annotated[str | None, typer.Option(help="Also log to this file.")] = None,
    skip_redis: Annotated[
        bool, typer.Option("--skip-redis", help="Accepted and ignored: no Redis is used.")
    ] = False,
) -> None:
    """Take tasks and run them until stopped.

    Every flag can also be set as MITO_<NAME> or in the `worker` table of the configuration file.
    """
    flags = {
        name: value
        for name, value in locals().items()
        if value is not None and name not in _NO_SETTINGS
    }
    if independent == direct:
        raise typer.BadParameter("say how to work: --independent or --direct", param_hint="worker")
    if password_stdin:
        flags["password"] = Secret(sys.stdin.readline().rstrip("\r\n"))
    try:
        settings = load_worker_config(flags)
    except ConfigInvalid as error:
        typer.echo(f"nodeagent: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    configure_logging(level=settings.log_level, form=settings.log_format)
    if not direct:
        raise typer.Exit(run_independent_worker(settings))
    # Its sockets cost other workers nothing.
    from nodeagent.direct.worker import run_direct_worker  # noqa: PLC0415

    try:
        status = run_direct_worker(settings)
    except ConfigInvalid as error:
        typer.echo(f"nodeagent: {error}", err=True)
        raise typer.Exit(error.exit_code) from error
    raise typer.Exit(status)


def main() -> None:
    """Entry point of the console script."""
    app()
