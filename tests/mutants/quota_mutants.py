"""Guards of the storage quota, broken one at a time; their machine kills each."""

from tests.mutants.machine_mutants import MachineMutant

QUOTA_MUTANTS = (
    MachineMutant(
        "a charge passes the quota",
        "accounts.services.storage",
        [('within = rows.filter(storage_quota__gte=F("storage_used") + delta)', "within = rows")],
    ),
    MachineMutant(
        "a full group cannot announce the same again",
        "accounts.services.storage",
        [("    if delta == 0:\n", "    if delta < 0:\n")],
    ),
    MachineMutant(
        "a file that grows is charged in full",
        "tasks.services.attachments",
        [("delta=max(0, to_charge - charged)", "delta=to_charge")],
    ),
    MachineMutant(
        "a smaller file gives room back while the larger one may still come",
        "tasks.services.attachments",
        [("to_charge = size if is_settled else max(size, charged)", "to_charge = size")],
    ),
    MachineMutant(
        "a smaller file never gives room back",
        "tasks.services.attachments",
        [("delta=max(0, charged - to_charge)", "delta=0")],
    ),
    MachineMutant(
        "a deletion forgets what was reserved",
        "tasks.services.attachments",
        [("sum(row.size + row.reserved for row in found)", "sum(row.size for row in found)")],
    ),
    MachineMutant(
        "a file is deleted while its upload may still come",
        "tasks.services.attachments",
        [("        if not young:\n", "        if young is None:\n")],
    ),
    MachineMutant(
        "an attempt's archive passes the quota",
        "tasks/uploads/issue",
        [("> g.storage_quota THEN 'quota'", "> 1e18 THEN 'quota'")],
    ),
    MachineMutant(
        "what an attempt left stays charged when the next one uploads",
        "tasks/uploads/issue",
        [
            (
                "SELECT b.group_id, -b.size FROM given_back b",
                "SELECT b.group_id, 0 FROM given_back b",
            )
        ],
    ),
    MachineMutant(
        "what an attempt left is given back twice",
        "tasks/uploads/issue",
        [("    SET size = 0\n", "    SET size = a.size\n")],
    ),
    MachineMutant(
        "a smaller archive shrinks the charge without a refund",
        "tasks/uploads/issue",
        [("SET size = greatest(a.size, d.size)", "SET size = d.size")],
    ),
    MachineMutant(
        "an archive that grows is charged in full",
        "tasks/uploads/issue",
        [("greatest(0, h.size - coalesce(p.size, 0)) AS growth", "h.size AS growth")],
    ),
    MachineMutant(
        "an attempt that is over uploads",
        "tasks/uploads/issue",
        [("        AND t.attempt_id = q.attempt_id\n", "")],
    ),
    MachineMutant(
        "the sweep takes what may still be uploaded",
        "tasks.services.artifacts",
        [(", updated_at__lt=clock.now() - DELETE_AFTER\n", "\n")],
    ),
    MachineMutant(
        "the sweep takes what counts",
        "tasks.services.artifacts",
        [('"attempt__gt": OuterRef("attempt")', '"attempt__gte": OuterRef("attempt")')],
    ),
    MachineMutant(
        "deleted archives stay charged",
        "tasks.services.artifacts",
        [("delta=freed[group_id]", "delta=0")],
    ),
)
