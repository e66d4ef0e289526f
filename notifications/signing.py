"""Secrets and signatures of webhooks. Pure.

A secret is derived from the installation's own key, the webhook and a version: nothing is stored,
so a copy of the database signs nothing. The scheme is that of Standard Webhooks (v1): receivers
may use any of its libraries, or the twelve lines in docs/webhooks.md.
"""

import base64
import hashlib
import hmac
from typing import Final
from uuid import UUID

PREFIX: Final = "whsec_"


def secret_of(*, key: str, webhook: UUID, version: int) -> str:
    """What the owner is shown once and the receiver keeps."""
    text = f"mitosis.webhook:{webhook}:{version}".encode()
    derived = hmac.new(key.encode(), text, hashlib.sha256).digest()
    return PREFIX + base64.b64encode(derived).decode()


def signature_of(*, secret: str, message_id: str, timestamp: int, body: bytes) -> str:
    """The header's value: covers the id and the time, so neither can be replaced."""
    raw = base64.b64decode(secret.removeprefix(PREFIX))
    signed = f"{message_id}.{timestamp}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(raw, signed, hashlib.sha256).digest()).decode()
