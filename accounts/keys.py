"""The process's signing keys, parsed once from the settings that mitosis_site read from disk.

`MITOSIS_EXTRA_PUBLIC_KEY_PEMS` (optional) holds public keys that are being rotated in or out.
"""

import functools
from collections.abc import Sequence
from typing import cast

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    load_pem_private_key,
    load_pem_public_key,
)
from django.conf import settings

from accounts.tokens import KeyRing, make_key_ring


def key_ring() -> KeyRing:
    """What to sign and verify tokens with."""
    others = cast("Sequence[bytes]", getattr(settings, "MITOSIS_EXTRA_PUBLIC_KEY_PEMS", ()))
    return _parse(settings.MITOSIS_PRIVATE_KEY_PEM, tuple(others))


@functools.lru_cache(maxsize=4)  # keyed by the text, so a test that swaps settings gets its own
def _parse(private_pem: bytes, public_pems: tuple[bytes, ...]) -> KeyRing:
    private = load_pem_private_key(private_pem, password=None)
    others = [load_pem_public_key(pem) for pem in public_pems]
    if not isinstance(private, Ed25519PrivateKey):
        raise TypeError("the signing key is not Ed25519")
    if not all(isinstance(key, Ed25519PublicKey) for key in others):
        raise TypeError("an additional public key is not Ed25519")
    return make_key_ring(private, *cast("list[Ed25519PublicKey]", others))
