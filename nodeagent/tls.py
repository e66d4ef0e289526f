"""TLS towards the coordinator: which authority to trust, and which certificate to show.

Made from the settings `tls_ca`, `tls_cert` and `tls_key` of workers and agents. Signed addresses
of the object store are another host: they get the system's authorities and no certificate.
"""

import ssl
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
import structlog

from nodeagent.errors import ConfigInvalid

log = structlog.stdlib.get_logger(__name__)


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """PEM files; None is the system's authorities, or no certificate."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None  # None: in the file of the certificate

    @property
    def auth(self) -> Literal["token", "mtls"]:
        """What a handshake says of how this end proves itself."""
        return "token" if self.cert is None else "mtls"

    def open(self, coordinator: str) -> "ClientTls":
        """Raises ConfigInvalid, with the file but never with what is in it."""
        is_used = any((self.ca, self.cert, self.key))
        if is_used and urlsplit(coordinator).scheme != "https":
            raise ConfigInvalid("tls: these files are for a coordinator with https://")
        if self.key is not None and self.cert is None:
            raise ConfigInvalid("tls_key: a key needs its certificate, tls_cert")
        return ClientTls(self)


class ClientTls:
    """One context for all connections of a process to its coordinator."""

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._context: ssl.SSLContext | None = None
        if files.ca is not None or files.cert is not None:
            self._context = _trusting(files.ca)
            self._show(self._context)

    @property
    def for_http(self) -> ssl.SSLContext | Literal[True]:
        return True if self._context is None else self._context

    def for_socket(self, url: str) -> ssl.SSLContext | bool | None:
        """For the next connection: a certificate that was renewed on disk counts from here on,
        for HTTP as well.
        """
        if not url.startswith("wss:"):
            return None
        if self._context is not None:
            try:
                self._show(self._context)
            except ConfigInvalid as error:
                # Half written, perhaps: what was read last still stands.
                log.warning("tls.not_renewed", reason=str(error))
        return self.for_http

    def _show(self, context: ssl.SSLContext) -> None:
        cert, key = self._files.cert, self._files.key
        if cert is None:
            return
        try:
            # No passphrase can be asked for: a service has no terminal.
            context.load_cert_chain(cert, key, password="")
        except (OSError, ssl.SSLError) as error:
            raise ConfigInvalid(f"tls_cert, tls_key: {_reason(error)} ({cert})") from error


def _trusting(ca: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise ConfigInvalid(f"tls_ca: {_reason(error)} ({ca})") from error


def _reason(error: OSError) -> str:
    """An SSLError is an OSError whose number means nothing."""
    return str(error.reason if isinstance(error, ssl.SSLError) else error.strerror) or "unreadable"
