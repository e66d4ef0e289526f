"""What can go wrong with the stack, in words an operator can act on.

Every StackError is printed as one line without a traceback by the command line.
"""


class StackError(Exception):
    """A problem with a sentence that says what happened and what to do."""


class AlreadyRunning(StackError):
    """Another supervisor holds this data directory."""


class BinaryMissing(StackError):
    """A wheel does not carry a program for this platform."""


class ChildFailed(StackError):
    """A part did not start or keeps dying."""


class StopRequested(Exception):
    """A signal asked the supervisor to stop while it was waiting for something."""
