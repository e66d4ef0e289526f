"""What Django calls model managers; the file is not named so, as *manager* means node manager."""

from typing import TYPE_CHECKING

from django.contrib.auth.base_user import BaseUserManager
from django.core.management.base import CommandError

if TYPE_CHECKING:
    from accounts.models import User


class UserManager(BaseUserManager["User"]):
    """What Django's login needs to find a user; users are made by accounts.services only."""

    def create_superuser(self, *args: object, **fields: object) -> "User":
        """Django's `createsuperuser` ends here: it knows nothing of groups and names."""
        raise CommandError("Use `manage.py create_admin` instead.")
