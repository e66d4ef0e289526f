"""A coordinator with an agent and a suite at work, and Chromium looking at the console."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, ConsoleMessage, Page, Playwright

from tests.browser_setup import find_chromium
from tests.e2e.agent_lab import BRISK, AgentLab
from tests.e2e.cluster import Cluster

ARGUMENTS = (
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
)
MARKUP = "<script>window.hit=1</script><img src=x onerror=window.hit=1>\"'&amp;"
# Writes for a minute, a line each time, some of it like markup; ends early when it is told to.
TALKER = 'i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo "line $i <b>bold</b>"; sleep 0.3; done'


@dataclass(frozen=True)
class Campaign:
    """A suite and the task of it that keeps writing."""

    suite: str
    talker: str


@contextmanager
def console_lab(root: Path) -> Iterator[AgentLab]:
    """A coordinator and one agent that is connected."""
    with Cluster(root, environment=BRISK) as cluster:
        lab = AgentLab(cluster)
        try:
            with lab.agent("one", "--labels", "rack-7"):
                lab.wait_for_managers(1)
                yield lab
        finally:
            lab.close()


def start_campaign(lab: AgentLab, *, name: str, quick: int = 40, failing: int = 4) -> Campaign:
    """One task that talks, many that end soon, a few that fail; a hook before and one after."""
    suite = lab.suite(
        name=name,
        workers=3,
        prefetch=2,
        description="A campaign to look at",
        labels=["demo"],
        env_preparation={"args": ["sh", "-c", "sleep 0.5"], "timeout": "1m"},
        env_cleanup={"args": ["true"], "timeout": "1m"},
    )
    talker = lab.sh(suite, TALKER, terminal_output=True, priority=9)
    boom = "echo '<b>boom</b> on stderr' >&2; exit 3"
    lab.submit(suite, [("sh", "-c", boom)] * failing, terminal_output=True, priority=5)
    lab.submit(suite, [("sleep", "0.5")] * quick)
    return Campaign(suite, talker)


def launch(playwright: Playwright) -> Browser | None:
    """None on a machine without Chromium."""
    program = find_chromium()
    if program is None:
        return None
    return playwright.chromium.launch(executable_path=program, args=list(ARGUMENTS))


def log_in(page: Page, name: str, password: str) -> None:
    page.goto("/console/login?next=/console/")
    page.fill("input[name=username]", name)
    page.fill("input[name=password]", password)
    page.click("button.primary")
    page.wait_for_selector("[data-number=running]")


def note_problems(page: Page, own: str) -> list[str]:
    """Collects script errors, reports of the security policy, and requests to others."""
    problems: list[str] = []

    def said(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            problems.append(f"{page.url}: {message.text}")

    page.on("pageerror", lambda error: problems.append(f"{page.url}: script error: {error}"))
    page.on("console", said)
    page.on(
        "request",
        lambda request: (
            None
            if request.url.startswith((own, "data:", "blob:"))
            else problems.append(f"request to {request.url}")
        ),
    )
    return problems
