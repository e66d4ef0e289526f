"""Which troubles of a coordinator are waited out, and for how long."""

import pytest

from mitosis_client import outage
from mitosis_client.errors import CoordinatorUnreachable, NotFound, ServerError
from mitosis_client.outage import Outage, patiently

AWAY = CoordinatorUnreachable("nobody at home")


def test_an_absence_is_told_once_and_its_end_too():
    told: list[str] = []
    waiting = Outage(told.append)
    waiting.over()
    for _ in range(3):
        waiting.bear(AWAY)
    waiting.bear(ServerError("no database", status=503))
    waiting.over()
    assert len(told) == 2
    assert "still waiting" in told[0]
    assert "is back" in told[1]


@pytest.mark.parametrize(
    "error", [NotFound("gone", status=404), ServerError("a bug", status=500)], ids=repr
)
def test_what_does_not_pass_by_itself_is_raised_at_once(error: NotFound):
    with pytest.raises(type(error)):
        Outage().bear(error)


def test_an_absence_without_end_is_raised_at_last():
    waiting = Outage(limit_s=-1.0)
    waiting.bear(AWAY)
    with pytest.raises(CoordinatorUnreachable):
        waiting.bear(AWAY)


def test_a_value_is_asked_for_until_somebody_answers(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(outage, "PAUSE_S", 0.0)
    answers: list[CoordinatorUnreachable | str] = [AWAY, AWAY, "value"]

    def read() -> str:
        found = answers.pop(0)
        if isinstance(found, str):
            return found
        raise found

    assert patiently(read) == "value"
    assert not answers
