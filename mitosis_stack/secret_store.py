"""The stack's own secrets: made on the first start, kept in one private file."""

import json
import secrets
from dataclasses import asdict, dataclass

from mitosis_stack.layout import DataDir, read_json, write_private


@dataclass(frozen=True)
class StackSecrets:
    postgres_password: str
    s3_access_key: str
    s3_secret_key: str
    s3_internal_key: str


def load_secrets(data: DataDir) -> StackSecrets:
    """Read them, or make and store them before anything uses them."""
    stored = read_json(data.secrets)
    if stored is not None:
        return StackSecrets(**stored)
    # Hex: safe inside URLs, TOML and JSON without quoting.
    fresh = StackSecrets(
        postgres_password=secrets.token_hex(24),
        s3_access_key=secrets.token_hex(10),
        s3_secret_key=secrets.token_hex(24),
        s3_internal_key=secrets.token_hex(24),
    )
    write_private(data.secrets, json.dumps(asdict(fresh)))
    return fresh
