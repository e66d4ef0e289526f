"""`manage.py create_admin NAME`: a new admin, or a way back in for one who is locked out."""

import getpass
import sys

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.password import md5_of
from accounts.selectors import find_user
from accounts.services import users
from core.errors import DomainError
from mitosis_protocol.enums import UserState


class Command(BaseCommand):
    help = (
        "Create an admin, or make an existing user an active admin with a new password. "
        "The password is asked for, or read from standard input when that is no terminal."
    )

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("username")

    @override
    def handle(self, *args: object, username: str, **options: object) -> str:
        digest = md5_of(_read_password(username))
        try:
            return self._create_or_restore(username, digest)
        except DomainError as error:
            raise CommandError(error.message) from error

    def _create_or_restore(self, username: str, digest: bytes) -> str:
        if find_user(username) is None:
            users.create_user(actor=SYSTEM, username=username, md5_password=digest, is_admin=True)
            return f"Created the admin {username}."
        users.set_password(actor=SYSTEM, username=username, md5_password=digest)
        users.set_admin(actor=SYSTEM, username=username, is_admin=True)
        users.set_user_state(actor=SYSTEM, username=username, state=UserState.ACTIVE)
        return f"{username} is an active admin with the new password."


def _read_password(username: str) -> str:
    if sys.stdin.isatty():
        password = getpass.getpass(f"Password for {username}: ")
    else:
        password = sys.stdin.readline().rstrip("\n")
    try:
        validate_password(password, User(username=username))
    except ValidationError as error:
        raise CommandError(" ".join(error.messages)) from error
    return password
