"""Every error a view can meet becomes one body shape; bugs stay bugs."""

import json
from http import HTTPStatus

import pytest
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404
from psycopg_pool import PoolTimeout
from rest_framework import exceptions, serializers
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from core import errors, problem
from core.drf import CompactJSONRenderer, StrictJSONParser, exception_handler
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_BODY_BYTES

MEMBERS = {"type", "title", "status", "detail", "code", "msg"}


class Row(serializers.Serializer):
    name = serializers.CharField(max_length=3)
    tags = serializers.ListField(child=serializers.CharField(max_length=2), required=False)


class Body(serializers.Serializer):
    rows = Row(many=True)

    def validate(self, attrs):
        if not attrs["rows"]:
            raise serializers.ValidationError("at least one row")
        return attrs


class View(APIView):
    parser_classes = [StrictJSONParser]  # noqa: RUF012 - DRF's way
    renderer_classes = [CompactJSONRenderer]  # noqa: RUF012 - DRF's way
    authentication_classes = []  # noqa: RUF012 - DRF's way
    permission_classes = []  # noqa: RUF012 - DRF's way
    raises: Exception | None = None
    max_body_bytes = MAX_BODY_BYTES

    def get_exception_handler(self):
        return exception_handler

    def post(self, request):
        if self.raises is not None:
            raise self.raises
        body = Body(data=request.data)
        body.is_valid(raise_exception=True)
        return Response(body.validated_data)


def post(data=b'{"rows": []}', content_type="application/json", method="post", **view):
    request = getattr(APIRequestFactory(), method)("/x", data=data, content_type=content_type)
    response = View.as_view(**view)(request)
    response.render()
    return response


def body_of(response):
    body = json.loads(response.content)
    assert set(body) >= MEMBERS
    assert body["status"] == response.status_code
    assert body["title"] == HTTPStatus(response.status_code).phrase
    assert body["type"] == f"urn:mitosis:error:{body['code']}"
    assert response["Content-Type"].startswith("application/json")
    return body


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.InvalidInput("no"), 400, "request.invalid"),
        (errors.AuthenticationFailed("Invalid token"), 401, "auth.invalid_token"),
        (errors.PermissionDenied(), 403, "auth.permission_denied"),
        (errors.NotFound("Task not found"), 404, "object.not_found"),
        (errors.StaleAttempt("late"), 409, "task.stale_attempt"),
        (errors.TooLarge("big"), 413, "request.too_large"),
        (errors.Throttled(), 429, "request.throttled"),
        (errors.StorageUnavailable("s3"), 503, "dependency.storage"),
        (Http404(), 404, "object.not_found"),
        (DjangoPermissionDenied(), 403, "auth.permission_denied"),
        (RequestDataTooBig(), 413, "request.too_large"),
        (OperationalError("FATAL: password of host db1"), 503, "dependency.database"),
        (InterfaceError("connection already closed"), 503, "dependency.database"),
        (PoolTimeout("no connection in 3 s"), 503, "dependency.database"),
        (exceptions.NotAuthenticated(), 401, "auth.invalid_token"),
        (exceptions.MethodNotAllowed("PUT"), 405, "request.method_not_allowed"),
        (exceptions.UnsupportedMediaType("text/xml"), 415, "request.unsupported_media_type"),
        (exceptions.Throttled(wait=2.5), 429, "request.throttled"),
        (exceptions.ValidationError("no"), 400, "request.invalid"),
    ],
)
def test_each_error_has_its_status_and_code(error, status, code):
    response = exception_handler(error, {})
    assert response.status_code == status
    assert response.data["code"] == code
    assert set(response.data) >= MEMBERS


def test_a_bug_is_not_dressed_up_as_an_answer():
    assert exception_handler(KeyError("x"), {}) is None
    with pytest.raises(ZeroDivisionError):
        post(raises=ZeroDivisionError())


def test_what_the_driver_says_is_not_shown_to_the_caller():
    response = exception_handler(OperationalError("password of host db1"), {})
    assert "db1" not in json.dumps(response.data)


