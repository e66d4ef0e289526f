"""Chromium finds nothing to block: no page of ours asks for what the policy refuses."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Response, sync_playwright

from tests.browser_setup import find_chromium
from tests.e2e.cluster import Cluster
from tests.harness import TestServices

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


@pytest.fixture(scope="module")
def site(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("site")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Closed with the module: an open one would keep an event loop from later tests."""
    program = find_chromium()
    if program is None:
        pytest.skip("no Chromium on this machine (make test installs it when run as root)")
    arguments = ["--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=program, args=arguments)
        yield running
        running.close()


@pytest.fixture
def complaints() -> list[str]:
    return []


@pytest.fixture
def page(browser: Browser, site: Cluster, complaints: list[str]) -> Iterator[Page]:
    """Logged in as the admin; whatever the browser complains about is collected."""
    context = browser.new_context(base_url=site.url)
    page = context.new_page()

    def note_failed(response: Response) -> None:
        if response.status >= 400:
            complaints.append(f"{response.status} {response.url}")

    page.on("pageerror", lambda error: complaints.append(f"{page.url}: {error}"))
    page.on(
        "console",
        lambda said: complaints.append(f"{page.url}: {said.text}") if said.type == "error" else 0,
    )
    page.on("response", note_failed)
    username, password = site.admin
    page.goto("/admin/login/?next=/admin/")
    page.fill("input[name=username]", username)
    page.fill("input[name=password]", password)
    page.click("input[type=submit]")
    page.wait_for_selector("#user-tools")
    yield page
    context.close()


def test_every_section_and_form_of_the_console(page: Page, complaints: list[str]):
    hrefs = page.eval_on_selector_all("#content a", "all => all.map(a => a.getAttribute('href'))")
    own = [href for href in dict.fromkeys(hrefs) if href.startswith("/admin/")]
    assert len(own) > 3
    for href in own:
        page.goto(href)
        page.wait_for_load_state("networkidle")
    assert complaints == []


def test_the_browsable_api(page: Page, complaints: list[str]):
    page.goto("/users/groups")
    page.wait_for_load_state("networkidle")
    assert page.title().endswith("Mitosis")
    assert page.locator(".response-info").is_visible()
    # The page's own script opens this menu, so it runs.
    page.click(".format-selection .dropdown-toggle")
    assert page.locator(".format-selection .dropdown-menu").is_visible()
    assert complaints == []


def test_the_api_documentation_opens_an_operation(page: Page, complaints: list[str]):
    page.goto("/api/docs")
    page.wait_for_selector(".swagger-ui .info", timeout=15_000)
    page.click(".opblock-summary >> nth=0")
    page.wait_for_selector(".opblock-body")
    assert complaints == []


def test_a_script_that_gets_into_a_page_does_not_run(page: Page, complaints: list[str]):
    page.goto("/")
    ran = page.evaluate(
        """() => {
            document.body.insertAdjacentHTML('beforeend', '<img src=x onerror="window.hit = 1">');
            const script = document.createElement('script');
            script.textContent = 'window.hit = 2';
            document.body.append(script);
            return new Promise(done => setTimeout(() => done(window.hit ?? 0), 300));
        }"""
    )
    assert ran == 0
    assert any("Content Security Policy" in text for text in complaints)
