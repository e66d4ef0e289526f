"""When a call is made again: only when that cannot do it twice."""

import httpx2
import pytest

from mitosis_client.calls import accounts, suites, tasks
from mitosis_client.calls.call import is_last
from mitosis_client.errors import InvalidRequest, NotFound, ServerError, UnexpectedAnswer
from mitosis_client.models import exit_code
from mitosis_client.transport import Patience, read_answer, refusal


def answer(status: int, **headers: str) -> httpx2.Response:
    return httpx2.Response(status, headers=headers)


def test_a_call_that_may_have_arrived_is_repeated_only_if_that_is_harmless():
    lost = httpx2.ReadError("gone")
    assert Patience(is_repeatable=True).after_error(lost) is not None
    assert Patience(is_repeatable=False).after_error(lost) is None
    assert Patience(is_repeatable=False).after_error(httpx2.ConnectError("refused")) is not None


def test_busy_answers_are_waited_out_and_refusals_stand():
    for status in (502, 503, 504):
        assert Patience(is_repeatable=True).after_answer(answer(status)) is not None
        assert Patience(is_repeatable=False).after_answer(answer(status)) is None
    assert Patience(is_repeatable=False).after_answer(answer(429)) is not None
    for status in (200, 400, 404, 409, 500):
        assert Patience(is_repeatable=True).after_answer(answer(status)) is None


def test_patience_ends_and_listens_to_retry_after():
    patience = Patience(is_repeatable=True, max_tries=3)
    pauses = [patience.after_answer(answer(503)) for _ in range(3)]
    assert pauses[-1] is None
    assert None not in pauses[:2]
    told = Patience(is_repeatable=True).after_answer(answer(429, **{"Retry-After": "2"}))
    assert told is not None
    assert told >= 2


def test_submits_carry_a_key_and_other_posts_are_not_repeated():
    task = tasks.NewTask(args=["true"], group_name="g")
    assert tasks.submit(task).is_repeatable
    assert tasks.submit_array(task, [{}]).is_repeatable
    assert tasks.submit(task).headers != tasks.submit(task).headers
    assert not suites.cancel("u").is_repeatable
    assert suites.show("u").is_repeatable


def test_a_list_goes_on_when_the_coordinator_gives_less_than_was_asked_for():
    pages = suites.query()
    row = [{}] * 50
    assert not is_last(pages, {"suites": row, "limit": 50})
    assert is_last(pages, {"suites": row[:49], "limit": 50})
    assert is_last(pages, {"suites": []})
    found = tasks.query()
    assert not is_last(found, {"tasks": row, "has_more": True})
    assert is_last(found, {"tasks": row, "has_more": False})


def test_names_cannot_leave_their_place_in_a_path():
    assert accounts.group("a/../b").path == "/groups/a%2F..%2Fb"
    assert accounts.attachment("g", "deep/a?b#c").path == "/groups/g/attachments/deep/a%3Fb%23c"


def test_a_refusal_is_typed_whatever_its_body():
    problem = {"msg": "gone", "code": "object.not_found"}
    found = refusal(httpx2.Response(404, json=problem))
    assert isinstance(found, NotFound)
    assert (str(found), found.code) == ("gone", "object.not_found")
    assert isinstance(refusal(httpx2.Response(502, text="<html>")), ServerError)
    assert isinstance(refusal(httpx2.Response(422, content=b"\xff")), InvalidRequest)


def test_an_answer_of_somebody_else_is_told():
    with pytest.raises(UnexpectedAnswer):
        read_answer(suites.show("u"), httpx2.Response(200, text="<html>"))


def test_wait_statuses_become_what_a_shell_shows():
    assert [exit_code(status) for status in (0, 256, 15, 139)] == [0, 1, 143, 139]
