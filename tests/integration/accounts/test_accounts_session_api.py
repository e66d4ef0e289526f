"""Login, tokens and own password over HTTP, as existing clients use them."""

import base64
from collections.abc import Callable
from datetime import timedelta

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from django.conf import LazySettings
from django.test import Client

from accounts.keys import key_ring
from accounts.models import AuditEntry, User
from accounts.tokens import make_key_ring, mint, wrap
from core import clock
from mitosis_protocol.enums import TokenKind, UserState
from tests.integration.accounts.api_client import PASSWORD, Api, digest

pytestmark = pytest.mark.django_db


def test_login_answers_a_wrapped_token_that_auth_accepts(
    anonymous: Api, make_user: Callable[..., User]
) -> None:
    make_user("ada")
    answer = anonymous.login("ada")
    assert answer.status_code == 200
    token = answer.json()["token"]
    assert base64.b64decode(token, validate=True).count(b".") == 2
    who = Api(Client(), token).get("/auth")
    assert (who.status_code, who.content) == (200, b"ada")
    assert who.headers["Content-Type"].startswith("text/plain")


def test_the_raw_token_is_accepted_too(anonymous: Api, make_user: Callable[..., User]) -> None:
    make_user("ada")
    wrapped = anonymous.login("ada").json()["token"]
    raw = base64.b64decode(wrapped).decode()
    assert Api(Client(), raw).get("/auth").content == b"ada"


def test_login_without_retain_ends_all_earlier_tokens(ada: Api) -> None:
    newer = ada.login("ada").json()["token"]
    refused = ada.get("/auth")
    assert refused.status_code == 401
    assert refused.json()["msg"] == "Authentication error: Wrong credentials"
    assert refused.json()["code"] == "auth.revoked_token"
    assert Api(Client(), newer).get("/auth").status_code == 200


def test_login_with_retain_keeps_earlier_tokens(ada: Api) -> None:
    newer = ada.login("ada", retain=True).json()["token"]
    assert ada.get("/auth").status_code == 200
    assert Api(Client(), newer).get("/auth").status_code == 200


@pytest.mark.parametrize("username", ["ada", "nobody", "", "a b", "ada\n", "x" * 10_000])
def test_wrong_credentials_look_the_same_for_known_and_unknown_names(
    anonymous: Api, make_user: Callable[..., User], username: str
) -> None:
    make_user("ada")
    answer = anonymous.login(username, "wrong")
    assert answer.status_code == 401
    assert answer.json()["msg"] == "Authentication error: Wrong credentials"
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("state", [UserState.LOCKED, UserState.DELETED])
def test_a_user_who_is_not_active_is_refused_before_the_password_is_looked_at(
    anonymous: Api, make_user: Callable[..., User], state: UserState
) -> None:
    make_user("ada")
    User.objects.update(state=state)
    for password in (PASSWORD, "wrong"):
        answer = anonymous.login("ada", password)
        assert answer.status_code == 403
        assert answer.json()["msg"] == "Authentication error: Permission denied"


def test_a_token_of_a_user_who_is_not_active_is_refused_with_403(ada: Api) -> None:
    User.objects.update(state=UserState.LOCKED)
    assert ada.get("/auth").status_code == 403


@pytest.mark.parametrize(
    "header",
    [None, "", "Bearer", "Bearer ", "Basic YWRhOng=", "Bearer a b", "Bearer tok\x7fen", "token"],
)
def test_a_missing_or_unreadable_header_is_a_bad_request(
    anonymous: Api, header: str | None
) -> None:
    headers = {} if header is None else {"authorization": header}
    answer = anonymous.call("GET", "/auth", **headers)
    assert answer.status_code == 400
    assert answer.json()["code"] == "auth.missing"


@pytest.mark.parametrize("token", ["x", "YWJj", "a.b.c", base64.b64encode(b"a.b.c").decode()])
def test_an_unreadable_token_is_invalid(anonymous: Api, token: str) -> None:
    answer = Api(Client(), token).get("/auth")
    assert answer.status_code == 401
    assert answer.json()["msg"] == "Authentication error: Invalid token"


def test_a_token_in_the_address_is_not_looked_at(ada: Api, anonymous: Api) -> None:
    for name in ("token", "access_token", "authorization"):
        assert anonymous.get(f"/auth?{name}={ada.token}").status_code == 400


