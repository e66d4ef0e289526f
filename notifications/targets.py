"""Where a webhook may go. Users name receivers; this keeps them away from our own network.

A target is an https address whose every resolved IP is public. Hosts named by the operator
(MITOSIS_WEBHOOK_HOSTS) may also be reached by http and at private addresses. The address that was
checked is the one that is connected to: a name that resolves differently a moment later gains
nothing. Redirects are never followed.
"""

import ipaddress
import socket
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from core.errors import InvalidInput
from mitosis_protocol.errors import InvalidValue

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Addresses that lead to an IPv4 one behind our back: NAT64, 6to4, Teredo.
_TUNNELS: Final = tuple(
    ipaddress.ip_network(net)
    for net in ("64:ff9b::/96", "64:ff9b:1::/48", "2002::/16", "2001::/32")
)


class TargetRefused(InvalidValue):
    """The address may not be called; says why."""


@dataclass(frozen=True, slots=True)
class Target:
    """A checked address. `is_trusted`: named by the operator."""

    scheme: str
    host: str
    port: int
    path: str  # with the query
    is_trusted: bool


def parse_target(url: str, *, trusted_hosts: Collection[str]) -> Target:
    """Take an address apart; raises TargetRefused."""
    if any(ord(character) <= 32 or ord(character) >= 127 for character in url):
        raise TargetRefused("it has spaces or characters that belong percent-encoded")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise TargetRefused("it is not an address") from None
    host = (parts.hostname or "").rstrip(".")
    if not host:
        raise TargetRefused("it names no host")
    if parts.username is not None or parts.password is not None:
        raise TargetRefused("it may not carry a user or a password")
    if parts.fragment:
        raise TargetRefused("it may not have a fragment")
    is_trusted = host in {trusted.lower() for trusted in trusted_hosts}
    if parts.scheme != "https" and not (parts.scheme == "http" and is_trusted):
        raise TargetRefused("it has to begin with https://")
    if not is_trusted and _is_literal(host):
        _check(ipaddress.ip_address(host))
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    default = 443 if parts.scheme == "https" else 80
    return Target(parts.scheme, host, port or default, path, is_trusted)


def checked_url(url: str, *, trusted_hosts: Collection[str]) -> str:
    """The same text, for a body's field. Raises InvalidInput, which names the field."""
    try:
        parse_target(url, trusted_hosts=trusted_hosts)
    except TargetRefused as refusal:
        raise InvalidInput(f"url: {refusal}") from refusal
    return url


def resolve(target: Target) -> str:
    """An IP to connect to. Raises TargetRefused if any is private, OSError if there is none."""
    found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not target.is_trusted:
        for text in addresses:
            _check(ipaddress.ip_address(text.partition("%")[0]))
    return addresses[0]


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check(address: Address) -> None:
    mapped = getattr(address, "ipv4_mapped", None)
    if mapped is not None:
        address = mapped
    is_tunnel = any(address in net for net in _TUNNELS if net.version == address.version)
    if is_tunnel or not address.is_global or address.is_multicast:
        raise TargetRefused("its host is at a private or reserved address")
