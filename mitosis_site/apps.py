"""App configurations of the composition root: commands, system checks, the admin site."""

from importlib import import_module

from django.apps import AppConfig, apps
from django.conf import settings
from django.contrib import admin
from django.contrib.admin import apps as admin_apps
from typing_extensions import override

from core import faults
from mitosis_site.hardening import production_problems


class MitosisSiteConfig(AppConfig):
    name = "mitosis_site"

    @override
    def ready(self) -> None:
        if settings.MITOSIS_PRODUCTION:
            _refuse_unsafe_production()
        faults.configure(settings.MITOSIS_FAULTS)
        # Access is decided by our own groups and roles; Django's would only mislead operators.
        admin.site.unregister(apps.get_model("auth", "Group"))
        # Importing registers the checks; before this moment its imports would be too early.
        import_module("mitosis_site.checks")


def _refuse_unsafe_production() -> None:
    """Here and not in the settings: a module that builds on production's may change them."""
    problems = production_problems(settings)
    if problems:
        lines = "\n".join(f"  - {problem}" for problem in problems)
        message = f"The coordinator refuses to start with production settings:\n{lines}"
        raise SystemExit(message)


class MitosisAdminConfig(admin_apps.AdminConfig):
    # INSTALLED_APPS names it by its path; the package's own configuration is the class above.
    default = False
    default_site = "mitosis_site.admin.MitosisAdminSite"
