"""Every answer is protected, and Django's own pages work under that protection."""

import re

import pytest
from django.conf import settings
from django.test import AsyncClient, Client

from accounts.actors import SYSTEM
from accounts.models import User
from accounts.password import md5_of
from accounts.services.users import create_user
from mitosis_site.debug_pages import SecretFilter

PASSWORD = "a long enough password"
STRICT = (
    "default-src 'self'",
    "script-src 'self'",
    "style-src 'self'",
    "object-src 'none'",
    "base-uri 'none'",
    "frame-ancestors 'none'",
)
PAGES = (
    "/",
    "/healthz",
    "/admin/login/",
    "/admin/",
    "/api/docs",
    "/api/schema",
    "/static/site/site.css",
    "/nothing/here",
    "/auth",
)


@pytest.fixture
def admin(db: None, clean_redis: object) -> User:
    return create_user(
        actor=SYSTEM, username="operator", md5_password=md5_of(PASSWORD), is_admin=True
    )


def directives(header: str) -> list[str]:
    return [part.strip() for part in header.split(";")]


@pytest.mark.django_db
@pytest.mark.parametrize("path", PAGES)
def test_every_answer_carries_the_protecting_headers(path: str, client: Client):
    headers = client.get(path).headers
    assert set(STRICT) <= set(directives(headers["Content-Security-Policy"]))
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Referrer-Policy"] == "same-origin"
    assert headers["Cross-Origin-Opener-Policy"] == "same-origin"
    assert re.fullmatch(r"[0-9a-f]{32}", headers["X-Request-ID"])


@pytest.mark.parametrize("path", PAGES)
async def test_the_headers_are_the_same_on_the_event_loop(path: str, async_db: None):
    headers = (await AsyncClient().get(path)).headers
    assert set(STRICT) <= set(directives(headers["Content-Security-Policy"]))
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert re.fullmatch(r"[0-9a-f]{32}", headers["X-Request-ID"])


def test_the_browsable_api_may_have_style_attributes_and_nothing_more(client: Client, admin: User):
    client.force_login(admin)
    response = client.get("/users/groups", headers={"Accept": "text/html"})
    assert response.headers["Content-Type"].startswith("text/html")
    policy = directives(response.headers["Content-Security-Policy"])
    assert "style-src-attr 'unsafe-inline'" in policy
    assert set(STRICT) <= set(policy)
    assert inline_scripts(response.content.decode()) == []


@pytest.mark.parametrize("path", ["/", "/admin/", "/admin/accounts/user/", "/api/docs"])
def test_no_page_has_a_script_a_handler_or_a_style_inside(path: str, client: Client, admin: User):
    client.force_login(admin)
    response = client.get(path)
    assert response.status_code == 200
    html = response.content.decode()
    assert inline_scripts(html) == []
    assert re.findall(r"<style|\sstyle=|\son[a-z]+=\"|javascript:", html) == []
    assert re.findall(r"(?:src|href)=\"(?:https?:)?//", html) == []


def inline_scripts(html: str) -> list[str]:
    """Scripts without a source; blocks of data are none."""
    tags = re.findall(r"<script\b[^>]*>", html)
    return [tag for tag in tags if "src=" not in tag and "application/json" not in tag]


def test_the_documentation_gets_its_start_script_as_a_file(client: Client):
    page = client.get("/api/docs").content.decode()
    [script] = re.findall(r'src="(/api/docs\?script=[^"]*)"', page)
    response = client.get(script)
    assert response.status_code == 200
    assert "SwaggerUIBundle" in response.content.decode()
    assert "javascript" in response.headers["Content-Type"]


def test_all_files_of_the_pages_are_served_from_the_source_tree(client: Client, admin: User):
    client.force_login(admin)
    for path in ("/", "/admin/", "/api/docs"):
        files = re.findall(r'"(/static/[^"]+)"', client.get(path).content.decode())
        assert files
        assert {client.get(file).status_code for file in files} == {200}


