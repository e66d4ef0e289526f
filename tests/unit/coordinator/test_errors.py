"""The error tree: one status, one code, one policy per class."""

import pytest

from core import errors
from core.errors import DomainError
from mitosis_protocol.errors import ErrorCode, ErrorInfo


def subclasses(kind: type[DomainError]) -> list[type[DomainError]]:
    return [kind, *(found for child in kind.__subclasses__() for found in subclasses(child))]


EXPECTED = {
    errors.InvalidInput: (400, False),
    errors.AuthenticationFailed: (401, False),
    errors.PermissionDenied: (403, False),
    errors.NotFound: (404, False),
    errors.Conflict: (409, False),
    errors.AlreadyExists: (409, False),
    errors.InvalidTransition: (409, False),
    errors.StaleAttempt: (409, False),
    errors.LeaseLost: (409, False),
    errors.Superseded: (409, False),
    errors.LimitExceeded: (413, False),
    errors.TooLarge: (413, False),
    errors.Throttled: (429, True),
    errors.QuotaExceeded: (403, False),
    errors.DependencyUnavailable: (503, True),
    errors.DatabaseUnavailable: (503, True),
    errors.StorageUnavailable: (503, True),
    errors.ChannelLayerUnavailable: (503, True),
}


@pytest.mark.parametrize("kind", EXPECTED, ids=lambda kind: kind.__name__)
def test_each_class_is_its_own_policy(kind):
    assert (kind.http_status, kind.retryable) == EXPECTED[kind]
    assert kind.code is not ErrorCode.INTERNAL


def test_no_two_classes_share_a_code():
    codes = [kind.code for kind in EXPECTED]
    assert len(set(codes)) == len(codes)


def test_a_code_given_at_the_call_site_wins_for_that_error_only():
    error = errors.AuthenticationFailed("expired", code=ErrorCode.AUTH_EXPIRED_TOKEN)
    assert error.code is ErrorCode.AUTH_EXPIRED_TOKEN
    assert errors.AuthenticationFailed("x").code is ErrorCode.AUTH_INVALID_TOKEN


def test_the_texts_existing_clients_know():
    assert errors.AuthenticationFailed("Invalid token").msg == "Authentication error: Invalid token"
    assert errors.PermissionDenied().msg == "Authentication error: Permission denied"
    assert errors.InvalidInput("no args").msg == "Process request error: no args"
    assert errors.QuotaExceeded().msg == "Resource quota exceeded"
    assert errors.NotFound("Task not found").msg == "Task not found"


def test_an_error_becomes_a_frame():
    assert errors.StaleAttempt("attempt 3 is over").info() == ErrorInfo(
        code=ErrorCode.TASK_STALE_ATTEMPT, message="attempt 3 is over", retryable=False
    )


def test_an_unknown_outcome_is_said_so():
    assert not errors.DatabaseUnavailable().outcome_unknown
    assert errors.DatabaseUnavailable(outcome_unknown=True).outcome_unknown


def test_extra_members_are_kept():
    assert errors.Conflict("x", extra={"state": "Open"}).extra == {"state": "Open"}
    assert errors.Conflict("x").extra == {}
