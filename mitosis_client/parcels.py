"""Calls that do not fit a task's spec travel as attachments of the group."""

import tempfile
import uuid
from pathlib import Path
from typing import Any

from mitosis_client.client import Client
from mitosis_client.remote_call import CALL_FILE


class Parcels:
    """Uploads bytes and says how a task finds them."""

    def __init__(self, client: Client, group: str) -> None:
        self._client = client
        self._group = group

    def send(self, data: bytes, name: str = CALL_FILE) -> dict[str, Any]:
        """The resource to put into a task's spec; `name` is what the task finds it by."""
        key = f"executor/{uuid.uuid4()}-{name}"
        with tempfile.TemporaryDirectory(prefix="mitosis-call-") as folder:
            file = Path(folder) / name
            file.write_bytes(data)
            self._client.files.upload_attachment(self._group, key, file)
        return {"remote_file": {"Attachment": {"key": key}}, "local_path": name}
