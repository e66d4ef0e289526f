"""Hosts that fail what succeeds elsewhere are taken out, and tried again after a while.

Evidence is the ledger of crashes per task and runner, joined with who finished the task in the
end. A host that comes back is on probation; each further quarantine lasts twice as long.
"""

from typing import Final

import structlog
from django.db import connection, transaction

from accounts.actors import SYSTEM
from core.pg import load_sql
from managers.models import NodeManager
from managers.services.config import read_config
from managers.services.wishes import quarantine_manager
from runners.models import Runner

log = structlog.get_logger(__name__)

_SUSPECTS: Final = load_sql("managers", "suspects")
_PROBE_DUE: Final = load_sql("managers", "probe_due")
_PROBE: Final = load_sql("managers", "probe")
MAX_DOUBLINGS: Final = 8  # 10 minutes become about 43 hours, then it stays


def quarantine_suspects() -> list[int]:
    """Quarantine managers with enough evidence against them; answers them. Idempotent."""
    config = read_config()
    parameters = {
        "window_s": config.quarantine_window_s,
        "failures": config.quarantine_failures,
    }
    with connection.cursor() as cursor:
        cursor.execute(_SUSPECTS, parameters)
        suspects = cursor.fetchall()
    for manager_id, tasks, before in suspects:
        doublings = min(before, MAX_DOUBLINGS)
        with transaction.atomic():
            quarantine_manager(
                actor=SYSTEM,
                runner=Runner.objects.get(pk=manager_id),
                reason=f"{tasks} tasks failed here and succeeded elsewhere",
                probe_after_s=config.probe_after_s * 2**doublings,
            )
            NodeManager.objects.filter(pk=manager_id).update(quarantine_count=before + 1)
        log.warning("manager.quarantined", manager_id=manager_id, tasks=tasks, before=before)
    return [int(row[0]) for row in suspects]


def probe_quarantined() -> list[int]:
    """Let managers whose quarantine is over work on probation; answers them. Idempotent."""
    window_s = read_config().quarantine_window_s
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(_PROBE_DUE)
        probing = [int(row[0]) for row in cursor.fetchall()]
        cursor.execute(_PROBE, {"manager_ids": probing, "window_s": window_s})
    if probing:
        log.info("manager.probing", manager_ids=probing[:20])
    return probing
