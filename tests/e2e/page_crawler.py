"""Everything a logged-in operator can click at: the console and the admin site, page by page."""

import re
from collections import deque
from collections.abc import Iterator
from html import unescape
from urllib.parse import urldefrag, urljoin

import httpx2

from tests.e2e.cluster import Cluster

_LINK = re.compile(r'href="([^"]+)"')
_SKIPPED = re.compile(r"logout|jsi18n|\?o=|/delete/|events$|\.css|\.js|password")
_CSRF = re.compile(r'name="csrfmiddlewaretoken" value="([^"]+)"')


def log_in(cluster: Cluster) -> httpx2.Client:
    """The admin's session in a browser without a script."""
    http = httpx2.Client(base_url=cluster.url, timeout=30, follow_redirects=True)
    username, password = cluster.admin
    form = http.get("/console/login").text
    found = _CSRF.search(form)
    assert found is not None
    body = {"csrfmiddlewaretoken": found[1], "username": username, "password": password}
    answer = http.post("/console/login", data=body, headers={"Referer": f"{cluster.url}/"})
    assert answer.status_code == 200, answer.text[:500]
    assert "mitosis_session" in http.cookies, answer.text[:500]
    return http


def links(page: str, address: str) -> Iterator[str]:
    """Addresses below /console and /admin that a page leads to."""
    for href in _LINK.findall(page):
        target = urldefrag(urljoin(address, unescape(href)))[0]
        if target.startswith(("/console", "/admin")) and not _SKIPPED.search(target):
            yield target


def pages(http: httpx2.Client, *starts: str, most: int) -> Iterator[tuple[str, str]]:
    """Address and text of each page, breadth first."""
    waiting, seen = deque(starts), set(starts)
    while waiting and most:
        address = waiting.popleft()
        answer = http.get(address)
        most -= 1
        assert answer.status_code < 500, (address, answer.status_code)
        if "text/html" not in answer.headers.get("content-type", ""):
            continue
        yield address, answer.text
        for target in links(answer.text, address):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
