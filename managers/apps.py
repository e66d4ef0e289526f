from django.apps import AppConfig


class ManagersConfig(AppConfig):
    name = "managers"
    default_auto_field = "django.db.models.BigAutoField"
