"""Periodic jobs of the site itself; collected by mitosis_site.celery."""

from typing import Final

from celery import shared_task
from django.conf import settings
from django.contrib.sessions.models import Session

from core import clock
from mitosis_site.tracing import export

DELETE_EXPIRED_SESSIONS: Final = "mitosis_site.delete_expired_sessions"
EXPORT_TRACES: Final = "mitosis_site.export_traces"

SCHEDULE: Final = {
    DELETE_EXPIRED_SESSIONS: 3600.0,
    **({EXPORT_TRACES: settings.MITOSIS.sweep_s} if settings.OTLP_ENDPOINT else {}),
}


@shared_task(name=DELETE_EXPIRED_SESSIONS)
def delete_expired_sessions() -> int:
    """Console logins that ran out. One statement, so two beats at once do no harm."""
    deleted, _ = Session.objects.filter(expire_date__lt=clock.now()).delete()
    return deleted


@shared_task(name=EXPORT_TRACES)
def export_traces() -> int:
    """Traces of ended tasks, when a collector is configured. Two at once send the same ids."""
    target = export.configured()
    if target is None:
        return 0
    endpoint, headers = target
    return export.export_traces(endpoint=endpoint, headers=headers)
