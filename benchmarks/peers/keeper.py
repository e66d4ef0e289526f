"""Runs one driver and leaves nothing of it behind: `python keeper.py NETWORK SECONDS PROGRAM...`.

Some peers detach their servers into sessions of their own. As the subreaper of everything below it
this process inherits them, so that no descendant can be missed; it ends them all, looks again,
and says in one JSON line what it had to end and whether the driver came to its end in time.

NETWORK is `host`, or `loopback` for peers that listen on every interface whatever they are told:
those get a network of their own, in which there is nothing but a loopback interface.
"""

import ctypes
import fcntl
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

import psutil

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
CLONE_NEWUSER: Final = 0x10000000
CLONE_NEWNET: Final = 0x40000000
SIOCSIFFLAGS: Final = 0x8914
IFF_UP: Final = 0x1
NO_NETWORK: Final = 77  # exit status: this user may not have a network of his own
POLITE_S: Final = 5.0
FINAL_S: Final = 10.0


def main(network: str, limit_s: float, argv: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if network == "loopback":
        _leave_network(libc)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGTERM), 0, 0, 0)
    signal.signal(signal.SIGTERM, _leave)
    is_late = False
    try:
        # Not as a context: told to leave, we end the driver instead of waiting for it.
        driver = subprocess.Popen(argv, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            driver.wait(limit_s)
        except subprocess.TimeoutExpired:
            is_late = True
            driver.kill()
            driver.wait()
    finally:
        ended = end_descendants()
    said = {"status": driver.returncode, "is_late": is_late, "ended": ended}
    os.write(1, json.dumps(said).encode() + b"\n")


def _leave_network(libc: ctypes.CDLL) -> None:
    """As root at once; others need a user namespace, in which they remain who they are."""
    user, group = os.getuid(), os.getgid()
    if libc.unshare(CLONE_NEWNET) != 0:
        if libc.unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0:
            raise SystemExit(NO_NETWORK)
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))


def end_descendants() -> list[str]:
    """End them, politely at first; their names. Raises RuntimeError when one cannot be ended."""
    names: list[str] = []
    began = time.monotonic()
    while left := _descendants():
        age = time.monotonic() - began
        if age > POLITE_S + FINAL_S:
            raise RuntimeError(f"still there: {[one.pid for one in left]}")
        if not names:
            names = [_name(one) for one in left]
        _signal(left, signal.SIGTERM if age < POLITE_S else signal.SIGKILL)
        time.sleep(0.1)
    return names


def _descendants() -> list[psutil.Process]:
    """Those that are alive; whoever has ended is reaped, as its parent may be gone."""
    alive = []
    for one in psutil.Process().children(recursive=True):
        try:
            if one.status() != psutil.STATUS_ZOMBIE:
                alive.append(one)
            elif one.ppid() == os.getpid():
                os.waitpid(one.pid, os.WNOHANG)
        except (psutil.NoSuchProcess, ChildProcessError):
            continue
    return alive


def _signal(processes: list[psutil.Process], number: signal.Signals) -> None:
    for one in processes:
        try:
            one.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _name(process: psutil.Process) -> str:
    try:
        return process.name()
    except psutil.NoSuchProcess:
        return "ended meanwhile"


def _leave(_number: int, _frame: object) -> None:
    raise SystemExit(1)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3:])
