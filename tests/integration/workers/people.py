"""Users with tokens and JSON clients, and workers they registered, for the tests of this folder."""

import json
from dataclasses import dataclass
from typing import Any

from django.http import HttpResponse
from django.test import Client

from accounts.actors import SYSTEM
from accounts.models import Group, User
from accounts.selectors import get_group
from accounts.services.groups import create_group, put_members
from accounts.services.sessions import issue_user_token
from accounts.services.users import create_user
from mitosis_protocol.enums import Role, RunnerKind
from mitosis_protocol.specs import TaskSpec
from tasks.new_task import NewTask
from tasks.rows import TaskRef
from tasks.services.submit import Target, submit_task
from workers.services.registration import NewWorker, RegisteredWorker, register_worker


@dataclass
class Caller:
    """Requests with JSON bodies and one bearer token."""

    token: str | None = None
    user: User | None = None

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> HttpResponse:
        if self.token is not None:
            headers.setdefault("authorization", f"Bearer {self.token}")
        data = b"" if body is None else json.dumps(body).encode()
        kind = "" if body is None else "application/json"
        return Client().generic(method, path, data, kind, headers=headers)

    def register(self, **body: Any) -> dict[str, Any]:
        given = {"tags": [], "labels": [], "groups": [], **body}
        answer = self.call("POST", "/workers", given)
        assert answer.status_code == 200, answer.content
        return answer.json()


def new_user(name: str, *, admin: bool = False) -> User:
    return create_user(actor=SYSTEM, username=name, md5_password=bytes(16), is_admin=admin)


def caller_of(user: User) -> Caller:
    return Caller(issue_user_token(user), user)


def new_group(name: str, creator: User, **members: Role) -> Group:
    group = create_group(actor=SYSTEM, creator=creator, name=name)
    if members:
        put_members(actor=SYSTEM, group=group, roles=members)
    return get_group(name)


def new_worker(owner: User, **changes: Any) -> RegisteredWorker:
    asked: dict[str, Any] = {
        "kind": RunnerKind.INDEPENDENT,
        "tags": [],
        "labels": [],
        "groups": [],
        "lease_ttl_s": 600.0,
        "token_lifetime_s": 3600.0,
        **changes,
    }
    return register_worker(actor=SYSTEM, owner=owner, new=NewWorker(**asked))


def new_task(creator: User, group: str | None = None, **changes: Any) -> TaskRef:
    """A waiting task of the group (the creator's own by default)."""
    spec = changes.pop("spec", TaskSpec(args=["true"]))
    return submit_task(
        target=Target(get_group(group or creator.username).pk),
        creator_id=creator.pk,
        task=NewTask(spec=spec, **{"timeout_s": 60, **changes}),
    )
