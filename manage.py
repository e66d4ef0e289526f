"""Django's command line; sets the settings module and nothing else."""

import os
import sys

from django.core.management import execute_from_command_line


def main() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mitosis_site.settings.dev")
    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
