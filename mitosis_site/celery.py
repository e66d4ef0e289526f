"""The Celery application: periodic jobs only, `celery -A mitosis_site worker|beat`.

Each app may have a `periodic.py` with shared tasks and a `SCHEDULE` that maps a task's name to its
period in seconds; this module collects them. Imported by Celery's command alone, which is why the
package does not expose the application: no web process ever sends a job.
"""

from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import django
from celery import Celery
from celery.signals import setup_logging
from django.apps import apps
from django.conf import settings

from mitosis_site.env import default_settings

default_settings("mitosis_site.settings.prod")
django.setup()

app = Celery("mitosis")
app.config_from_object("django.conf:settings", namespace="CELERY")


def periodic_modules() -> Iterator[ModuleType]:
    """The `periodic` module of every installed app that has one."""
    for config in apps.get_app_configs():
        name = f"{config.name}.periodic"
        if find_spec(name) is not None:
            yield import_module(name)


def beat_schedule(modules: Iterator[ModuleType]) -> dict[str, dict[str, Any]]:
    """Beat's table. A job that waited too long in the queue is dropped: a newer one follows."""
    periods: dict[str, float] = {}
    for module in modules:
        schedule: Mapping[str, float] = getattr(module, "SCHEDULE", {})
        periods.update(schedule)
    return {
        name: {
            "task": name,
            "schedule": period_s,
            "options": {"expires": period_s * settings.MITOSIS.job_expires_periods},
        }
        for name, period_s in periods.items()
    }


app.conf.beat_schedule = beat_schedule(periodic_modules())


@setup_logging.connect
def keep_our_logging(**_: object) -> None:
    """Being connected is enough: Celery then leaves the handlers alone that Django has set up."""
