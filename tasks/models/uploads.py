"""What users and runners hand in: archives of a task, files of a group, and whole submissions."""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from typing_extensions import override

from core.fields import EnumCodeField
from core.models import TimestampedModel
from mitosis_protocol.enums import ArtifactContentType, AttachmentContentType


class Artifact(TimestampedModel):
    """An archive in the artifacts bucket. One per attempt: a late PUT cannot touch a newer one."""

    id = models.BigAutoField(primary_key=True)
    task_id = models.BigIntegerField()
    task_uuid = models.UUIDField()
    group = models.ForeignKey(
        "accounts.Group",
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    attempt = models.IntegerField()  # 0: uploaded by a user, outside any attempt
    content_type = EnumCodeField(ArtifactContentType)
    size = models.BigIntegerField()
    key = models.TextField(unique=True)  # made by artifact_key(), never by a client

    class Meta:
        db_table = "artifacts"
        constraints: ClassVar = [
            models.UniqueConstraint(
                fields=["task_uuid", "attempt", "content_type"], name="artifacts_unique"
            ),
            models.CheckConstraint(name="artifacts_size", condition=Q(size__gte=0)),
        ]
        indexes: ClassVar = [models.Index(fields=["task_id"], name="artifacts_task")]

    @override
    def __str__(self) -> str:
        return self.key


class Attachment(TimestampedModel):
    """A file in the attachments bucket, named by its group; packages carry a checksum."""

    id = models.BigAutoField(primary_key=True)
    group = models.ForeignKey(
        "accounts.Group",
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    key = models.TextField()
    content_type = EnumCodeField(AttachmentContentType, default=AttachmentContentType.NOT_SET)
    size = models.BigIntegerField()
    # Charged beyond `size`: a larger upload was announced, and its URL may still have been used.
    reserved = models.BigIntegerField(default=0, db_default=0)
    sha256 = models.BinaryField(null=True, max_length=32)

    class Meta:
        db_table = "attachments"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["group", "key"], name="attachments_unique"),
            models.CheckConstraint(name="attachments_size", condition=Q(size__gte=0)),
            models.CheckConstraint(name="attachments_reserved", condition=Q(reserved__gte=0)),
        ]

    @override
    def __str__(self) -> str:
        return self.key


class Submission(models.Model):
    """One Idempotency-Key of one user: what was asked (hashed) and what was answered."""

    id = models.BigAutoField(primary_key=True)
    user = models.ForeignKey(
        "accounts.User",
        on_delete=models.PROTECT,
        related_name="+",
        db_constraint=False,
        db_index=False,
    )
    idempotency_key = models.TextField()
    request_sha256 = models.BinaryField(max_length=32)
    response = models.BinaryField(null=True)  # MessagePack of tasks.services.submit.Submitted
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "submissions"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["user", "idempotency_key"], name="submissions_unique")
        ]
        indexes: ClassVar = [models.Index(fields=["created_at"], name="submissions_created")]

    @override
    def __str__(self) -> str:
        return self.idempotency_key
