"""Moving bytes to and from the store by URLs that carry their own authorisation.

No token is ever sent here and no redirect followed. Called by resources, artifacts and hooks;
memory is bounded by one block, whatever the size of the file.
"""

import base64
import re
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path

import httpx2
import msgspec

from nodeagent.errors import CoordinatorUnavailable, ResourceMissing, ResourceRefused
from nodeagent.worker.comm import RemoteLocation
from nodeagent.worker.http_client import (
    READ_TIMEOUT_S,
    make_client,
    raise_if_transient,
    raise_if_transient_status,
    unavailable,
)
from nodeagent.worker.plain_puts import PlainPuts
from nodeagent.worker.threads import run_blocking

# One thread hop per block costs about 0.1 ms; at 1 MiB that disappears beside the copy.
_BLOCK_BYTES = 1 << 20
_MD5_BYTES = 16
_MD5_HEX = re.compile(r"[0-9a-f]{32}")
_ENCRYPTION = "x-amz-server-side-encryption"


class StoredSums(msgspec.Struct, frozen=True):
    """What the store says about an object's content: MD5 in hexadecimal, where it is one."""

    md5: str | None = None


class UploadRefused(Exception):
    """The store will not take this body at this URL; a fresh URL may help."""


class Transfers:
    """A pool of connections to the store."""

    def __init__(self) -> None:
        self._opened: httpx2.AsyncClient | None = None
        self._puts = PlainPuts(READ_TIMEOUT_S)

    @property
    def _client(self) -> httpx2.AsyncClient:
        # Made at the first use: its TLS context takes 20 ms and megabytes that most workers of a
        # host would never need.
        if self._opened is None:
            self._opened = make_client()
        return self._opened

    async def close(self) -> None:
        self._puts.close()
        if self._opened is not None:
            await self._opened.aclose()

    async def download(self, source: RemoteLocation, write: Callable[[bytes], None]) -> StoredSums:
        """Stream exactly `source.size` bytes into `write`, which runs in a thread.

        Returns the store's own sums for whoever wants to compare. Raises ResourceMissing,
        ResourceRefused, or CoordinatorUnavailable to try again.
        """
        try:
            async with self._client.stream("GET", source.url) as response:
                raise_if_transient(response)
                if response.status_code == 404:
                    raise ResourceMissing("the store has no such object")
                if not response.is_success:
                    raise ResourceRefused(f"the store answered {response.status_code}")
                await _copy(response.aiter_raw(_BLOCK_BYTES), source.size, write)
                return stored_sums(response.headers)
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise ResourceRefused("the resource's address is unusable") from error
        except httpx2.HTTPError as error:
            raise unavailable(error) from error

    async def upload(self, url: str, source: bytes | Path, size: int) -> None:
        """PUT some bytes or a file with its length announced.

        Raises UploadRefused, or CoordinatorUnavailable to try again.
        """
        if isinstance(source, bytes) and self._puts.takes(url):
            status = await self._put_plainly(url, source)
        else:
            status = await self._put(url, source, size)
        if status // 100 != 2:
            raise UploadRefused(f"the store answered {status}")

    async def _put_plainly(self, url: str, data: bytes) -> int:
        try:
            answer = await self._puts.put(url, data)
        except ValueError as error:
            raise UploadRefused("the upload address is unusable") from error
        raise_if_transient_status(answer.status, answer.retry_after)
        return answer.status

    async def _put(self, url: str, source: bytes | Path, size: int) -> int:
        headers = {"Content-Length": str(size)}
        content = source if isinstance(source, bytes) else _blocks(source)
        try:
            response = await self._client.put(url, content=content, headers=headers)
        except (httpx2.UnsupportedProtocol, httpx2.InvalidURL) as error:
            raise UploadRefused("the upload address is unusable") from error
        except httpx2.HTTPError as error:
            raise unavailable(error) from error
        raise_if_transient(response)
        return response.status_code


def stored_sums(headers: Mapping[str, str]) -> StoredSums:
    """`Content-MD5`, or the ETag of an object that was put whole and is not encrypted by a key.

    A multi-part ETag has a dash; one of an object under KMS or a customer's key looks like an
    MD5 and is none.
    """
    declared = headers.get("content-md5")
    if declared is not None:
        try:
            digest = base64.b64decode(declared, validate=True)
        except ValueError:
            digest = b""
        if len(digest) == _MD5_BYTES:
            return StoredSums(md5=digest.hex())
    is_under_a_key = headers.get(_ENCRYPTION, "AES256") != "AES256"
    if is_under_a_key or f"{_ENCRYPTION}-customer-algorithm" in headers:
        return StoredSums()
    etag = headers.get("etag", "").strip('"').lower()
    return StoredSums(md5=etag) if _MD5_HEX.fullmatch(etag) else StoredSums()


async def _copy(blocks: AsyncIterator[bytes], size: int, write: Callable[[bytes], None]) -> None:
    received = 0
    async for block in blocks:
        received += len(block)
        if received > size:
            raise ResourceRefused(f"the resource is longer than the {size} bytes announced")
        await run_blocking(write, block)
    if received < size:
        raise CoordinatorUnavailable(f"the resource ended after {received} of {size} bytes")


async def _blocks(file: Path) -> AsyncIterator[bytes]:
    source = await run_blocking(file.open, "rb")
    try:
        while block := await run_blocking(source.read, _BLOCK_BYTES):
            yield block
    finally:
        await run_blocking(source.close)
