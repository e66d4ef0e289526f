"""Bytes that do not pass through the coordinator: artifacts and attachments by signed URL.

Connections of their own, without our token: the URL authorises itself, and its host is not ours.
"""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import httpx2

from mitosis_client.calls import accounts, tasks
from mitosis_client.errors import MitosisError
from mitosis_client.transport import refusal, timeouts, tls_for, unreachable

if TYPE_CHECKING:
    from mitosis_client.client import Client

CHUNK: Final = 1 << 18
STORAGE: Final = "the coordinator's storage"
Progress = Callable[[int], None]


class Files:
    """Up- and downloads of one client."""

    def __init__(self, client: "Client") -> None:
        self._client = client
        self._http: dict[str, httpx2.Client] = {}  # by scheme, made when first needed

    def close(self) -> None:
        for http in self._http.values():
            http.close()
        self._http.clear()

    def artifact(self, uuid: str, content_type: str) -> bytes:
        """An archive of a task in memory: `result`, `exec-log` or `std-log`, a tar.gz."""
        return b"".join(self._chunks(self._client.send(tasks.artifact(uuid, content_type)).url))

    def download_artifact(
        self, uuid: str, content_type: str, to: Path, progress: Progress | None = None
    ) -> int:
        return self._save(self._client.send(tasks.artifact(uuid, content_type)).url, to, progress)

    def download_attachment(
        self, group: str, key: str, to: Path, progress: Progress | None = None
    ) -> int:
        url = self._client.send(accounts.download_attachment(group, key)).url
        return self._save(url, to, progress)

    def upload_attachment(
        self, group: str, key: str, file: Path, progress: Progress | None = None
    ) -> int:
        """The file's bytes under that key; returns how many."""
        with file.open("rb") as opened:
            sha256 = hashlib.file_digest(opened, "sha256").hexdigest()
        size = file.stat().st_size
        call = accounts.upload_attachment(group, key, size=size, sha256=sha256)
        url = self._client.send(call).url
        headers = {"Content-Length": str(size)}
        try:
            response = self._to(url).put(url, content=_read(file, progress), headers=headers)
        except httpx2.TransportError as error:
            raise unreachable(_host(url), error, STORAGE) from error
        if response.status_code >= 300:
            raise refusal(response)
        return size

    def _save(self, url: str, to: Path, progress: Progress | None) -> int:
        """Beside its name first, so that a broken download leaves no half file."""
        part = to.with_name(f".{to.name}.part")
        size = 0
        try:
            with part.open("wb") as opened:
                for chunk in self._chunks(url):
                    opened.write(chunk)
                    size += len(chunk)
                    if progress is not None:
                        progress(len(chunk))
            part.replace(to)
        except OSError as error:
            raise MitosisError(f"{to}: {error.strerror}") from error
        finally:
            part.unlink(missing_ok=True)
        return size

    def _chunks(self, url: str) -> Iterator[bytes]:
        try:
            with self._to(url).stream("GET", url) as response:
                if response.status_code >= 300:
                    response.read()
                    raise refusal(response)
                yield from response.iter_raw(CHUNK)
        except httpx2.TransportError as error:
            raise unreachable(_host(url), error, STORAGE) from error

    def _to(self, url: str) -> httpx2.Client:
        scheme = url.partition(":")[0]
        if scheme not in self._http:
            self._http[scheme] = httpx2.Client(timeout=timeouts(120), verify=tls_for(url))
        return self._http[scheme]


def _read(file: Path, progress: Progress | None) -> Iterator[bytes]:
    with file.open("rb") as opened:
        while chunk := opened.read(CHUNK):
            yield chunk
            if progress is not None:
                progress(len(chunk))


def _host(url: str) -> str:
    """Without the query: it holds the signature."""
    return str(httpx2.URL(url).copy_with(query=None, path="/"))
