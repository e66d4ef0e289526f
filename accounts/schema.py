"""What the OpenAPI document says about our answers: the problem body, bearer tokens, statuses.

`describe` decorates every view method. 200 is spelled out; all problems share one body, so the
frequent ones are named and the rest (405, 406, 413, 415) fall under `4XX`.
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from drf_spectacular.extensions import OpenApiAuthenticationExtension
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from typing_extensions import override

View = TypeVar("View", bound=Callable[..., Any])

_REASONS = {
    400: "The header or the body cannot be read, or a value breaks a rule.",
    401: "The token is not valid, or the credentials are wrong.",
    403: "The caller may not do this, or a quota is used up.",
    404: "There is no such object, or the caller may not know of it.",
    409: "The present state does not allow it; for example, the name is taken.",
    413: "The body is too large.",
    422: "The body has the wrong shape; `errors` names each field.",
    429: "Too many attempts; `Retry-After` says when to try again.",
}


class FieldProblem(serializers.Serializer[Any]):
    field = serializers.CharField(help_text="Where, for example `tasks[3].priority`.")
    reason = serializers.CharField()
    code = serializers.CharField()


class Problem(serializers.Serializer[Any]):
    """RFC 9457, with `msg` for existing clients."""

    type = serializers.CharField(help_text="`urn:mitosis:error:` and the code.")
    title = serializers.CharField()
    status = serializers.IntegerField()
    detail = serializers.CharField()
    code = serializers.CharField(help_text="Stable; programs branch on it.")
    msg = serializers.CharField()
    retryable = serializers.BooleanField(required=False)
    errors = FieldProblem(many=True, required=False)  # type: ignore[assignment]  # moved by DRF


def describe(
    *,
    summary: str,
    answer: Any = None,
    request: Any = None,
    problems: Sequence[int] = (),
    parameters: Sequence[OpenApiParameter] = (),
    status: int = 200,
) -> Callable[[View], View]:
    """Describe one view method. `answer` None is an empty body; `problems` are the likely ones.

    400, 401 and 403 can come from every view and need no mention.
    """
    statuses = {400, 401, 403, *problems}
    if request is not None:
        statuses.add(422)
    empty = OpenApiResponse(description="Done; empty body.")
    key: Any = (status, "text/plain") if answer is OpenApiTypes.STR else status
    responses: dict[Any, Any] = {key: empty if answer is None else answer}
    for refusal in sorted(statuses):
        responses[refusal] = OpenApiResponse(Problem, description=_REASONS.get(refusal, "Refused."))
    responses["4XX"] = OpenApiResponse(Problem, description="Any other refusal.")
    responses[503] = OpenApiResponse(Problem, description="A store does not answer; try again.")
    return extend_schema(
        summary=summary,
        request=request,
        responses=responses,
        parameters=list(parameters),
    )


class _BearerScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]  # theirs
    """Which token a view wants. Classes are named by path, as the library looks them up late."""

    source = ""

    @override
    def get_security_definition(self, auto_schema: object) -> dict[str, str]:
        return {"type": "http", "scheme": "bearer", "description": self.source}


class UserTokenScheme(_BearerScheme):  # type: ignore[no-untyped-call]  # theirs
    target_class = "accounts.authentication.UserTokenAuthentication"
    name = "userToken"
    source = "The token that `POST /login` answers."


class WorkerTokenScheme(_BearerScheme):  # type: ignore[no-untyped-call]  # theirs
    target_class = "runners.authentication.WorkerTokenAuthentication"
    name = "workerToken"
    source = "The token that `POST /workers` answers."


class ManagerTokenScheme(_BearerScheme):  # type: ignore[no-untyped-call]  # theirs
    target_class = "runners.authentication.ManagerTokenAuthentication"
    name = "managerToken"
    source = "The token that `POST /managers` answers."


class DirectTokenScheme(_BearerScheme):  # type: ignore[no-untyped-call]  # theirs
    target_class = "runners.authentication.DirectTokenAuthentication"
    name = "directToken"
    source = "The token that `POST /workers` answers for a direct worker."
