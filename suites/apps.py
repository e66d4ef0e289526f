from django.apps import AppConfig


class SuitesConfig(AppConfig):
    name = "suites"
    default_auto_field = "django.db.models.BigAutoField"
