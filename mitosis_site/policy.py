"""The numbers the product is made of, in one frozen value.

``settings.MITOSIS`` is an instance; services receive it, or a number of it, as an argument.
``MITOSIS_POLICY=name=value,...`` overrides single numbers of an installation. Numbers that both
ends of a wire check have their defaults in ``mitosis_protocol.limits``.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from mitosis_protocol import limits
from mitosis_protocol.control_payloads import DRAIN_DISK_PCT, DRAIN_MEM_PCT


class PolicyError(Exception):
    """A number is unknown, out of range, or contradicts another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Durations end in ``_s`` (seconds), sizes in ``_bytes``; the rest are counts."""

    # --- liveness of runners ---
    # The seeds' interval: 1,000 managers are 33 beats a second, far below one batch statement.
    heartbeat_s: float = limits.HEARTBEAT_INTERVAL_S
    # Four missed beats. Shorter would turn a slow deploy into a fleet-wide reclaim.
    lease_ttl_s: float = limits.LEASE_TTL_S
    # The reaper waits this much longer, so the agent's own deadline always comes first.
    reaper_grace_s: float = limits.LEASE_GRACE_S
    # An idle agent asks this often: the price of one lost push hint.
    idle_poll_s: float = 15
    # Above this share of the fleet expiring in one sweep, the fault is ours: pause and alert.
    mass_expiry_ratio: float = 0.3
    # A fleet that expired at once gets this long to come back; then it is really gone, and its
    # tasks must not wait for ever.
    mass_expiry_patience_s: float = 120
    # The existing server's heartbeat timeout, twice the existing worker's interval.
    existing_worker_lease_s: float = 600
    # More takeovers a minute than this means two agents share one identity.
    supersedes_per_minute: int = 5
    # Independent workers that send metadata beats turn stale after this long without one.
    worker_stale_s: float = 300
    # Stale for this long: the worker is inactive and leaves the lists.
    worker_inactive_s: float = 3600

    # A direct worker whose memory or disk is this full gets no more work.
    worker_drain_mem_pct: float = DRAIN_MEM_PCT
    worker_drain_disk_pct: float = DRAIN_DISK_PCT

    # --- suites ---
    # Open closes after three minutes without a submit.
    suite_idle_close_s: float = 180
    # Nothing active for this long after the last submit: an open suite is complete.
    suite_settle_s: float = 10
    # A finished suite keeps its hosts warm this long unless another suite waits for them.
    suite_linger_s: float = 60
    # Distinct hosts that may fail the preparation before the suite is blocked.
    blocked_after_hosts: int = 3
    # A prefetched task may wait this long on one host while another assigned host idles.
    tail_wait_s: float = 2

    # --- tasks ---
    # Crash budget over all managers.
    max_failures: int = limits.MAX_FAILURES_DEFAULT
    # Claims of one task, whatever their end: stops endless loops of lost leases.
    max_attempts: int = limits.MAX_ATTEMPTS_DEFAULT
    # Deaths after which one manager gives a task up: by SEGV, ILL, BUS, FPE / by anything else.
    fatal_signal_deaths: int = 2
    other_deaths: int = 3
    # Grace between SIGTERM and the kill of the whole cgroup.
    cancel_grace_s: float = 5
    # A runner that was told to cancel has its grace period and a heartbeat to answer.
    cancel_silence_s: float = 30
    # The agent stops a command at its timeout; this is how late its report may be.
    overdue_grace_s: float = 60
    # Workers of the existing wire fetch resources (1800 s) and upload (600 s) within the attempt.
    exclusive_overdue_grace_s: float = 2460
    # Retry backoff: first wait, doubled per failure up to the cap, with jitter.
    retry_backoff_s: float = 1
    retry_backoff_max_s: float = 300
    # Rows touched per transaction by cancel and sweeps: keeps lock times short.
    sweep_batch: int = 1000

    # --- background jobs ---
    # Reaper and suite sweeps. Beat silent for two periods: the coordinator sweeps by itself.
    sweep_s: float = 5
    beat_silence_periods: int = 2
    # A periodic job that waited this many periods in the queue is dropped: a newer one exists.
    job_expires_periods: int = 2

    # --- tokens and login ---
    # A stolen access token of a manager dies within the hour.
    manager_access_s: float = limits.MAX_ACCESS_TOKEN_LIFETIME_S
    # Existing workers and users cannot refresh, so theirs last a week.
    user_token_s: float = 7 * 24 * 3600
    worker_token_s: float = 7 * 24 * 3600
    # No caller may ask for more than 30 days.
    token_lifetime_max_s: float = limits.MAX_TOKEN_LIFETIME_S
    # A rotated refresh token still works this long for the same session (lost answer).
    refresh_overlap_s: float = 300
    # Revocation reaches every process within this time.
    revocation_cache_s: float = limits.REVOCATION_DELAY_S
    # Attempts a minute per address and user name.
    login_per_minute: int = limits.MAX_LOGINS_PER_MINUTE

    # --- HTTP ---
    # Ordinary requests; one task's spec is at most 64 KiB, so this is generous.
    body_bytes: int = limits.MAX_BODY_BYTES
    # Bulk submits (10,000 tasks in a request, array rows).
    bulk_body_bytes: int = limits.MAX_BULK_BODY_BYTES
    # Requests a second of one user. Without credentials only logins do work, and those are counted
    # by `login_per_minute`.
    user_requests_per_s: int = limits.MAX_REQUESTS_PER_USER_PER_S
    # What a user who was idle may send at once, in seconds of that rate: tools that submit one task
    # per request come in bursts of thousands.
    user_requests_saved_s: float = 60
    # Rows of one page: default and most.
    page_rows: int = 100
    page_rows_max: int = limits.MAX_PAGE_SIZE

    # --- sockets ---
    # Requests of one socket that may be unanswered at the same time.
    socket_in_flight: int = limits.MAX_IN_FLIGHT
    # A request that takes longer is refused as retryable: its manager is about to give up.
    socket_answer_s: float = limits.ANSWER_WITHIN_S
    # Frames a second of one runner, and the burst it may save up.
    socket_frames_per_s: int = limits.MAX_MESSAGES_PER_S
    socket_frames_burst: int = limits.MAX_MESSAGE_BURST
    # Connect to first valid frame.
    handshake_s: float = limits.HANDSHAKE_TIMEOUT_S
    # Frames queued for a peer that does not read before it is cut off.
    socket_send_queue: int = limits.MAX_SEND_QUEUE_MESSAGES

    # --- dependencies ---
    # A request waits this long for a pooled connection, then answers 503: callers retry.
    pool_wait_s: float = 2.5
    # Connections of one process: Django's pool and the asynchronous one.
    django_pool_max: int = 8
    # Batches of claims, reports, beats and events have two lanes each; 8 made them queue here.
    async_pool_max: int = 12
    # No statement of ours needs more; one that does is a bug or an overload.
    statement_timeout_s: float = 15
    lock_timeout_s: float = 2
    idle_in_transaction_s: float = 30
    # Each part of /readyz.
    readiness_s: float = 2

    # --- observability ---
    # One read of the database serves all scrapes of /metrics within this time.
    scrape_cache_s: float = 5
    # Subscriptions of one group.
    webhooks_per_group: int = 20
    # Tries of one delivery: with the doubling waits below the last one is made after a day.
    webhook_tries: int = 14
    webhook_backoff_s: float = 10
    webhook_backoff_max_s: float = 3 * 3600
    # A receiver answers within this time, name lookup and handshake included.
    webhook_answer_s: float = 10
    # So many failed tasks of one suite within so long are a burst.
    burst_failures: int = 10
    burst_window_s: float = 600

    # --- history ---
    metrics_days: int = 7
    metrics_hourly_days: int = 90
    # The event log of a task, counted from its end; active tasks keep theirs.
    events_days: int = 30
    # Deliveries of webhooks that are over.
    webhook_log_days: int = 30


def build_policy(overrides: Mapping[str, float]) -> Policy:
    """Defaults with an installation's overrides; raises PolicyError before anything runs."""
    defaults = Policy()
    kinds = {item.name: item.type for item in fields(defaults)}
    unknown = sorted(set(overrides) - set(kinds))
    if unknown:
        raise PolicyError(f"MITOSIS_POLICY names unknown settings: {', '.join(unknown)}.")
    changes: dict[str, Any] = {}
    for name, number in overrides.items():
        whole = kinds[name] is int
        if whole and not number.is_integer():
            raise PolicyError(f"MITOSIS_POLICY: {name} has to be a whole number.")
        changes[name] = int(number) if whole else number
    policy = replace(defaults, **changes)
    problems = policy_problems(policy)
    if problems:
        raise PolicyError(" ".join(problems))
    return policy


