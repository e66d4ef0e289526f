"""Why a worker or a command ended, and after how many deaths a host gives a task up.

The RFC's table (section 10.2). The coordinator counts and decides; this is for words in reports,
logs and metrics. Used by nodeagent.pool, nodeagent.core and nodeagent.metrics.
"""

import signal
from typing import Final

import msgspec

# A broken host or a broken binary: another try on the same machine rarely helps.
FATAL_SIGNALS: Final = frozenset({signal.SIGSEGV, signal.SIGILL, signal.SIGBUS, signal.SIGFPE})
FATAL_DEATHS: Final = 2
OTHER_DEATHS: Final = 3


class ExitReason(msgspec.Struct, frozen=True):
    """How a process ended; neither member is set when nobody could tell."""

    code: int | None = None
    signal: int | None = None

    def gives_up_after(self) -> int:
        """Deaths of this kind until the host gives the task up.

        Also for exit 0 and SIGTERM, which the RFC would repeat for ever: a command that ends its
        worker politely ends it every time.
        """
        return FATAL_DEATHS if self.signal in FATAL_SIGNALS else OTHER_DEATHS

    def describe(self) -> str:
        """For people, as part of a sentence about a worker."""
        if self.signal is not None:
            return f"killed by {signal_name(self.signal)}"
        if self.code is not None:
            return f"exit code {self.code}"
        return "unknown exit"


def reason_of(wait_status: int) -> ExitReason:
    """From the raw status of `waitpid`."""
    number = wait_status & 0x7F
    return ExitReason(signal=number) if number else ExitReason(code=wait_status >> 8 & 0xFF)


def signal_name(number: int) -> str:
    """`SIGSEGV`, or the number where it has no name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
