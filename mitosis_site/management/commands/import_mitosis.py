"""`manage.py import_mitosis --source URL`: take over the contents of an existing Mitosis server."""

import argparse
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError
from typing_extensions import override

from core.errors import DomainError
from core.redaction import redact_text
from mitosis_site.importing.run import MAX_NAMED, Report, RowsRefused, import_all
from mitosis_site.importing.source import open_source


class Command(BaseCommand):
    help = (
        "Take over users, groups, roles, tasks, archived tasks, artifacts, attachments and workers "
        "of an existing Mitosis server (0.6.8) from its PostgreSQL database. Safe to repeat."
    )

    @override
    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "--source",
            required=True,
            help="postgresql://user@host/name of the other server's database; it is only read. "
            "The password belongs into ~/.pgpass",
        )
        parser.add_argument(
            "--dry-run", action="store_true", help="do everything, report, and roll it back"
        )
        parser.add_argument(
            "--skip-unusable",
            action="store_true",
            help="go on without rows that this server could not serve; they are listed",
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        dry_run = options["dry_run"]
        try:
            with open_source(options["source"]) as source:
                report = import_all(source, dry_run=dry_run, skip_unusable=options["skip_unusable"])
        except RowsRefused as refused:
            self._show(refused.report)
            raise CommandError(
                f"Nothing was imported: {refused}. Mend them, or say --skip-unusable."
            ) from refused
        except psycopg.Error as error:
            first = redact_text((str(error).strip().splitlines() or [type(error).__name__])[0])
            raise CommandError(f"PostgreSQL: {first}") from error
        except DomainError as error:
            raise CommandError(error.message) from error
        self._show(report)
        self.stdout.write("Dry run: nothing was kept." if dry_run else "Done.")

    def _show(self, report: Report) -> None:
        self.stdout.write(f"{'':16}{'found':>9}{'added':>9}{'known':>9}{'refused':>9}")
        for name, count in report.counts.items():
            numbers = (count.found, count.added, count.known, count.refused)
            self.stdout.write(f"{name:16}" + "".join(f"{number:9}" for number in numbers))
        for refusal in report.refusals:
            self.stdout.write(f"refused: {refusal}")
        if report.refused > len(report.refusals):
            self.stdout.write(f"refused: and others; only {MAX_NAMED} are named")
