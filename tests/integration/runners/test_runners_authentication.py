"""Runner tokens: who gets in, through views and through the pool, and how fast it ends."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from django.test import RequestFactory
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from accounts.actors import SYSTEM
from accounts.bearer import issue
from accounts.identity import Identity
from accounts.models import User
from accounts.services.sessions import issue_user_token
from accounts.services.users import set_user_state
from accounts.tokens import wrap
from core import clock
from core.errors import AuthenticationFailed, InvalidInput, PermissionDenied
from mitosis_protocol.enums import RunnerKind, TokenKind, UserState
from runners import standing
from runners.authentication import (
    ManagerTokenAuthentication,
    RunnerRequired,
    WorkerTokenAuthentication,
    authenticate_bearer,
    current_identity,
    recheck,
)
from runners.models import Runner
from runners.services.registration import (
    issue_runner_token,
    revoke_runner,
    rotate_token_generation,
)

pytestmark = pytest.mark.django_db(transaction=True)

KINDS = [
    (RunnerKind.INDEPENDENT, TokenKind.WORKER),
    (RunnerKind.MANAGER, TokenKind.MANAGER),
    (RunnerKind.DIRECT, TokenKind.DIRECT),
]


class WorkerView(APIView):
    authentication_classes = (WorkerTokenAuthentication,)
    permission_classes = (RunnerRequired,)

    def get(self, request: Request) -> Response:
        return Response({"subject": current_identity(request).subject})


class ManagerView(WorkerView):
    authentication_classes = (ManagerTokenAuthentication,)


def visit(view: type[APIView], token: str | None) -> Any:
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    response = view.as_view()(RequestFactory().get("/", headers=headers))
    response.render()
    return response


def bearer(runner: Runner, lifetime_s: float = 3600) -> str:
    return f"Bearer {issue_runner_token(runner, lifetime_s=lifetime_s)}"


@pytest.mark.parametrize(("runner_kind", "kind"), KINDS)
def test_each_kind_authenticates_as_itself_only(
    make_user: Callable[[str], User],
    make_runner: Callable[..., Runner],
    on_pool: Callable[..., Any],
    runner_kind: RunnerKind,
    kind: TokenKind,
) -> None:
    runner = make_runner(make_user("ada"), runner_kind)
    header = bearer(runner)

    async def everybody() -> Identity:
        for other in TokenKind:
            if other is not kind:
                with pytest.raises(AuthenticationFailed, match="Invalid token"):
                    await authenticate_bearer(header, other)
        return await authenticate_bearer(header, kind)

    identity = on_pool(everybody)
    assert (identity.kind, identity.id, identity.subject) == (kind, runner.pk, str(runner.uuid))


def test_views_for_workers(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    user = make_user("ada")
    worker = make_runner(user)
    token = issue_runner_token(worker, lifetime_s=60)
    for form in (token, wrap(token)):
        assert visit(WorkerView, form).data == {"subject": str(worker.uuid)}
    assert visit(ManagerView, token).status_code == 401
    assert visit(WorkerView, issue_user_token(user)).status_code == 401
    assert visit(WorkerView, None).status_code == 400
    assert visit(WorkerView, "nonsense").status_code == 401


def test_a_user_named_like_a_worker_is_no_worker(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    worker = make_runner(make_user("ada"))
    impostor = make_user(str(worker.uuid))
    assert visit(WorkerView, issue_user_token(impostor)).status_code == 401


def test_a_runner_of_another_kind_under_the_right_token_kind_is_unknown(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    manager = make_runner(make_user("ada"), RunnerKind.MANAGER)
    token = authentication_token(TokenKind.WORKER, str(manager.uuid))
    refused = visit(WorkerView, token)
    assert refused.status_code == 401
    assert refused.data["msg"] == "Authentication error: Wrong credentials"


def authentication_token(kind: TokenKind, subject: str) -> str:
    return issue(kind=kind, subject=subject, generation=1, lifetime_s=60)


# Not drawn: processes that share the tests have to agree on their names.
UNKNOWN = "0b7c6f0e-3d52-4b8a-9a52-6c1c6b1f5f10"


@pytest.mark.parametrize("subject", ["", "ada", "not-a-uuid", UNKNOWN, "\x00"])
def test_unknown_subjects(subject: str) -> None:
    token = authentication_token(TokenKind.WORKER, subject)
    assert visit(WorkerView, token).status_code == 401


def test_other_spellings_of_a_uuid_are_unknown(
    make_user: Callable[[str], User], make_runner: Callable[..., Runner]
) -> None:
    worker = make_runner(make_user("ada"))
    for spelling in (worker.uuid.hex, f"{{{worker.uuid}}}", str(worker.uuid).upper()):
        token = authentication_token(TokenKind.WORKER, spelling)
        if spelling != str(worker.uuid):
            assert visit(WorkerView, token).status_code == 401


def test_revocation_acts_at_once_here_and_in_seconds_elsewhere(
    make_user: Callable[[str], User],
    make_runner: Callable[..., Runner],
    on_pool: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runner = make_runner(make_user("ada"), RunnerKind.MANAGER)
    header = bearer(runner)
    identity = on_pool(lambda: authenticate_bearer(header, TokenKind.MANAGER))

    # Another process revokes: this one learns it when its memory is five seconds old.
    Runner.objects.filter(pk=runner.pk).update(revoked_at=clock.now(), token_generation=2)
    on_pool(lambda: recheck(identity))
    stamp = standing._cache.clock()
    monkeypatch.setattr(standing._cache, "clock", lambda: stamp + 5)
    with pytest.raises(AuthenticationFailed):
        on_pool(lambda: recheck(identity))
    with pytest.raises(AuthenticationFailed, match="Wrong credentials"):
        on_pool(lambda: authenticate_bearer(header, TokenKind.MANAGER))


def test_the_process_that_revokes_forgets_at_once(
    make_user: Callable[[str], User],
    make_runner: Callable[..., Runner],
    on_pool: Callable[..., Any],
) -> None:
    runner = make_runner(make_user("ada"))
    header = bearer(runner)
    identity = on_pool(lambda: authenticate_bearer(header, TokenKind.WORKER))
    assert revoke_runner(actor=SYSTEM, runner=runner)
    assert not revoke_runner(actor=SYSTEM, runner=runner)
    with pytest.raises(AuthenticationFailed):
        on_pool(lambda: recheck(identity))
    assert visit(WorkerView, header.removeprefix("Bearer ")).status_code == 401


def test_rotation_ends_old_tokens_and_new_ones_work(
    make_user: Callable[[str], User],
    make_runner: Callable[..., Runner],
    on_pool: Callable[..., Any],
) -> None:
    runner = make_runner(make_user("ada"))
    old = bearer(runner)
    on_pool(lambda: authenticate_bearer(old, TokenKind.WORKER))
    runner = rotate_token_generation(actor=SYSTEM, runner=runner)
    with pytest.raises(AuthenticationFailed):
        on_pool(lambda: authenticate_bearer(old, TokenKind.WORKER))
    new = bearer(runner)
    assert on_pool(lambda: authenticate_bearer(new, TokenKind.WORKER)).generation == 2


def test_an_open_socket_ends_with_its_token(
    make_user: Callable[[str], User],
    make_runner: Callable[..., Runner],
    on_pool: Callable[..., Any],
) -> None:
    runner = make_runner(make_user("ada"), RunnerKind.MANAGER)
    header = bearer(runner)
    identity = on_pool(lambda: authenticate_bearer(header, TokenKind.MANAGER))
    late = replace(identity, expires_at=clock.now() - timedelta(seconds=1))
    with pytest.raises(AuthenticationFailed, match="Invalid token"):
        on_pool(lambda: recheck(late))


def test_users_over_the_pool(make_user: Callable[[str], User], on_pool: Callable[..., Any]) -> None:
    user = make_user("ada")
    header = f"Bearer {issue_user_token(user)}"
    identity = on_pool(lambda: authenticate_bearer(header, TokenKind.USER))
    assert (identity.id, identity.subject) == (user.pk, "ada")
    on_pool(lambda: recheck(identity))
    User.objects.update(state=UserState.LOCKED)
    for call in (lambda: recheck(identity), lambda: authenticate_bearer(header, TokenKind.USER)):
        with pytest.raises(PermissionDenied):
            on_pool(call)
    set_user_state(actor=SYSTEM, username="ada", state=UserState.DELETED)
    with pytest.raises(AuthenticationFailed):
        on_pool(lambda: authenticate_bearer(header, TokenKind.USER))


@pytest.mark.parametrize("header", [None, "", "Bearer", "Basic x"])
def test_no_usable_header(on_pool: Callable[..., Any], header: str | None) -> None:
    for kind in TokenKind:
        with pytest.raises(InvalidInput):
            on_pool(lambda kind=kind: authenticate_bearer(header, kind))
