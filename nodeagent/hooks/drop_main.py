"""Becomes the sandboxed user and then the hook's command.

Started by the hook's launcher with `python -I -S` and an environment of ours: the user's own may
say LD_PRELOAD and is read from a file only now, when no more root code gets loaded by exec.
argv: environment file, uid, gid, then arguments for /usr/bin/env. Standard library only.
"""

import ctypes
import json
import os
import resource
import sys

_PR_SET_NO_NEW_PRIVS = 38  # from <linux/prctl.h>
_ENV_PROGRAM = "/usr/bin/env"


def main() -> None:
    """Never returns; a step that fails ends the process, so nothing runs with more rights."""
    env_file, uid, gid, *argv = sys.argv[1:]
    with open(env_file, encoding="utf-8") as file:  # noqa: PTH123 - pathlib costs 5 ms to import
        env = json.load(file)
    os.unlink(env_file)  # noqa: PTH108 - as above; it may hold the user's secrets
    libc = ctypes.CDLL(None, use_errno=True)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.umask(0o022)  # tasks of other users read what a preparation makes
    os.setgroups([])
    os.setresgid(int(gid), int(gid), int(gid))
    os.setresuid(int(uid), int(uid), int(uid))
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "no_new_privs")
    os.execve(_ENV_PROGRAM, [_ENV_PROGRAM, *argv], env)  # noqa: S606 - as the sandboxed user


if __name__ == "__main__":
    main()
