"""System checks: what must hold before this installation may serve anybody.

Run by every management command and by `manage.py check --deploy`; registered by the app's config.
"""

from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib.auth.middleware import AuthenticationMiddleware
from django.contrib.sessions.middleware import SessionMiddleware
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.checks import Warning as Advice
from django.middleware.clickjacking import XFrameOptionsMiddleware
from django.middleware.csrf import CsrfViewMiddleware
from django.middleware.security import SecurityMiddleware
from django.utils.module_loading import import_string

from mitosis_site.hardening import plain_text_addresses, production_problems
from mitosis_site.policy import policy_problems
from mitosis_site.sql_syntax import sql_problem

# Our subclasses stand in for these; Django's own checks look for the exact names only.
REQUIRED_MIDDLEWARE: Final = (
    SecurityMiddleware,
    SessionMiddleware,
    CsrfViewMiddleware,
    AuthenticationMiddleware,
    XFrameOptionsMiddleware,
)

AppConfigs = Sequence[AppConfig] | None
_PERMISSIONS: Final = "rest_framework.permissions"


@register()
def check_policy(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """The numbers do not contradict each other."""
    return [Error(sentence, id="mitosis.E001") for sentence in policy_problems(settings.MITOSIS)]


@register()
def check_sql_files(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """Every SQL file can be read, says what it is for, and has its quotes and brackets closed."""
    return [
        Error(f"{path.name}: {problem}", hint=str(path), id="mitosis.E002")
        for path in sql_files()
        if (problem := sql_problem(path.read_bytes())) is not None
    ]


@register()
def check_websocket_name(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """`import websocket` is ours; the websocket-client package would fight for the same name."""
    try:
        version("websocket-client")
    except PackageNotFoundError:
        return []
    hint = "Our own package `websocket` has the same import name."
    return [Error("websocket-client is installed.", hint=hint, id="mitosis.E003")]


@register(Tags.security)
def check_middleware(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """Replaces security.W001 to W003, which do not know subclasses."""
    loaded = [import_string(path) for path in settings.MIDDLEWARE]
    classes = [item for item in loaded if isinstance(item, type)]
    return [
        Error(f"{needed.__name__} is missing from MIDDLEWARE.", id="mitosis.E004")
        for needed in REQUIRED_MIDDLEWARE
        if not any(issubclass(item, needed) for item in classes)
    ]


@register(Tags.security)
def check_content_security_policy(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """No page may run a script that stands inside it, whatever a later change intends."""
    scripts = settings.CONTENT_SECURITY_POLICY.get("script-src", ())
    if "'self'" in scripts and not any(source.startswith("'unsafe") for source in scripts):
        return []
    return [Error("CONTENT_SECURITY_POLICY allows unsafe scripts.", id="mitosis.E005")]


@register(Tags.security, deploy=True)
def check_production(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """What production settings refuse to start with, told about any settings."""
    return [Error(sentence, id="mitosis.E006") for sentence in production_problems(settings)]


@register(Tags.security, deploy=True)
def check_encryption(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """Passwords and data that leave this machine in plain text: a warning, networks differ."""
    hint = "Use rediss://, https:// and sslmode=require, or a network of its own."
    return [
        Advice(f"{name} is reached without TLS on another machine.", hint=hint, id="mitosis.W007")
        for name in plain_text_addresses(settings)
    ]


@register(Tags.security, deploy=True)
def check_faults(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """Faults are for tests: one left behind kills a production process on purpose."""
    if not settings.MITOSIS_FAULTS:
        return []
    return [Advice("MITOSIS_FAULTS is set.", hint="Unset it.", id="mitosis.W008")]


@register(Tags.security, deploy=True)
def check_policy_is_closed(app_configs: AppConfigs, **_: Any) -> list[CheckMessage]:
    """The framework's defaults keep a forgotten view closed and counted."""
    rest = settings.REST_FRAMEWORK
    closed = rest.get("DEFAULT_PERMISSION_CLASSES") == [f"{_PERMISSIONS}.IsAuthenticated"]
    counted = "accounts.request_rate.UserRate" in rest.get("DEFAULT_THROTTLE_CLASSES", ())
    if closed and counted:
        return []
    return [Error("REST_FRAMEWORK leaves new views open or uncounted.", id="mitosis.E009")]


def sql_files() -> Iterator[Path]:
    """All files below `sql/` of the installed apps that live in this source tree."""
    root = Path(settings.BASE_DIR)
    for config in apps.get_app_configs():
        directory = Path(config.path)
        if directory.is_relative_to(root) and directory.parent == root:
            yield from sorted((directory / "sql").rglob("*.sql"))
