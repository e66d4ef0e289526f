"""What lives on which direct worker, for submissions that refer to it and for people.

The registry is the worker's own word (workers.services.control_plane); what has expired is gone.
"""

from collections.abc import Collection

from django.db.models import Q, QuerySet
from django.db.models.functions import Now

from workers.models import WorkerResource


def list_resources(runner_id: int) -> QuerySet[WorkerResource]:
    """What is on the worker now, oldest first."""
    rows = WorkerResource.objects.filter(runner_id=runner_id)
    return rows.filter(Q(expires_at__isnull=True) | Q(expires_at__gt=Now())).order_by("id")


def missing_resources(runner_id: int, resource_ids: Collection[str]) -> list[str]:
    """Which of them the worker does not have (any more)."""
    found = list_resources(runner_id).filter(resource_id__in=resource_ids)
    return sorted(set(resource_ids) - set(found.values_list("resource_id", flat=True)))
