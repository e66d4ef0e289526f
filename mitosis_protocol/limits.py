"""How much of anything we take, in one place, with unit and reason.

Both ends check: the sender to fail early with a good message, the receiver because it must. What
an operator may change is a setting (mitosis_site.policy); these are the defaults and the ceilings.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

# --- WebSocket ------------------------------------------------------------------------------
MAX_FRAME_BYTES: Final = 256 * KIB  # bulk payloads go by S3 or are split; bounds a decoder's work
MAX_PREAUTH_FRAME_BYTES: Final = 4 * KIB  # before we know who speaks
HANDSHAKE_TIMEOUT_S: Final = 5  # a half-open handshake holds a socket no longer than this
MAX_MESSAGES_PER_S: Final = 200  # per runner, sustained; 16 workers need about 60
MAX_MESSAGE_BURST: Final = 1000  # a reconnecting agent flushes its outbox at once
MAX_IN_FLIGHT: Final = 64  # requests of one socket being answered at the same time
MAX_SOCKETS_PER_RUNNER: Final = 2  # the old one and the new one while it is superseded
MAX_SEND_QUEUE_MESSAGES: Final = 256  # a reader slower than this is closed, not waited for
MAX_SEND_QUEUE_BYTES: Final = 4 * MIB
REQUEST_TIMEOUT_S: Final = 30  # a manager stops waiting for an answer: the RFC's figure
ANSWER_WITHIN_S: Final = 25  # the coordinator gives up first, so that its refusal is still heard
PING_INTERVAL_S: Final = 20
PING_TIMEOUT_S: Final = 20
MAX_TASKS_PER_FETCH: Final = 256  # one claim statement, one frame
MAX_REPORTS_PER_FRAME: Final = 256
MAX_INVENTORY: Final = 4096  # attempts in one heartbeat: prefetch cap + workers, with room

# --- HTTP -----------------------------------------------------------------------------------
MAX_BODY_BYTES: Final = 2 * MIB  # what the existing server takes
MAX_BULK_BODY_BYTES: Final = 16 * MIB  # bulk submit: 10,000 tasks of 1.6 KiB
MAX_BULK_TASKS: Final = 10_000
MAX_ARRAY_TASKS: Final = 100_000  # one array submit, written with COPY
MAX_LIST_ITEMS: Final = 10_000  # uuids or keys in one */list call
MAX_PAGE_SIZE: Final = 500
MAX_REQUESTS_PER_USER_PER_S: Final = 50
MAX_LOGINS_PER_MINUTE: Final = 10  # per address and user name
MAX_JSON_DEPTH: Final = 64  # nothing we define is deeper than 8; jsonb and parsers recurse

# --- Tasks ----------------------------------------------------------------------------------
MAX_SPEC_BYTES: Final = 64 * KIB  # encoded TaskSpec; four must fit into a frame
MAX_ARGS: Final = 1024
MAX_ENV_BYTES: Final = 128 * KIB  # names and values; Linux refuses one string beyond 128 KiB
MAX_RESOURCES: Final = 1024
MAX_LOCAL_PATH_BYTES: Final = 4095  # PATH_MAX without its NUL
MAX_TAGS: Final = 64
MAX_LABELS: Final = 64
MAX_TAG_BYTES: Final = 256
MAX_NAME_CHARS: Final = 255  # users and groups
MAX_DESCRIPTION_CHARS: Final = 10_000
MAX_ATTACHMENT_KEY_BYTES: Final = 1023  # `<group>/<key>`, the S3 key limit less one
MAX_DEPENDENCIES: Final = 1024
# A suite travels whole in one frame, so its parts, encoded, must fit it together.
MAX_DESCRIPTION_BYTES: Final = 40 * KIB  # 10,000 characters of four bytes
MAX_TAGS_BYTES: Final = 20 * KIB  # all tags, or all labels: 64 of 256 bytes, with room
MAX_HOOKS_BYTES: Final = 144 * KIB  # both hooks together
MAX_SCHEDULE_BYTES: Final = 21 * KIB  # 4,096 cores by number
SUITE_ENVELOPE_BYTES: Final = 8 * KIB  # names, ids, limits, and what a welcome adds
MAX_FAILURES_CEILING: Final = 100
MAX_FAILURES_DEFAULT: Final = 6  # over all managers; each one gives up after 2 or 3
MAX_ATTEMPTS_DEFAULT: Final = 50  # backstop against endless lease loss
MAX_DURATION_S: Final = 2**31 - 1  # 68 years; fits an integer column and a timedelta
MAX_ACTIVE_TASKS_PER_GROUP: Final = 1_000_000
MAX_SUITES_PER_GROUP: Final = 10_000
MAX_ERROR_MESSAGE_CHARS: Final = 4096  # reasons and stderr tails kept in rows
MAX_LOG_LINE_BYTES: Final = 64 * KIB
MAX_LOG_BYTES_PER_ATTEMPT: Final = 1 * GIB

# --- Managers -------------------------------------------------------------------------------
MAX_WORKERS: Final = 256  # per manager; 4,000,000,000 would fit the RFC's u32
MAX_PREFETCH: Final = 1024  # hoarding starves the other hosts of a suite
MAX_PREFETCH_PER_WORKER: Final = 4
SMALL_HOST_PREFETCH: Final = 128  # any host: one fetch then brings 64 short tasks (ADR 0014)
HEARTBEAT_INTERVAL_S: Final = 30
LEASE_TTL_S: Final = 120  # at least four heartbeats, so three may be lost
LEASE_GRACE_S: Final = 5  # the reaper waits this much longer than the lease
SELF_FENCE_MARGIN_S: Final = 20  # the agent's own deadline is this much shorter
MAX_TOKEN_LIFETIME_S: Final = 30 * 86_400
MAX_ACCESS_TOKEN_LIFETIME_S: Final = 3600  # managers; refreshed by rotation
REVOCATION_DELAY_S: Final = 5  # how long a revoked token may still be cached


def max_prefetch(workers: int) -> int:
    """The most tasks a manager with that many workers may hold unstarted."""
    return min(max(MAX_PREFETCH_PER_WORKER * workers, SMALL_HOST_PREFETCH), MAX_PREFETCH)
