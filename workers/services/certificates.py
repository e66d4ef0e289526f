"""Client certificates of direct workers, where the installation wants them.

A TLS proxy verifies the certificate and puts what identifies it (its fingerprint, or a name) into
the header `MITOSIS_MTLS_HEADER`. What was shown at the registration is what the worker has to show
from then on, on the socket and on HTTP; one that was registered without a certificate needs one in
the name of its uuid. The token is needed as well: whoever steals one of the two lacks the other.
"""

from collections.abc import Sequence
from typing import Final

from django.conf import settings

from accounts.identity import Identity
from core.errors import AuthenticationFailed, InvalidInput
from core.pg import get_pool, load_sql
from mitosis_protocol.errors import ErrorCode

_CERTIFICATE: Final = load_sql("workers", "control_certificate")
MAX_CHARS: Final = 512  # of what a proxy says of a certificate


class MtlsRequired(AuthenticationFailed):
    """The installation wants this worker's client certificate, and there is none."""

    code = ErrorCode.AUTH_MTLS_REQUIRED


def certificate_to_bind(presented: str | None) -> str | None:
    """What a registration is bound to. Raises InvalidInput for what is no certificate's name."""
    if not settings.MTLS_HEADER or not presented:
        return None
    if len(presented) > MAX_CHARS:
        raise InvalidInput(f"{settings.MTLS_HEADER}: longer than {MAX_CHARS} characters")
    return presented


async def check_certificate(identity: Identity, presented: Sequence[str]) -> None:
    """Raises MtlsRequired unless exactly the worker's own was presented."""
    rows = await get_pool().fetch(_CERTIFICATE, {"runner_id": identity.id})
    expected = next((row[0] for row in rows if row[0]), identity.subject)
    if list(presented) != [expected]:
        raise MtlsRequired("a client certificate of this worker is needed")
