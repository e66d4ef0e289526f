"""Submit once: an Idempotency-Key remembers what was answered to the same request.

Called by tasks.services.submit and array inside their transaction, so the answer and the tasks
appear together or not at all. Two equal requests at the same time: the second waits for the first.
"""

import hashlib
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec
from django.db import transaction

from core.errors import Conflict, InvalidInput
from core.faults import fault
from mitosis_protocol.errors import ErrorCode
from tasks.models import Submission

Answer = TypeVar("Answer")

MAX_KEY_CHARS: Final = 255


class Idempotency(msgspec.Struct, frozen=True):
    """The caller's key and the hash of the request it stands for."""

    user_id: int
    key: str
    request_sha256: bytes

    @classmethod
    def of(cls, *, user_id: int, key: str, body: bytes) -> "Idempotency":
        """From a request's raw body; raises InvalidInput for a key nobody should send."""
        if not 0 < len(key) <= MAX_KEY_CHARS or "\x00" in key:
            raise InvalidInput(f"Idempotency-Key must have 1 to {MAX_KEY_CHARS} characters")
        return cls(user_id, key, hashlib.sha256(body).digest())


def once(
    idempotency: Idempotency | None,
    answer_type: type[Answer],
    submit: Callable[[], Answer],
    *,
    prepare: Callable[[], None] | None = None,
) -> Answer:
    """Run `prepare` and `submit` in a transaction, or answer as the first time.

    Raises Conflict when the key was used for a different request.
    """

    def run() -> Answer:
        if prepare is not None:
            prepare()
        return submit()

    with transaction.atomic():
        answer = run() if idempotency is None else _once(idempotency, answer_type, run)
        fault("submit.before_commit")
    fault("submit.after_commit_before_reply")
    return answer


def _once(
    idempotency: Idempotency, answer_type: type[Answer], submit: Callable[[], Answer]
) -> Answer:
    row, is_new = Submission.objects.get_or_create(
        user_id=idempotency.user_id,
        idempotency_key=idempotency.key,
        defaults={"request_sha256": idempotency.request_sha256},
    )
    if not is_new:
        if bytes(row.request_sha256) != idempotency.request_sha256 or row.response is None:
            raise Conflict(
                "this Idempotency-Key was used for a different request",
                code=ErrorCode.IDEMPOTENCY_MISMATCH,
            )
        return msgspec.msgpack.decode(bytes(row.response), type=answer_type)
    answer = submit()
    row.response = msgspec.msgpack.encode(answer)
    row.save(update_fields=["response"])
    return answer