def test_static_files_answer_ranges_and_unchanged(client: Client):
    whole = client.get("/static/site/site.css")
    part = client.get("/static/site/site.css", headers={"Range": "bytes=0-4"})
    assert (part.status_code, part.content) == (206, whole.content[:5])
    again = client.get("/static/site/site.css", headers={"If-None-Match": whole.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get("/static/../manage.py").status_code == 404


def test_the_console_login_works_with_the_plain_password(admin: User):
    browser = Client(enforce_csrf_checks=True)
    page = browser.get("/admin/login/?next=/admin/")
    assert page.status_code == 200
    assert "Mitosis" in page.content.decode()
    form = {"username": "operator", "password": PASSWORD, "next": "/admin/"}
    refused = browser.post("/admin/login/", form)
    assert refused.status_code == 403
    assert "This form has expired" in refused.content.decode()
    form["csrfmiddlewaretoken"] = browser.cookies[settings.CSRF_COOKIE_NAME].value
    answer = browser.post("/admin/login/", form)
    assert (answer.status_code, answer.headers["Location"]) == (302, "/admin/")
    cookie = answer.cookies[settings.SESSION_COOKIE_NAME]
    assert cookie["httponly"] is True
    assert cookie["samesite"] == "Lax"
    assert "operator" in browser.get("/admin/").content.decode()


async def test_csrf_and_sessions_hold_on_the_event_loop(async_db: None, clean_redis: object):
    await User.objects.acreate(username="nobody-yet")
    browser = AsyncClient(enforce_csrf_checks=True)
    await browser.get("/admin/login/")
    form = {"username": "nobody-yet", "password": PASSWORD}
    assert (await browser.post("/admin/login/", form)).status_code == 403
    form["csrfmiddlewaretoken"] = browser.cookies[settings.CSRF_COOKIE_NAME].value
    refused = await browser.post("/admin/login/", form)
    assert refused.status_code == 200
    assert "errornote" in refused.content.decode()

    await browser.aforce_login(await User.objects.aget(username="nobody-yet"))
    await User.objects.filter(username="nobody-yet").aupdate(is_staff=True)
    assert (await browser.get("/admin/")).status_code == 200
    form = {"csrfmiddlewaretoken": form["csrfmiddlewaretoken"]}
    assert (await browser.post("/admin/logout/", form)).status_code == 200
    assert (await browser.get("/admin/")).status_code == 302


def test_an_unknown_path_is_a_problem_body_without_redirects(client: Client):
    for path in ("/nothing", "/nothing/", "/admin/nothing", "/admin/nothing/at/all/"):
        response = client.get(path)
        assert response.status_code == 404
        assert response.json()["code"] == "request.not_found"


@pytest.mark.django_db
def test_the_api_below_admin_is_not_the_console(client: Client):
    refused = client.post("/admin/users", "{}", content_type="application/json")
    assert refused.status_code in {400, 401}
    assert "msg" in refused.json()
    assert client.get("/admin/").headers["Location"].startswith("/admin/login/")
    assert client.get("/admin").headers["Location"] == "/admin/"


def test_debug_pages_hide_every_address_with_a_password(settings):
    settings.REDIS_URL = "redis://:canary-11@h/0"
    settings.DATABASE_URL = "postgresql://u:canary-11@h/db"
    shown = SecretFilter().get_safe_settings()
    assert "canary-11" not in repr(shown)
    for secret in (settings.SECRET_KEY, settings.S3_SECRET_ACCESS_KEY, settings.REDIS_URL):
        assert secret not in repr(shown)


def test_a_foreign_host_name_is_refused(client: Client):
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 400


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("deploy-42.step_7", True),
        ("short", False),
        ("x" * 65, False),
        ("with space in it", False),
        ('inject"quote"', False),
    ],
)
def test_a_harmless_request_id_of_the_caller_is_kept(given: str, kept: bool, client: Client):
    answered = client.get("/healthz", headers={"X-Request-ID": given}).headers["X-Request-ID"]
    assert (answered == given) is kept
