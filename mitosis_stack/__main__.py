"""The background half of `mitosis up --detach`: runs the supervisor and reports through a pipe."""

import argparse
import contextlib
import os
import sys
from pathlib import Path

from mitosis_stack.commands import LINE_BREAK, up
from mitosis_stack.errors import StackError
from mitosis_stack.settings import read_settings


def main() -> int:
    parser = argparse.ArgumentParser(prog="mitosis_stack")
    parser.add_argument("--data-dir", type=Path, required=True)
    parser.add_argument("--port", type=int)
    parser.add_argument("--agents", type=int, default=0)
    parser.add_argument("--server", default="uvicorn")
    parser.add_argument("--notify", type=int, required=True)
    flags = parser.parse_args()
    os.set_inheritable(flags.notify, False)
    settings = read_settings(
        data_dir=flags.data_dir, port=flags.port, agents=flags.agents, asgi_server=flags.server
    )
    starter = _Starter(flags.notify)
    try:
        return up(settings, starter.say, lambda _credentials: starter.ready())
    except StackError as error:
        starter.fail(str(error))
        return 1


class _Starter:
    """The waiting `mitosis up --detach`; it leaves as soon as it has heard `ready` or `error`."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def say(self, text: str) -> None:
        print(text, flush=True)  # noqa: T201 - supervisor.log
        self._send(f"say {text}")

    def ready(self) -> None:
        self._send("ready")

    def fail(self, text: str) -> None:
        print(text, file=sys.stderr, flush=True)  # noqa: T201 - supervisor.log
        self._send("error " + text.replace("\n", LINE_BREAK))

    def _send(self, line: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._pipe, f"{line}\n".encode())


if __name__ == "__main__":
    sys.exit(main())
