"""Guards of sessions, leases and engagements, broken one at a time; their machine kills each."""

from tests.mutants.machine_mutants import MachineMutant

SESSION_MUTANTS = (
    MachineMutant(
        "a new connection leaves the old one its epoch",
        "runners/open_session",
        [("SET session_epoch = session_epoch + 1, conn_state", "SET conn_state")],
    ),
    MachineMutant(
        "a connection does not renew the lease",
        "runners/open_session",
        [(", expires_at = EXCLUDED.expires_at", "")],
    ),
    MachineMutant(
        "a revoked manager connects",
        "runners/open_session",
        [(" AND revoked_at IS NULL", "")],
    ),
    MachineMutant(
        "a token of an older generation connects",
        "runners/open_session",
        [(" AND token_generation = %(generation)s", " AND %(generation)s IS NOT NULL")],
    ),
    MachineMutant(
        "the late end of an old socket takes the new one offline",
        "runners/close_session",
        [(" AND session_epoch = %(session_epoch)s", " AND %(session_epoch)s IS NOT NULL")],
    ),
    MachineMutant(
        "the end of a socket hides that its lease was lost",
        "runners/close_session",
        [(" AND conn_state = 1", "")],
    ),
    MachineMutant(
        "a beat of an older session renews the lease",
        "managers/heartbeat",
        [(" AND l.session_epoch = b.session_epoch", "")],
    ),
    MachineMutant(
        "an older session claims",
        "tasks/suite/claim",
        [("        AND r.session_epoch = coalesce(q.session_epoch, r.session_epoch)\n", "")],
    ),
    MachineMutant(
        "a manager claims although nobody wants it to",
        "tasks/suite/claim",
        [("        AND r.desired_state = 0\n", "")],
    ),
    MachineMutant(
        "a manager with an ended lease claims",
        "tasks/suite/claim",
        [("        AND l.expires_at > clock_timestamp()\n", "")],
    ),
    MachineMutant(
        "an engagement that is over claims",
        "tasks/suite/claim",
        [
            ("a.manager_id = q.runner_id AND a.state IN (2, 3)\n", "a.manager_id = q.runner_id\n"),
            ("        AND a.released_at IS NULL\n        AND a.state IN (2, 3)\n", ""),
        ],
    ),
    MachineMutant(
        "the beats of a fenced session keep its lease",
        "tasks/settle/reap",
        [
            (
                "    SET session_epoch = b.session_epoch\n",
                "    SET session_epoch = l.session_epoch\n",
            )
        ],
    ),
    MachineMutant(
        "a lease that runs is reaped",
        "tasks/settle/reap",
        [
            (
                "l.expires_at < clock_timestamp() - make_interval(secs => %(grace_s)s::float8)",
                "%(grace_s)s::float8 IS NOT NULL",
            )
        ],
    ),
    MachineMutant(
        "a manager that shall leave returns to its suite",
        "managers/readopt",
        [(" AND r.desired_state = 0\n", "\n")],
    ),
    MachineMutant(
        "a manager that gave its suite back returns to it",
        "managers/readopt",
        [(" AND o.release_reason = 7\n", "\n")],
    ),
    MachineMutant(
        "a task is taken back without an engagement",
        "tasks/adopt",
        [("            AND (f.suite_id IS NULL OR q.assignment_id IS NOT NULL)\n", "")],
    ),
    MachineMutant(
        "our own absence counts against the fleet",
        "runners/mark_served",
        [("WHERE (SELECT k.is_new FROM mark k)", "WHERE false")],
    ),
    MachineMutant(
        "our own absence brings back who was gone before",
        "runners/mark_served",
        [("        AND l.expires_at >= coalesce(m.last_seen_at, '-infinity')\n", "")],
    ),
    MachineMutant(
        "a manager that is gone keeps its engagement",
        "managers.services.expiry",
        [("        release_all(gone, ReleaseReason.LEASE)\n", "")],
    ),
    MachineMutant(
        "a revocation leaves the lease to the old session",
        "runners.services.registration",
        [('session_epoch=F("session_epoch") + 1, expires_at=Now()', "expires_at=Now()")],
    ),
)
