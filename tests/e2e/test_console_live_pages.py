"""Every page of the console in Chromium while a real suite runs on an agent."""

import re
from collections import deque
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.e2e.agent_lab import AgentLab
from tests.e2e.console_lab import (
    MARKUP,
    Campaign,
    console_lab,
    launch,
    log_in,
    note_problems,
    start_campaign,
)
from tests.e2e.page_crawler import links
from tests.figures import Figure
from tests.harness import TestServices

pytestmark = [pytest.mark.e2e, pytest.mark.browser, pytest.mark.timeout(300)]

SOON_MS = 40_000  # on a machine that does other things as well
PRESSED_MS = 6000  # the list is read every four seconds
NAME = f"ablation {MARKUP}"


@pytest.fixture(scope="module")
def lab(services: TestServices, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AgentLab]:
    with console_lab(tmp_path_factory.mktemp("console")) as running:
        yield running


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        running = launch(playwright)
        if running is None:
            pytest.skip("no Chromium on this machine (make test installs it when run as root)")
        yield running
        running.close()


@pytest.fixture
def page(browser: Browser, lab: AgentLab) -> Iterator[Page]:
    """Logged in as the admin; ends with a look at everything the browser complained about."""
    context = browser.new_context(base_url=lab.cluster.url)
    page = context.new_page()
    problems = note_problems(page, lab.cluster.url)
    log_in(page, *lab.cluster.admin)
    yield page
    _close(context)
    assert problems == []


@pytest.fixture(scope="module")
def campaign(lab: AgentLab) -> Campaign:
    return start_campaign(lab, name=NAME)


def number(page: Page, name: str) -> int:
    """A number of the page; thousands are set apart by thin spaces."""
    text = page.locator(f"[data-number={name}]").first.inner_text()
    return int(re.sub(r"\D", "", text) or 0)


def grows(page: Page, name: str, above: int) -> None:
    """The number changes by itself: the script looks at the page, nobody loads it again."""
    page.wait_for_function(
        "([name, above]) => Number(document.querySelector(`[data-number=${name}]`)"
        ".textContent.replace(/\\D/g, '')) > above",
        arg=[name, above],
        timeout=SOON_MS,
    )


def confirm(page: Page, button: str, *, reason: str | None = None) -> None:
    """Press a button of the actions, then say yes."""
    page.get_by_role("button", name=button, exact=True).click()
    expect(page.locator("h1")).to_contain_text("?")
    if reason is not None:
        page.fill("input[name=reason]", reason)
    page.get_by_role("button", name="Yes").click()
    expect(page.locator(".note")).to_be_visible()


def stays_text(page: Page) -> None:
    assert page.evaluate("window.hit") is None


# Each would run by another door: a tag, an attribute, a link, a style, a template, an entity.
HOSTILE = (
    MARKUP,
    "<svg onload=window.hit=1>",
    "javascript:window.hit=1",
    '" onmouseover=window.hit=1 x="',
    "';window.hit=1;//",
    "</script><script>window.hit=1</script>",
    "{{constructor.constructor('window.hit=1')()}}",
    "<iframe srcdoc='<script>parent.hit=1</script>'>",
    "&lt;img src=x onerror=window.hit=1&gt;",
    "<style>@import 'javascript:window.hit=1'</style>",
    "<a href=javascript:window.hit=1>x</a>",
)
PAGES = 45


def test_nothing_that_people_wrote_runs_on_any_page(
    page: Page, lab: AgentLab, figure: Figure
) -> None:
    """Name, labels, command, output and reason of bad will; then the pages about them."""
    suite = lab.suite(name=HOSTILE[1], description="\n".join(HOSTILE), labels=list(HOSTILE))
    words = " ".join(HOSTILE)
    said = 'printf %s "$0"; printf %s "$0" >&2; exit 3'
    task = lab.submit(suite, [("sh", "-c", said, words)], labels=list(HOSTILE),
                      terminal_output=True)[0]  # fmt: skip
    assert lab.user.ended(task, within_s=90)["outcome"] == "failed"
    lab.post(f"/suites/{suite}/cancel", {"reason": words, "cancel_running_tasks": True})
    waiting = deque([f"/console/suites/{suite}", f"/console/tasks/{task}", "/console/", "/admin/",
                     "/console/failures", f"/suites/{suite}", f"/tasks/{task}"])  # fmt: skip
    seen, hits = set(waiting), 0
    while waiting and len(seen) - len(waiting) < PAGES:
        address = waiting.popleft()
        page.goto(address)
        page.wait_for_load_state("load")
        hits += page.evaluate("window.hit") is not None
        text = page.content()
        hits += len(page.query_selector_all("a[href^='javascript:'], [onload], [onerror]"))
        for target in links(text, address):
            if target not in seen:
                seen.add(target)
                waiting.append(target)
    figure("stored scripts that ran", hits, "pages", at_most=0)