def policy_problems(policy: Policy) -> list[str]:
    """Sentences about numbers that cannot work together; empty when all is well."""
    problems = [
        f"{item.name} has to be positive."
        for item in fields(policy)
        if getattr(policy, item.name) <= 0 and item.name not in _MAY_BE_ZERO
    ]
    rules = (
        (
            policy.lease_ttl_s >= 4 * policy.heartbeat_s,
            "lease_ttl_s has to be at least 4 x heartbeat_s, or one slow minute expires the fleet.",
        ),
        (
            policy.cancel_grace_s < policy.cancel_silence_s,
            "cancel_grace_s has to be below cancel_silence_s, or a polite stop counts as silence.",
        ),
        (
            policy.body_bytes <= policy.bulk_body_bytes,
            "body_bytes may not be above bulk_body_bytes.",
        ),
        (
            policy.lock_timeout_s <= policy.statement_timeout_s,
            "lock_timeout_s may not be above statement_timeout_s.",
        ),
        (
            policy.page_rows <= policy.page_rows_max,
            "page_rows may not be above page_rows_max.",
        ),
        (
            policy.manager_access_s <= policy.token_lifetime_max_s,
            "manager_access_s may not be above token_lifetime_max_s.",
        ),
    )
    return problems + [sentence for holds, sentence in rules if not holds]


_MAY_BE_ZERO = frozenset({"suite_linger_s", "suite_settle_s", "reaper_grace_s"})
