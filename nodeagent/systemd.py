"""Tells systemd how the agent is doing, when there is a systemd that asked. Used by agent."""

import socket

import structlog

log = structlog.stdlib.get_logger(__name__)


def notify(address: str | None, state: str) -> None:
    """Send one sd_notify line such as `READY=1`; without an address nothing happens."""
    if not address:
        return
    # A leading @ stands for the zero byte of an abstract address.
    target = f"\0{address[1:]}" if address.startswith("@") else address
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
            channel.sendto(state.encode(), target)
    except OSError as error:
        log.warning("systemd.not_told", state=state, error=error.strerror)