@pytest.mark.parametrize("address", ["", "unix:", "10.0.0.1, 10.0.0.2", "fe80::1%eth0", "::1"])
def test_odd_peer_addresses_do_not_break_the_audit_log(
    make_user: Callable[..., User], address: str
) -> None:
    make_user("ada")
    assert Api(Client(REMOTE_ADDR=address)).login("ada").status_code == 200


def test_tokens_of_other_kinds_are_no_users(make_user: Callable[..., User]) -> None:
    user = make_user("ada")
    for kind in (TokenKind.WORKER, TokenKind.MANAGER, TokenKind.DIRECT):
        token = mint(
            key_ring(),
            kind=kind,
            subject=user.username,
            generation=user.token_generation,
            now=clock.now(),
            lifetime=timedelta(hours=1),
        )
        assert Api(Client(), wrap(token)).get("/auth").status_code == 401


def test_a_key_being_rotated_out_is_accepted_while_it_is_listed(
    make_user: Callable[..., User], settings: LazySettings
) -> None:
    make_user("ada")
    old = Ed25519PrivateKey.generate()
    token = mint(
        make_key_ring(old),
        kind=TokenKind.USER,
        subject="ada",
        generation=1,
        now=clock.now(),
        lifetime=timedelta(hours=1),
    )
    assert Api(Client(), token).get("/auth").status_code == 401
    pem = old.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    settings.MITOSIS_EXTRA_PUBLIC_KEY_PEMS = [pem]
    assert Api(Client(), token).get("/auth").status_code == 200


def test_an_expired_token_says_so_in_its_code(ada: Api) -> None:
    later = clock.now() + timedelta(days=7, minutes=2)
    with clock.using(lambda: later):
        answer = ada.get("/auth")
    assert (answer.status_code, answer.json()["code"]) == (401, "auth.expired_token")


def test_a_bad_token_in_a_browser_is_a_page_not_a_crash(ada: Api) -> None:
    answer = Api(Client(), "nonsense").get("/users/groups", accept="text/html")
    assert answer.status_code == 401
    assert Api(Client()).get("/users/groups", accept="text/html").status_code == 400


def test_changing_the_password_rotates_and_answers_a_new_token(ada: Api) -> None:
    body = {"old_md5_password": digest(), "new_md5_password": digest("other")}
    answer = ada.post("/users/ada/password", body)
    assert answer.status_code == 200
    assert ada.get("/auth").status_code == 401
    assert Api(Client(), answer.json()["token"]).get("/auth").content == b"ada"
    assert ada.login("ada").status_code == 401
    assert ada.login("ada", "other").status_code == 200


def test_changing_the_password_needs_the_old_one_and_the_own_name(
    ada: Api, make_user: Callable[..., User]
) -> None:
    make_user("bob")
    wrong = {"old_md5_password": digest("wrong"), "new_md5_password": digest("other")}
    right = {"old_md5_password": digest(), "new_md5_password": digest("other")}
    assert ada.post("/users/ada/password", wrong).status_code == 401
    assert ada.post("/users/bob/password", right).status_code == 401
    assert ada.post("/users/nobody/password", right).status_code == 401
    assert ada.get("/auth").status_code == 200


def test_groups_and_redis(ada: Api) -> None:
    assert ada.get("/users/groups").json() == {"groups": {"ada": "Admin"}}
    assert ada.get("/redis").json() == {"url": None}


GOOD = {"username": "ada", "md5_password": digest()}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"username": 5}, "username"),
        ({"username": None}, "username"),
        ({"username": ["ada"]}, "username"),
        ({"md5_password": "secret"}, "md5_password"),
        ({"md5_password": digest()[:15]}, "md5_password"),
        ({"md5_password": [*digest(), 0]}, "md5_password"),
        ({"md5_password": [256] * 16}, "md5_password"),
        ({"md5_password": [-1] * 16}, "md5_password"),
        ({"md5_password": [1.5] * 16}, "md5_password"),
        ({"md5_password": ["1"] * 16}, "md5_password"),
        ({"md5_password": [True] * 16}, "md5_password"),
        ({"md5_password": {"0": 1}}, "md5_password"),
        ({"retain": "yes"}, "retain"),
        ({"retain": 1}, "retain"),
        ({"retain": None}, "retain"),
    ],
)
def test_a_body_of_the_wrong_shape_names_the_field(
    anonymous: Api, change: dict[str, object], field: str
) -> None:
    answer = anonymous.post("/login", GOOD | change)
    assert answer.status_code == 422
    assert field in answer.json()["msg"]
    assert {error["field"].split("[")[0].split(".")[0] for error in answer.json()["errors"]} == {
        field
    }