def test_a_suite_is_followed_from_the_overview_to_its_failures(
    page: Page, lab: AgentLab, campaign: Campaign
) -> None:
    # The overview is the page we arrived at: its numbers begin to move without a reload.
    page.evaluate("window.mark = 1")
    grows(page, "running", 0)
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    expect(page.locator("[data-chart=throughput] canvas")).to_be_visible(timeout=SOON_MS)
    expect(page.locator("[data-region=suites]")).to_contain_text(NAME, timeout=SOON_MS)
    assert page.evaluate("window.mark") == 1
    stays_text(page)

    # A number leads to its list, and the list to the suite.
    page.locator("a.tile", has=page.locator("[data-number=live]")).click()
    expect(page).to_have_url(re.compile(r"/console/suites\?state=live"))
    page.get_by_role("link", name=NAME).click()
    expect(page.locator("h1")).to_have_text(NAME)
    page.evaluate("window.mark = 2")
    grows(page, "succeeded", number(page, "succeeded"))
    expect(page.locator("[data-region=hosts]")).to_contain_text("Executing", timeout=SOON_MS)
    expect(page.locator("[data-region=failures]")).to_contain_text("exit status 3", timeout=SOON_MS)
    expect(page.locator(".lanes rect").first).to_be_attached(timeout=SOON_MS)
    expect(page.locator("[data-explain]")).to_contain_text("Runners", timeout=SOON_MS)
    assert page.evaluate("window.mark") == 2
    stays_text(page)

    # Failures: who is to blame, and what the task itself said.
    page.locator("[data-region=failures] td.n a").first.click()
    expect(page.locator("[data-region=blame]")).to_contain_text("exit status 3")
    page.locator("[data-region=rows] tbody a").first.click()
    expect(page.locator("[data-state=failed]")).to_be_visible()
    expect(page.locator("[data-region=attempts]")).to_contain_text("rack-7")
    page.get_by_role("button", name="stderr").click()
    expect(page.locator("[data-lines]")).to_contain_text("<b>boom</b> on stderr", timeout=SOON_MS)
    expect(page.locator("[data-region=events]")).to_contain_text("ended")
    page.get_by_role("button", name="Rerun").click()
    page.get_by_role("button", name="Yes").click()
    expect(page.locator(".note")).to_contain_text("new run")
    stays_text(page)


def test_output_streams_can_be_searched_and_the_task_cancelled(
    page: Page, lab: AgentLab, campaign: Campaign
) -> None:
    page.goto("/console/tasks?state=running")
    link = page.locator(f"a[href='/console/tasks/{campaign.talker}']")
    expect(link).to_be_visible(timeout=SOON_MS)
    link.click()
    lines = page.locator("[data-lines] div")
    expect(lines.first).to_have_text("line 1 <b>bold</b>", timeout=SOON_MS)
    seen = lines.count()
    page.wait_for_function(
        "seen => document.querySelectorAll('[data-lines] div').length > seen + 3",
        arg=seen,
        timeout=SOON_MS,
    )
    page.fill("[data-search]", "LINE 2 ")
    expect(page.locator("[data-matches]")).to_have_text("1 lines")
    page.get_by_role("button", name="Next").click()
    expect(page.locator("[data-lines] .at")).to_have_text("line 2 <b>bold</b>")
    page.fill("[data-search]", "")
    confirm(page, "Cancel")
    # The page after the deed hears of the end by itself.
    expect(page.locator("[data-state=cancelled]")).to_be_visible(timeout=SOON_MS)
    expect(page.get_by_role("button", name="Cancel")).to_be_disabled()
    expect(page.get_by_role("button", name="Rerun")).to_be_enabled()
    stays_text(page)


