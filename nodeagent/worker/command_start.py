"""Starting a command as `/usr/bin/env <args>` would, but without that extra program where possible.

Existing workers run every task through env: leading `NAME=value` arguments, its options and its
complaints are part of what tasks rely on, so whatever is not a plain program found on the task's
own PATH still goes through it. Called by launcher_main; the standard library only.
"""

import contextlib
import functools
import os
import signal
import stat
from collections.abc import Mapping, Sequence

ENV_PROGRAM = "/usr/bin/env"
_APPEND = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
_NO_INPUT = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)


def spawn(request: Mapping[str, object], shared_env: object, outputs: Sequence[int]) -> int:
    """The pid of the new session leader. `outputs`: stdout and stderr, unless paths were given."""
    argv, own_env = request["argv"], request["env"]
    if not (isinstance(argv, list) and isinstance(own_env, dict) and isinstance(shared_env, dict)):
        raise TypeError("argv must be a list, and an environment an object")
    env = {**shared_env, **own_env}
    actions = _file_actions(request, outputs)
    program = find_program(argv, env)
    if program is not None:
        # Whatever is wrong with the file, env says it in its own words.
        with contextlib.suppress(OSError):
            return _posix_spawn(program, argv, env, actions)
    return _posix_spawn(ENV_PROGRAM, [ENV_PROGRAM, *argv], env, actions)


def find_program(argv: Sequence[str], env: Mapping[str, str]) -> str | None:
    """The file that env would execute, if that is all that env would do."""
    if not argv or not argv[0] or argv[0].startswith("-") or "=" in argv[0]:
        return None
    name = argv[0]
    if "/" in name:
        return name  # the kernel says whether it can be executed
    for directory in env.get("PATH", "").split(":"):
        if not directory.startswith("/"):
            return None
        candidate = f"{directory}/{name}"
        if _is_program(candidate):
            return candidate
    return None


def _is_program(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - a Path object costs as much as the call
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(mode) and os.access(path, os.X_OK)


def _file_actions(
    request: Mapping[str, object], outputs: Sequence[int]
) -> list[tuple[object, ...]]:
    if len(outputs) == 2:
        stdout, stderr = outputs
        return [
            _NO_INPUT,
            (os.POSIX_SPAWN_DUP2, stdout, 1),
            (os.POSIX_SPAWN_DUP2, stderr, 2),
        ]
    paths = [request.get("stdout") or os.devnull, request.get("stderr") or os.devnull]
    return [
        _NO_INPUT,
        *((os.POSIX_SPAWN_OPEN, n, path, _APPEND, 0o600) for n, path in enumerate(paths, 1)),
    ]


def _posix_spawn(
    program: str, argv: list[str], env: Mapping[str, str], actions: list[tuple[object, ...]]
) -> int:
    return os.posix_spawn(
        program,
        argv,
        env,
        file_actions=actions,
        setsid=True,
        setsigmask=(),
        setsigdef=_ignored_signals(),
    )


@functools.cache
def _ignored_signals() -> tuple[int, ...]:
    """Those a command must not inherit as ignored; handlers end with the exec anyway.

    Looked up once, after the launcher has set its own; naming all 62 costs 12 us per command.
    """
    signals = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
    return tuple(each for each in signals if signal.getsignal(each) == signal.SIG_IGN)
