"""Picks loopback ports, keeps the ones of the last start when they are still free.

A port chosen here is claimed until this process ends, so that two stacks that start at the same
moment never choose the same one: the servers bind it only seconds later.
"""

import atexit
import random
import socket
from collections.abc import Iterable, Mapping

from mitosis_stack.errors import StackError
from mitosis_stack.settings import DEFAULT_PORT

LOOPBACK = "127.0.0.1"
# Below the range from which the kernel lends ports to outgoing connections (32768 and up),
# so a port chosen now is not lent to somebody before the child binds it.
PICK_FROM = range(20_000, 30_000)

# Held for the life of the process. Abstract socket names: no file to clean up, gone with their
# owner, and one name space per network name space, as the ports themselves.
_claims: dict[int, socket.socket] = {}


@atexit.register
def _give_back() -> None:
    for claim in _claims.values():
        claim.close()


def take(port: int) -> bool:
    """Claim `port` for this process if nobody listens on it and no other stack chose it."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return _claim(port)


def choose_http_port(asked: int | None, remembered: int | None) -> int:
    """The asked port or an error; without a wish the last one, the default, or any free one.

    0 asks for any free one, as everywhere; the last one is as good as any.
    """
    if asked == 0:
        return pick_free(["http"], {} if remembered is None else {"http": remembered})["http"]
    if asked is not None:
        if not take(asked):
            msg = f"Port {asked} is taken by another program; choose another with --port."
            raise StackError(msg)
        return asked
    for port in (remembered, DEFAULT_PORT):
        if port is not None and take(port):
            return port
    return pick_free(["http"], {})["http"]


def pick_free(names: Iterable[str], remembered: Mapping[str, int]) -> dict[str, int]:
    """A free port per name, no port twice: the remembered one while it is free."""
    chosen: dict[str, int] = {}
    for name in names:
        last = remembered.get(name)
        is_kept = last is not None and last not in chosen.values() and take(last)
        chosen[name] = last if last is not None and is_kept else _take_any()
    return chosen


def _take_any() -> int:
    for port in random.sample(PICK_FROM, 200):
        # Ours already: chosen a moment ago for another name, and nobody may listen on it yet.
        if port not in _claims and take(port):
            return port
    msg = f"No free port on {LOOPBACK} between {PICK_FROM.start} and {PICK_FROM.stop}."
    raise StackError(msg)


def _claim(port: int) -> bool:
    if port in _claims:
        return True
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0mitosis-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims[port] = claim
    return True
