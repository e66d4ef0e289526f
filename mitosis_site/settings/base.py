"""Django proper: apps, middleware, templates, keys.

Each integration has a module of its own beside this one; dev, test and prod only override.
"""

from pathlib import Path
from typing import Any, Final

from mitosis_site.bundled import bundled
from mitosis_site.env import ENV
from mitosis_site.keys import Keys, KeysError, ephemeral_keys, load_or_create_keys
from mitosis_site.settings.celery import *  # noqa: F403 - one namespace is how Django works
from mitosis_site.settings.channels import *  # noqa: F403
from mitosis_site.settings.database import *  # noqa: F403
from mitosis_site.settings.logging import *  # noqa: F403
from mitosis_site.settings.numbers import *  # noqa: F403
from mitosis_site.settings.rest import *  # noqa: F403
from mitosis_site.settings.security import *  # noqa: F403
from mitosis_site.settings.storage import *  # noqa: F403

BASE_DIR: Final = Path(__file__).resolve().parents[2]


def _keys_or_exit() -> Keys:
    if ENV.keys_dir is None:
        return ephemeral_keys()
    try:
        return load_or_create_keys(ENV.keys_dir)
    except KeysError as error:
        raise SystemExit(f"The coordinator cannot start, its keys are unusable: {error}") from None


_keys: Final = _keys_or_exit()
SECRET_KEY = _keys.django_secret
MITOSIS_PRIVATE_KEY_PEM = _keys.private_pem
MITOSIS_PUBLIC_KEY_PEM = _keys.public_pem
MITOSIS_KEYS_IN_MEMORY = ENV.keys_dir is None
MITOSIS_FAULTS = ENV.faults
# Whether what production_problems finds stops the process (mitosis_site.apps).
MITOSIS_PRODUCTION = False

DEBUG = False
INSTALLED_APPS = [
    "mitosis_site.apps.MitosisAdminConfig",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "channels",
    "rest_framework",
    "django_filters",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "accounts",
    "runners",
    "suites",
    "managers",
    "workers",
    "tasks",
    "notifications",
    "console",
    "mitosis_site",
]
# Outermost first. All of them run on the event loop (see mitosis_site.middleware.stock).
MIDDLEWARE = [
    "mitosis_site.middleware.request_context.request_context",
    "mitosis_site.middleware.content_security_policy.content_security_policy",
    "mitosis_site.middleware.stock.Security",
    "mitosis_site.middleware.static_files.StaticFiles",
    "mitosis_site.middleware.stock.Session",
    "mitosis_site.middleware.stock.Common",
    "mitosis_site.middleware.stock.Csrf",
    "mitosis_site.middleware.stock.Authentication",
    "mitosis_site.middleware.stock.Messages",
    "mitosis_site.middleware.stock.XFrameOptions",
]
ROOT_URLCONF = "mitosis_site.urls"
ASGI_APPLICATION = "mitosis_site.asgi.application"
# The existing API has no trailing slashes; a redirect would turn its POSTs into GETs.
APPEND_SLASH = False
TEMPLATES: list[dict[str, Any]] = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [bundled("templates")],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]
LANGUAGE_CODE = "en-us"
USE_I18N = False
USE_TZ = True
TIME_ZONE = "UTC"
