"""Abstract models shared by the apps."""

from django.db import models
from django.db.models.functions import Now


class TimestampedModel(models.Model):
    """When a row was made and last changed.

    The database fills both as well, so that COPY and hand-written INSERTs need not; hand-written
    UPDATEs set `updated_at` themselves (core.transitions does).
    """

    created_at = models.DateTimeField(auto_now_add=True, db_default=Now(), editable=False)
    updated_at = models.DateTimeField(auto_now=True, db_default=Now(), editable=False)

    class Meta:
        abstract = True
