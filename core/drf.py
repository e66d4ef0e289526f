"""How the REST framework reads, writes and fails here; named in REST_FRAMEWORK settings.

`exception_handler` turns every expected error into one body shape (core.problem). Bugs are not
handled: they reach Django's handler500 with their traceback logged.
"""

import math
from collections.abc import Mapping
from http import HTTPStatus
from typing import IO, Any, Final

import structlog
from django.core.exceptions import PermissionDenied as DjangoPermissionDenied
from django.core.exceptions import RequestDataTooBig
from django.db import InterfaceError, OperationalError
from django.http import Http404
from psycopg_pool import PoolTimeout
from rest_framework import exceptions
from rest_framework.parsers import BaseParser
from rest_framework.renderers import JSONRenderer
from rest_framework.response import Response
from rest_framework.views import set_rollback
from typing_extensions import override

from core.errors import (
    DatabaseUnavailable,
    DomainError,
    NotFound,
    PermissionDenied,
    Throttled,
    TooLarge,
)
from core.problem import domain_problem, field_errors, problem, sentence
from core.strict_json import loads
from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.limits import MAX_BODY_BYTES

log = structlog.get_logger(__name__)

# Short: the usual cause is a restart of the database, which takes seconds.
UNAVAILABLE_RETRY_AFTER_S: Final = 1


class StrictJSONParser(BaseParser):
    """JSON through core.strict_json, and never more bytes than the view takes.

    A view for bulk input raises its limit with an attribute `max_body_bytes`.
    """

    media_type = "application/json"

    @override
    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        view = (parser_context or {}).get("view")
        limit = int(getattr(view, "max_body_bytes", MAX_BODY_BYTES))
        # One byte more than allowed tells a full body from an oversize one.
        data = stream.read(limit + 1)
        if len(data) > limit:
            raise TooLarge(f"The body is larger than {limit} bytes")
        return loads(data)


class CompactJSONRenderer(JSONRenderer):
    """Strict JSON without blanks or an indent chosen by the client."""

    compact = True
    strict = True
    # Errors and answers are UTF-8 whatever the caller's Accept-Charset says.
    charset = None

    @override
    def get_indent(
        self, accepted_media_type: str, renderer_context: Mapping[str, Any]
    ) -> int | None:
        return None


def exception_handler(error: Exception, context: Mapping[str, Any]) -> Response | None:
    """The answer to `error`, or None for a bug."""
    known = _as_domain_error(error)
    if known is not None:
        response = _domain_response(known)
    elif isinstance(error, exceptions.APIException):
        response = _framework_response(error)
    else:
        return None
    set_rollback()
    return response


def _as_domain_error(error: Exception) -> DomainError | None:
    match error:
        case DomainError():
            known: DomainError | None = error
        case Http404():
            known = NotFound(str(error) or "Not found")
        case DjangoPermissionDenied():
            known = PermissionDenied(str(error) or "Permission denied")
        case RequestDataTooBig():
            known = TooLarge("The body is too large")
        case OperationalError() | InterfaceError() | PoolTimeout():
            # The driver's text may quote rows and hosts: it goes to the log, not to the caller.
            log.warning("database.request_failed", reason=str(error))
            known = DatabaseUnavailable()
        case _:
            known = None
    return known


def _domain_response(error: DomainError) -> Response:
    headers: dict[str, str] = {}
    if isinstance(error, Throttled):
        headers["Retry-After"] = str(error.retry_after_s)
    elif error.retryable:
        headers["Retry-After"] = str(UNAVAILABLE_RETRY_AFTER_S)
    if error.http_status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = 'Bearer realm="mitosis"'
    return Response(domain_problem(error), status=error.http_status, headers=headers)


def _framework_response(error: exceptions.APIException) -> Response:
    headers: dict[str, str] = {}
    scheme = getattr(error, "auth_header", None)
    if scheme:
        headers["WWW-Authenticate"] = str(scheme)
    wait_s = getattr(error, "wait", None)
    if wait_s:
        headers["Retry-After"] = str(math.ceil(wait_s))
    code = _FRAMEWORK_CODES.get(error.status_code, ErrorCode.REQUEST_INVALID)
    if isinstance(error, exceptions.ValidationError):
        errors = list(field_errors(error.detail))
        text = sentence(errors)
        body = problem(
            error.status_code, code, text, msg=f"Process request error: {text}", errors=errors
        )
    else:
        text = sentence(list(field_errors(error.detail)))
        body = problem(error.status_code, code, text)
    return Response(body, status=error.status_code, headers=headers)


_FRAMEWORK_CODES: Final[Mapping[int, ErrorCode]] = {
    HTTPStatus.BAD_REQUEST: ErrorCode.REQUEST_INVALID,
    HTTPStatus.UNAUTHORIZED: ErrorCode.AUTH_INVALID_TOKEN,
    HTTPStatus.FORBIDDEN: ErrorCode.AUTH_PERMISSION_DENIED,
    HTTPStatus.NOT_FOUND: ErrorCode.OBJECT_NOT_FOUND,
    HTTPStatus.METHOD_NOT_ALLOWED: ErrorCode.REQUEST_METHOD_NOT_ALLOWED,
    HTTPStatus.NOT_ACCEPTABLE: ErrorCode.REQUEST_NOT_ACCEPTABLE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: ErrorCode.REQUEST_UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.TOO_MANY_REQUESTS: ErrorCode.REQUEST_THROTTLED,
    HTTPStatus.INTERNAL_SERVER_ERROR: ErrorCode.INTERNAL,
}
