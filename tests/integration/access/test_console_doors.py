"""Every page of the console, found in its URL configuration: admins only, by session only."""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib import admin
from django.test import Client
from django.urls import URLPattern, URLResolver

from accounts.services.sessions import issue_user_token
from tests.integration.workers.people import new_user

# Logging in and out, and the texts of the date pickers.
OPEN = frozenset({"login", "logout", "jsi18n"})


def pages(patterns: list[Any] | None = None, before: str = "/admin/") -> Iterator[tuple[str, str]]:
    for one in admin.site.get_urls() if patterns is None else patterns:
        text = before + str(one.pattern)
        if isinstance(one, URLResolver):
            yield from pages(one.url_patterns, text)
        elif isinstance(one, URLPattern) and one.name not in OPEN and "(?P" not in text:
            filled = text.replace("<path:object_id>", "1").replace("<id>", "1")
            for kind in ("int", "str", "path", "uuid"):
                while f"<{kind}:" in filled:
                    start = filled.index(f"<{kind}:")
                    filled = filled[:start] + "1" + filled[filled.index(">", start) + 1 :]
            yield str(one.name), filled


@pytest.mark.django_db
def test_nobody_but_admins_sees_or_posts_to_a_page_of_the_console() -> None:
    user, root = new_user("ada"), new_user("root", admin=True)
    plain, nobody = Client(), Client()
    plain.force_login(user, "accounts.backends.ConsoleBackend")
    token = {"authorization": f"Bearer {issue_user_token(root)}"}
    found = list(pages())
    assert len(found) > 40
    for name, page in found:
        for answer in (
            nobody.get(page),
            nobody.post(page),
            plain.get(page),
            plain.post(page),
            nobody.get(page, headers=token),
        ):
            assert answer.status_code in {302, 403, 404, 405}, (name, page, answer.status_code)
            if answer.status_code == 302:
                assert answer.headers["Location"].startswith("/admin/login/"), (name, page)
