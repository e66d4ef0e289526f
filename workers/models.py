"""What only workers have beside their runner: how long a beat counts, what they say of themselves.

Written by workers.services; the lease itself is `runner_leases`, shared with managers. Owners of
affinity keys are written by the claim statement (tasks/sql/claim).
"""

from typing import ClassVar

from django.db import models
from django.db.models import Q
from typing_extensions import override

from core.fields import TagArrayField


class Worker(models.Model):
    """An independent or direct worker. Its name, owner, tags and fences are the runner's."""

    runner = models.OneToOneField(
        "runners.Runner", on_delete=models.CASCADE, primary_key=True, related_name="worker"
    )
    # One beat is good for this long. Kept, because expiry minus this is the time of the last beat:
    # a beat then writes the narrow lease row and nothing else.
    lease_ttl_s = models.FloatField()
    metadata = models.JSONField(null=True, blank=True)  # host, pid, version ... as it came
    metadata_at = models.DateTimeField(null=True, blank=True)
    # Direct workers only: the one group whose tasks its socket may carry, what it can run (as tags
    # beside the runner's own, which are its owner's) and the rest of its last register.
    tenant = models.ForeignKey(
        "accounts.Group", on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    node_tags = TagArrayField(db_default=[])
    capabilities = models.JSONField(null=True, blank=True)
    certificate = models.TextField(null=True, blank=True)  # noqa: DJ001 - null: none was shown

    class Meta:
        db_table = "workers"
        constraints: ClassVar = [
            models.CheckConstraint(name="workers_lease_ttl", condition=Q(lease_ttl_s__gt=0)),
        ]

    @override
    def __str__(self) -> str:
        return f"worker {self.runner_id}"


class WorkerResource(models.Model):
    """Something that lives on one direct worker, by the worker's own word."""

    id = models.BigAutoField(primary_key=True)
    runner = models.ForeignKey(
        "runners.Runner", on_delete=models.CASCADE, related_name="resources", db_index=False
    )
    resource_id = models.TextField()
    type = models.TextField()
    scope = models.TextField(null=True, blank=True)  # noqa: DJ001 - null: none was said
    size_bytes = models.BigIntegerField(null=True, blank=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    metadata = models.JSONField(default=dict, blank=True)
    task_uuid = models.UUIDField(null=True, blank=True)  # whose result left it
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        db_table = "worker_resources"
        constraints: ClassVar = [
            models.UniqueConstraint(fields=["runner", "resource_id"], name="worker_resources_one"),
        ]

    @override
    def __str__(self) -> str:
        return f"{self.type} {self.resource_id}"


class AffinityOwner(models.Model):
    """The worker that was last given a task of this key; sticky ones follow it there."""

    pk = models.CompositePrimaryKey("group_id", "key")
    group = models.ForeignKey(
        "accounts.Group", on_delete=models.CASCADE, related_name="+", db_index=False
    )
    key = models.TextField()
    runner = models.ForeignKey("runners.Runner", on_delete=models.CASCADE, related_name="+")
    used_at = models.DateTimeField()

    class Meta:
        db_table = "affinity_owners"

    @override
    def __str__(self) -> str:
        return f"{self.key}: runner {self.runner_id}"


class WorkerStatus(models.Model):
    """The view `worker_status`: who is active, stale or inactive, and what each holds."""

    ACTIVE: ClassVar = "active"
    STALE: ClassVar = "stale"
    INACTIVE: ClassVar = "inactive"

    runner_id = models.BigIntegerField(primary_key=True)
    worker_id = models.UUIDField()
    status = models.TextField()  # active, stale (its lease is over) or inactive (it left)
    last_seen_at = models.DateTimeField()
    active_tasks = models.BigIntegerField()
    minutes_since_heartbeat = models.IntegerField()

    class Meta:
        db_table = "worker_status"
        managed = False
        verbose_name_plural = "worker status"

    @override
    def __str__(self) -> str:
        return f"{self.worker_id}: {self.status}"
