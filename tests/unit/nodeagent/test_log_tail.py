"""Live output: what is sent again is what was sent."""

from pathlib import Path
from uuid import uuid4

import pytest

from mitosis_protocol.specs import TaskSpec
from nodeagent.errors import CoordinatorUnavailable
from nodeagent.worker.comm import TaskOffer
from nodeagent.worker.log_tail import LogTail
from tests.fakes.worker_comm import FakeComm


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "stdout"


def tail_of(comm: FakeComm, file: Path) -> LogTail:
    offer = TaskOffer(
        attempt_id=1, uuid=uuid4(), timeout_s=60.0, spec=TaskSpec(args=["x"]), live_logs=True
    )
    return LogTail(comm, offer, {"stdout": file})


def print_to(file: Path, data: bytes) -> None:
    with file.open("ab") as more:
        more.write(data)


async def test_a_piece_without_an_answer_is_repeated_as_it_was(file: Path):
    """The lost one may be stored late, and would cut what is at its place by then."""
    comm = FakeComm()
    tail = tail_of(comm, file)
    comm.troubles["log"] = [CoordinatorUnavailable("no answer")]
    print_to(file, b"first\n")
    await tail.finish()
    assert comm.chunks == []
    print_to(file, b"second\n")
    await tail.finish()
    assert [(chunk.offset, chunk.data) for chunk in comm.chunks] == [
        (0, b"first\n"),
        (6, b"second\n"),
    ]
