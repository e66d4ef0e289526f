"""`manage.py shutdown_secret`: prints what POST /admin/shutdown asks for."""

from django.core.management.base import BaseCommand
from typing_extensions import override

from accounts.services.shutdown import shutdown_secret


class Command(BaseCommand):
    help = "Print the secret that POST /admin/shutdown of this installation asks for."
    requires_system_checks = ()

    @override
    def handle(self, *args: object, **options: object) -> str:
        return shutdown_secret()
