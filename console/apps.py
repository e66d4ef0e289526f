from django.apps import AppConfig


class ConsoleConfig(AppConfig):
    """Has no tables: it shows what the apps below it keep."""

    name = "console"
