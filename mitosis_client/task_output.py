"""All that an ended task said: the live log, and from its archive what the log does not have yet.

The last chunk of a live log may be stored a moment after the task has ended; the `std-log`
archive is uploaded before the end is told, so it is whole by then.
"""

import io
import tarfile
from collections.abc import Iterator
from typing import Final

from mitosis_client.client import Client
from mitosis_client.errors import MitosisError, NotFound

ARCHIVE: Final = "std-log"
SMALL_BYTES: Final = 1 << 20  # fetching that much more is cheaper than a lost last line


def read_output(client: Client, uuid: str, stream: str) -> Iterator[bytes]:
    """`stdout` or `stderr` of a task that has ended, piece by piece."""
    offset = 0
    while True:
        part = client.log(uuid, stream, offset=offset)
        offset = part.next_offset
        if part.data:
            yield part.data
        if part.is_complete or not part.data:
            break
    yield missing_tail(client, uuid, stream, offset)


def missing_tail(client: Client, uuid: str, stream: str, offset: int) -> bytes:
    """What the archive has behind `offset`; nothing where there is no archive, or a large one."""
    sizes = {one.content_type: one.size for one in client.tasks.show(uuid).artifacts}
    size = sizes.get(ARCHIVE)
    if size is None or (offset and size > SMALL_BYTES):
        return b""
    try:
        data = client.files.artifact(uuid, ARCHIVE)
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:gz") as opened:
            member = opened.extractfile(f"{ARCHIVE}/{stream}.log")
            return b"" if member is None else member.read()[offset:]
    except (NotFound, KeyError):  # deleted, or the stream said nothing
        return b""
    except tarfile.TarError as error:
        raise MitosisError(f"the {ARCHIVE} archive of {uuid} cannot be read: {error}") from error
