"""Turns the database's verdict on a taken name into the answer clients know."""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from django.db import IntegrityError, transaction

from core.errors import AlreadyExists

_NAME_KEYS = frozenset({"names_pkey", "users_username_key", "groups_name_key"})


@contextmanager
def claiming_name(name: str) -> Iterator[None]:
    """Inserts inside become one unit; a taken name raises AlreadyExists and undoes all of it."""
    try:
        with transaction.atomic():
            yield
    except IntegrityError as error:
        cause = error.__cause__
        if isinstance(cause, psycopg.Error) and cause.diag.constraint_name in _NAME_KEYS:
            raise AlreadyExists(f"User or group with same name {name} already exists") from error
        raise
