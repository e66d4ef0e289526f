"""Error bodies: RFC 9457 members plus `msg`, which existing clients read.

Used by core.drf for API views and by mitosis_site.urls for everything Django itself answers. The
content type stays application/json, because that is what existing clients were written against.
"""

from collections.abc import Iterator, Mapping
from http import HTTPStatus

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.functional import Promise

from core.errors import DomainError
from mitosis_protocol.errors import ErrorCode

Body = dict[str, object]


def problem(
    status: int, code: ErrorCode, detail: str, *, msg: str | None = None, **extra: object
) -> Body:
    """The body of an error answer. `extra` never replaces one of the fixed members."""
    return {
        **extra,
        "type": f"urn:mitosis:error:{code}",
        "title": HTTPStatus(status).phrase,
        "status": int(status),
        "detail": detail,
        "code": str(code),
        "msg": detail if msg is None else msg,
    }


def domain_problem(error: DomainError) -> Body:
    """The body for one of our own errors."""
    extra = {str(name): value for name, value in error.extra.items()}
    return {
        **extra,
        **problem(error.http_status, error.code, error.message, msg=error.msg),
        "retryable": error.retryable,
    }


def field_errors(detail: object, path: str = "") -> Iterator[Body]:
    """Flatten DRF's nested validation detail into one entry per broken rule.

    `tasks[3].task_spec.args` says where; the name DRF uses for whole-object rules is dropped.
    """
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            yield from field_errors(inner, _join(path, name))
    elif isinstance(detail, list | tuple):
        for index, inner in enumerate(detail):
            is_leaf = isinstance(inner, str | Promise)
            yield from field_errors(inner, path if is_leaf else f"{path}[{index}]")
    else:
        yield {
            "field": path,
            "reason": str(detail),
            "code": str(getattr(detail, "code", "invalid")),
        }


def sentence(errors: list[Body]) -> str:
    """All broken rules in one line, each with its field."""
    parts = [f"{e['field']}: {e['reason']}" if e["field"] else str(e["reason"]) for e in errors]
    return "; ".join(parts) or "the request is not valid"


def bad_request(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler400` of the URL configuration."""
    return _answer(HTTPStatus.BAD_REQUEST, ErrorCode.REQUEST_INVALID, "Bad request")


def permission_denied(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler403` of the URL configuration."""
    return _answer(HTTPStatus.FORBIDDEN, ErrorCode.AUTH_PERMISSION_DENIED, "Permission denied")


def page_not_found(request: HttpRequest, exception: Exception) -> HttpResponse:
    """`handler404` of the URL configuration."""
    return _answer(HTTPStatus.NOT_FOUND, ErrorCode.REQUEST_NOT_FOUND, "No such path")


def server_error(request: HttpRequest) -> HttpResponse:
    """`handler500` of the URL configuration; Django has logged the traceback already."""
    return _answer(HTTPStatus.INTERNAL_SERVER_ERROR, ErrorCode.INTERNAL, "Internal server error")


def _answer(status: HTTPStatus, code: ErrorCode, detail: str) -> HttpResponse:
    return JsonResponse(problem(status, code, detail), status=status)


def _join(path: str, name: object) -> str:
    if isinstance(name, int):
        return f"{path}[{name}]"
    if name == "non_field_errors":
        return path
    return f"{path}.{name}" if path else str(name)