def test_a_link_that_is_being_pressed_stays_where_it_is(page: Page, lab: AgentLab) -> None:
    suite = lab.suite(name=NAME, tags=["nobody has this"])
    lab.submit(suite, [("true",)] * 2)
    page.goto(f"/console/tasks?state=waiting&suite={suite}")
    rows = page.locator("[data-region=rows] tbody tr")
    expect(page.locator("#live")).to_have_attribute("data-state", "live")
    expect(rows).to_have_count(2)
    link = rows.first.get_by_role("link").first
    address = link.get_attribute("href")
    link.hover()
    page.mouse.down()
    lab.submit(suite, [("true",)], priority=9)
    page.wait_for_timeout(PRESSED_MS)
    expect(rows).to_have_count(2)
    page.mouse.up()
    page.wait_for_url(f"**{address}")
    page.go_back()
    expect(rows).to_have_count(3, timeout=SOON_MS)
    lab.post(f"/suites/{suite}/cancel", {"reason": "over", "cancel_running_tasks": True})


def test_managers_and_suites_are_acted_upon(page: Page, lab: AgentLab) -> None:
    page.goto("/console/managers")
    page.locator("[data-region=rows] tbody a").first.click()
    expect(page.locator("[data-chart=load] canvas")).to_be_visible(timeout=SOON_MS)
    badges = page.locator("[data-region=state] .badges")
    confirm(page, "Drain", reason=f"disk {MARKUP}")
    expect(badges).to_contain_text("Draining")
    expect(badges).to_contain_text(f"disk {MARKUP}")
    confirm(page, "Undrain")
    expect(badges).not_to_contain_text("Draining")
    suite = lab.suite(name=NAME)
    page.goto(f"/console/suites/{suite}")
    progress = page.locator("[data-region=progress]")
    # Only what makes sense now can be pressed.
    expect(page.get_by_role("button", name="Resume")).to_be_disabled()
    expect(page.get_by_role("button", name="Reopen")).to_be_disabled()
    confirm(page, "Pause")
    expect(progress).to_contain_text("paused")
    expect(page.get_by_role("button", name="Resume")).to_be_enabled()
    # What somebody else does shows here as well.
    lab.user.call("POST", f"/suites/{suite}/resume")
    expect(progress).not_to_contain_text("paused", timeout=SOON_MS)
    expect(page.get_by_role("button", name="Resume")).to_be_disabled()
    confirm(page, "Close")
    expect(progress).to_contain_text("Closed")
    expect(page.get_by_role("button", name="Close", exact=True)).to_be_disabled()
    expect(page.get_by_role("button", name="Reopen")).to_be_enabled()
    stays_text(page)


def test_pages_fit_a_phone_and_can_be_used_by_keyboard(
    page: Page, lab: AgentLab, campaign: Campaign
) -> None:
    page.set_viewport_size({"width": 390, "height": 800})
    [manager] = lab.managers()
    for path in (
        "/console/",
        "/console/suites",
        f"/console/suites/{campaign.suite}",
        f"/console/suites/{campaign.suite}/explain",
        "/console/tasks",
        f"/console/tasks/{campaign.talker}",
        "/console/failures",
        "/console/managers",
        f"/console/managers/{manager['uuid']}",
        "/console/access",
    ):
        page.goto(path)
        page.wait_for_selector("main h1", state="attached")
        wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
        assert wide <= 0, (path, wide)
        stays_text(page)
    page.keyboard.press("Tab")
    assert _focused(page) == "Skip to the content"
    page.keyboard.press("Tab")
    page.keyboard.press("Tab")
    assert _focused(page) == "Overview"
    page.keyboard.press("Enter")
    expect(page.locator("[data-number=running]")).to_be_visible()


def _focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent.trim()"))


def _close(context: BrowserContext) -> None:
    # Streams that are still open would be cut by the end of the browser and reported as errors.
    for page in context.pages:
        page.goto("about:blank")
    context.close()