@pytest.mark.parametrize("missing", ["username", "md5_password"])
def test_missing_members_are_named(anonymous: Api, missing: str) -> None:
    answer = anonymous.post("/login", {k: v for k, v in GOOD.items() if k != missing})
    assert answer.status_code == 422
    assert missing in answer.json()["msg"]


@pytest.mark.parametrize("raw", [b"[]", b'"text"', b"5", b"null", b"true", b""])
def test_a_body_that_is_no_object(anonymous: Api, raw: bytes) -> None:
    answer = anonymous.client.generic("POST", "/login", raw, "application/json")
    assert answer.status_code == 422
    assert "msg" in answer.json()


@pytest.mark.parametrize(
    "raw",
    [
        b"{",
        b'{"username": "a\\u0000"}',
        b'{"username": NaN}',
        b'{"username": "\xff"}',
        b'{"username": "a", "username": "b"}',
        b"[" * 100_000,
        b'{"username": 1' + b"0" * 5000 + b"}",
    ],
)
def test_broken_json_is_a_bad_request(anonymous: Api, raw: bytes) -> None:
    answer = anonymous.client.generic("POST", "/login", raw, "application/json")
    assert answer.status_code == 400
    assert "msg" in answer.json()


def test_other_content_types_and_sizes_are_refused(anonymous: Api) -> None:
    form = anonymous.client.post("/login", {"username": "ada"})
    assert form.status_code == 415
    big = anonymous.post("/login", {"username": "x" * (2 * 1024 * 1024 + 1)})
    assert big.status_code == 413


def test_unknown_members_are_ignored(anonymous: Api, make_user: Callable[..., User]) -> None:
    make_user("ada")
    assert anonymous.login("ada", future=[1, 2]).status_code == 200


def test_wrong_methods_and_trailing_slashes(anonymous: Api) -> None:
    assert anonymous.get("/login").status_code == 405
    assert anonymous.post("/login/", GOOD).status_code == 404


def test_guessing_is_throttled_per_address_and_name(
    anonymous: Api, make_user: Callable[..., User]
) -> None:
    make_user("ada")
    make_user("bob")
    answers = [anonymous.login("ada", "wrong").status_code for _ in range(11)]
    assert answers == [401] * 10 + [429]
    refused = anonymous.login("ada")
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["Retry-After"]) <= 60
    assert anonymous.login("bob").status_code == 200
    elsewhere = Client(REMOTE_ADDR="10.1.2.3")
    assert Api(elsewhere).login("ada").status_code == 200


def test_guessing_the_old_password_is_throttled_by_the_same_count(ada: Api) -> None:
    body = {"old_md5_password": digest("wrong"), "new_md5_password": digest("other")}
    answers = [ada.post("/users/ada/password", body).status_code for _ in range(11)]
    assert answers == [401] * 10 + [429]


def test_successful_logins_are_not_throttled(
    anonymous: Api, make_user: Callable[..., User]
) -> None:
    make_user("ada")
    assert {anonymous.login("ada").status_code for _ in range(15)} == {200}


def test_logins_leave_a_trace_without_secrets(
    anonymous: Api, make_user: Callable[..., User]
) -> None:
    make_user("ada")
    last = AuditEntry.objects.order_by("-id").values_list("id", flat=True).first() or 0
    anonymous.login("ada", "wrong")
    token = anonymous.login("ada").json()["token"]
    entries = list(AuditEntry.objects.filter(id__gt=last).order_by("id"))
    assert [(entry.action, entry.outcome) for entry in entries] == [
        ("login", "wrong_credentials"),
        ("login", "ok"),
    ]
    assert {str(entry.ip) for entry in entries} == {"127.0.0.1"}
    assert all(entry.request_id for entry in entries)
    written = " ".join(str(vars(entry)) for entry in entries)
    assert token not in written
    assert str(digest()) not in written


def test_a_browser_session_works_and_needs_the_csrf_token(
    make_user: Callable[..., User],
) -> None:
    user = make_user("ada")
    browser = Client(enforce_csrf_checks=True)
    browser.force_login(user)
    assert browser.get("/auth").content == b"ada"
    body = b'{"group_name": "lab"}'
    assert browser.post("/groups", body, content_type="application/json").status_code == 403
    browser.get("/admin/login/")
    token = browser.cookies["mitosis_csrf"].value
    allowed = browser.post(
        "/groups", body, content_type="application/json", headers={"x-csrftoken": token}
    )
    assert allowed.status_code == 200
