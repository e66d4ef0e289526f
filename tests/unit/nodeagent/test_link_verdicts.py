"""What the end of a socket tells the agent."""

import pytest
from websockets.exceptions import ConnectionClosedError
from websockets.frames import Close

from mitosis_protocol.errors import ErrorCode
from nodeagent.coordinator.verdicts import Verdict, of_close

LOST = ErrorCode.SESSION_LEASE_LOST


@pytest.mark.parametrize(
    ("reason", "last_error", "verdict"),
    [
        ("lease lost", LOST, Verdict.RETRY),
        ("lease lost", None, Verdict.RETRY),  # the error frame was overtaken by the close
        ("", LOST, Verdict.RETRY),  # a server that passes no reason on
        ("superseded", None, Verdict.YIELD),
        ("", None, Verdict.YIELD),
    ],
)
def test_a_lost_lease_is_told_from_a_taken_identity_by_frame_or_reason(
    reason: str, last_error: ErrorCode | None, verdict: Verdict
) -> None:
    closed = ConnectionClosedError(Close(4409, reason), None)
    assert of_close(closed, last_error) is verdict


def test_a_connection_that_broke_without_a_word_is_tried_again() -> None:
    assert of_close(ConnectionClosedError(None, None), None) is Verdict.RETRY