def test_callers_that_may_try_again_are_told_when():
    assert exception_handler(errors.DatabaseUnavailable(), {})["Retry-After"] == "1"
    assert exception_handler(errors.Throttled(retry_after_s=7), {})["Retry-After"] == "7"
    assert exception_handler(exceptions.Throttled(wait=2.5), {})["Retry-After"] == "3"
    assert "Retry-After" not in exception_handler(errors.NotFound("x"), {})


def test_a_401_names_the_scheme():
    assert exception_handler(errors.AuthenticationFailed("x"), {})["WWW-Authenticate"] == (
        'Bearer realm="mitosis"'
    )


def test_msg_is_what_existing_clients_expect_and_detail_is_plain():
    body = body_of(post(raises=errors.InvalidInput("no args")))
    assert body["msg"] == "Process request error: no args"
    assert body["detail"] == "no args"


def test_extra_members_cannot_replace_the_fixed_ones():
    error = errors.Conflict("x", extra={"status": 1, "msg": "y", "state": "Open"})
    body = body_of(post(raises=error))
    assert (body["status"], body["msg"], body["state"]) == (409, "x", "Open")


def test_validation_says_which_field_and_why():
    rows = {"rows": [{"name": "ok"}, {"name": "long", "tags": ["a", "abc"]}, {}]}
    body = body_of(post(json.dumps(rows)))
    assert [(e["field"], e["code"]) for e in body["errors"]] == [
        ("rows[1].name", "max_length"),
        ("rows[1].tags[1]", "max_length"),
        ("rows[2].name", "required"),
    ]
    assert "rows[1].name: Ensure this field has no more than 3 characters." in body["detail"]
    assert body["msg"] == f"Process request error: {body['detail']}"


def test_a_rule_about_the_whole_body_has_no_field():
    body = body_of(post(b'{"rows": []}'))
    assert body["errors"] == [{"field": "", "reason": "at least one row", "code": "invalid"}]
    assert body["detail"] == "at least one row"


def test_broken_json_is_a_400_with_the_place():
    body = body_of(post(b'{"rows": ['))
    assert body["code"] == ErrorCode.REQUEST_MALFORMED_JSON
    assert "line 1 column 11" in body["detail"]


def test_the_parser_is_strict():
    assert body_of(post(b'{"rows": NaN}'))["code"] == ErrorCode.REQUEST_MALFORMED_JSON
    assert body_of(post(b'{"rows": [], "rows": []}'))["status"] == 400


def test_other_content_types_are_refused():
    assert (
        body_of(post(b"rows=1", content_type="application/x-www-form-urlencoded"))["status"] == 415
    )


def test_a_body_may_be_as_large_as_the_view_allows_and_no_larger():
    row = b'{"rows": [{"name": "abc"}]}'
    assert post(row, max_body_bytes=len(row)).status_code == 200
    body = body_of(post(row, max_body_bytes=len(row) - 1))
    assert (body["status"], body["code"]) == (413, "request.too_large")


def test_answers_are_compact_utf8_whatever_the_client_asks():
    request = APIRequestFactory().post(
        "/x",
        data='{"rows": [{"name": "\N{SNOWMAN}"}]}',
        content_type="application/json",
        HTTP_ACCEPT="application/json; indent=8",
    )
    response = View.as_view()(request)
    response.render()
    assert response.content == '{"rows":[{"name":"\N{SNOWMAN}"}]}'.encode()


@pytest.mark.parametrize(
    ("handler", "status"),
    [
        (problem.bad_request, 400),
        (problem.permission_denied, 403),
        (problem.page_not_found, 404),
    ],
)
def test_what_django_answers_itself_has_the_same_body(handler, status):
    response = handler(APIRequestFactory().get("/nowhere"), Exception("internal text"))
    assert body_of(response)["status"] == status
    assert b"internal text" not in response.content


def test_a_500_tells_nothing():
    body = body_of(problem.server_error(APIRequestFactory().get("/x")))
    assert (body["status"], body["msg"]) == (500, "Internal server error")
