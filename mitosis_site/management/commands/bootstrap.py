"""`python -m django bootstrap`: prepare the stores of an installation, safely repeatable.

Failures are one line on stderr and exit status 1, because supervisors show that line to people.
"""

import argparse
from pathlib import Path
from typing import Any

import psycopg
from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import Error as DatabaseError
from typing_extensions import override

from core.errors import DomainError
from core.redaction import redact_text
from mitosis_site.admin_file import AdminFileError
from mitosis_site.bootstrap import NeedsOwnSession, Plan, bootstrap
from mitosis_site.health import object_store
from mitosis_site.object_store import ObjectStoreError


class Command(BaseCommand):
    help = "Migrate the database, make the first admin and the buckets. Safe to repeat."
    # They need no database and would only delay the start of a stack.
    requires_system_checks = ()

    @override
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--admin-file", type=Path, required=True, help="login of the first admin (0600, JSON)"
        )
        parser.add_argument("--username", default="admin", help="name of the first admin")
        parser.add_argument(
            "--url", default=settings.MITOSIS_PUBLIC_URL, help="address to write into the file"
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        plan = Plan(
            database_url=settings.DATABASE_URL,
            admin_file=options["admin_file"],
            username=options["username"],
            url=options["url"].rstrip("/"),
            store=object_store(),
            is_pooled=settings.DATABASE_IS_POOLED,
        )
        try:
            bootstrap(plan, self.stdout.write)
        except (DatabaseError, psycopg.Error) as error:
            raise CommandError(f"PostgreSQL: {_one_line(error)}") from error
        except OSError as error:
            raise CommandError(f"{error.filename}: {error.strerror}") from error
        except (ObjectStoreError, AdminFileError, DomainError, NeedsOwnSession) as error:
            raise CommandError(_one_line(error)) from error


def _one_line(error: Exception) -> str:
    """A driver's message without its further lines and without what it may quote of the URL."""
    lines = str(error).strip().splitlines()
    return redact_text(lines[0]) if lines else type(error).__name__
