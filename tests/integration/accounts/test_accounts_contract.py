"""The published contract: policy table, OpenAPI document, and the existing Python client."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from django.urls import URLPattern, URLResolver, get_resolver
from drf_spectacular.generators import SchemaGenerator
from hypothesis import HealthCheck, given, settings, strategies
from pynetmito import MitoHttpClient
from pynetmito.schemas import (
    AdminChangePasswordReq,
    ChangeGroupStorageQuotaReq,
    ChangeUserGroupQuota,
    CreateGroupReq,
    CreateUserReq,
    RemoveUserGroupRoleReq,
    ShutdownReq,
    UpdateUserGroupRoleReq,
    UserChangePasswordReq,
    UserLoginArgs,
)
from pytest_django.live_server_helper import LiveServer
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from accounts import urls
from accounts.models import User
from accounts.policy import POLICY
from accounts.services.sessions import issue_user_token
from tests.integration.accounts.api_client import PASSWORD, digest

CHECKS = [
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
]
METHODS = ("get", "post", "put", "patch", "delete")


def routes(patterns: list[Any]) -> Iterator[tuple[str, str]]:
    for pattern in patterns:
        view = pattern.callback.view_class
        for method in METHODS:
            if hasattr(view, method):
                yield method.upper(), pattern.name


def test_every_route_has_exactly_one_policy_entry() -> None:
    assert sorted(routes(urls.urlpatterns)) == sorted(POLICY)


def test_our_routes_are_served_at_the_root_before_the_console() -> None:
    first: dict[str, str] = {}
    for entry in get_resolver().url_patterns:
        patterns = entry.url_patterns if isinstance(entry, URLResolver) else [entry]
        for pattern in patterns:
            if isinstance(pattern, URLPattern):
                first.setdefault(str(entry.pattern) + str(pattern.pattern), str(pattern.name))
    for pattern in urls.urlpatterns:
        assert first[str(pattern.pattern)] == pattern.name


def our_part(document: dict[str, Any]) -> dict[str, Any]:
    spelled = (f"/{pattern.pattern}" for pattern in urls.urlpatterns)
    ours = {path.replace("<str:", "{").replace(">", "}") for path in spelled}
    return document | {"paths": {p: d for p, d in document["paths"].items() if p in ours}}


def document() -> dict[str, Any]:
    generated: dict[str, Any] = SchemaGenerator().get_schema(request=None, public=True)
    return our_part(generated)


def test_the_document_lists_every_route_with_its_statuses() -> None:
    paths = document()["paths"]
    assert sum(len(operations) for operations in paths.values()) == len(POLICY)
    for path, operations in paths.items():
        for operation in operations.values():
            assert {"200", "400", "4XX", "503"} <= operation["responses"].keys(), path
            schemes = {name for way in operation.get("security", []) for name in way}
            assert schemes == (set() if path == "/login" else {"userToken", "cookieAuth"})


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("caller", ["nobody", "ada", "root"])
def test_whatever_is_sent_the_answer_is_one_the_document_declares(
    live_server: LiveServer, make_user: Callable[..., User], caller: str
) -> None:
    make_user("ada")
    make_user("root", admin=True)
    headers = {"X-Forwarded-For": "ignored"}
    if caller != "nobody":
        token = issue_user_token(User.objects.get(username=caller))
        headers["Authorization"] = f"Bearer {token}"
    schema = schemathesis.openapi.from_dict(document())
    operations = [found.ok() for found in schema.get_all_operations()]

    @settings(max_examples=120, deadline=None, suppress_health_check=list(HealthCheck))
    @given(strategies.one_of(*(operation.as_strategy() for operation in operations)))
    def send(case: Any) -> None:
        answer = case.call(base_url=live_server.url, headers=headers)
        case.validate_response(answer, checks=CHECKS)
        if answer.status_code >= 400:
            assert answer.json()["msg"]

    send()


@pytest.mark.django_db(transaction=True)
def test_the_existing_python_client_works(
    live_server: LiveServer, make_user: Callable[..., User], tmp_path: Path
) -> None:
    make_user("root", admin=True)
    root = MitoHttpClient(live_server.url)
    credentials = tmp_path / "credentials"
    assert root.connect(credential_path=credentials, user="root", password=PASSWORD) == "root"
    assert root.user_auth() == "root"
    root.admin_create_user(CreateUserReq(username="eve", md5_password=digest(), admin=False))

    eve = MitoHttpClient(live_server.url)
    eve.connect(credential_path=tmp_path / "eve", user="eve", password=PASSWORD)
    eve.user_create_group(CreateGroupReq(group_name="lab"))
    assert eve.get_user_groups_roles().groups == {"eve": "Admin", "lab": "Admin"}
    eve.update_user_group_roles("lab", UpdateUserGroupRoleReq(relations={"root": "Write"}))
    info = eve.get_group_by_name("lab")
    assert (info.group_name, info.users_in_group) == ("lab", {"eve": "Admin", "root": "Write"})
    assert root.get_group_by_name("lab").users_in_group is None
    eve.remove_user_group_roles("lab", RemoveUserGroupRoleReq(users={"root"}))
    assert eve.get_redis_connection_info().url is None

    changed = UserChangePasswordReq(old_md5_password=digest(), new_md5_password=digest("new"))
    eve.user_change_password("eve", changed)
    assert eve.user_auth() == "eve"
    root.admin_change_password("eve", AdminChangePasswordReq(new_md5_password=digest()))
    with pytest.raises(Exception, match="401"):
        eve.user_auth()
    eve.user_login(UserLoginArgs(username="eve", password=PASSWORD).to_req())
    assert eve.user_auth() == "eve"

    more = ChangeGroupStorageQuotaReq(storage_quota="+1GB")
    assert root.admin_update_group_storage_quota("lab", more).storage_quota == 17_000_000_000
    fewer = ChangeUserGroupQuota(group_quota="-7")
    assert root.admin_update_user_group_quota("eve", fewer).group_quota == 1
    with pytest.raises(Exception, match=r"403.*Resource quota exceeded"):
        eve.user_create_group(CreateGroupReq(group_name="more"))
    with pytest.raises(Exception, match="403"):
        root.admin_shutdown_coordinator(ShutdownReq(secret="wrong"))
    root.admin_delete_user("eve")
    with pytest.raises(Exception, match="401"):
        eve.user_auth()


@pytest.mark.django_db(transaction=True)
def test_the_existing_client_logs_in_again_when_its_credential_died(
    live_server: LiveServer, make_user: Callable[..., User], tmp_path: Path
) -> None:
    make_user("ada")
    credentials = tmp_path / "credentials"
    first = MitoHttpClient(live_server.url)
    first.connect(credential_path=credentials, user="ada", password=PASSWORD)
    second = MitoHttpClient(live_server.url)
    assert second.connect(credential_path=credentials, user="ada") == "ada"
    assert second.credential == first.credential
    make_user("bob")
    User.objects.filter(username="ada").update(token_generation=99)
    third = MitoHttpClient(live_server.url)
    assert third.connect(credential_path=credentials, user="ada", password=PASSWORD) == "ada"
    assert third.credential != first.credential
