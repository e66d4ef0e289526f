"""`python -m tests.e2e.console_screenshots [DIRECTORY]`: pictures of every page, light and dark.

Starts stores, a coordinator and an agent, lets a suite run, and writes to docs/img by default.
"""

import sys
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from tests.conftest import _make_buckets
from tests.e2e.agent_lab import AgentLab
from tests.e2e.console_lab import Campaign, console_lab, launch, log_in, start_campaign
from tests.harness import SERVICES

SIZE = {"width": 1280, "height": 800}
PHONE = {"width": 390, "height": 800}
MAX_BYTES = 150_000


def main(directory: Path) -> int:
    SERVICES.start()
    _make_buckets()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="mitosis-pictures-") as root,
            console_lab(Path(root)) as lab,
            sync_playwright() as playwright,
        ):
            browser = launch(playwright)
            if browser is None:
                print("There is no Chromium on this machine.")
                return 1
            _take_all(browser, lab, directory)
            browser.close()
    finally:
        SERVICES.stop()
    big = [one.name for one in directory.glob("console-*.png") if one.stat().st_size > MAX_BYTES]
    print(f"too big: {', '.join(big)}" if big else f"written to {directory}")
    return 1 if big else 0


def _take_all(browser: Browser, lab: AgentLab, directory: Path) -> None:
    earlier = start_campaign(lab, name="night sweep, learning rates", quick=6, failing=2)
    lab.user.call("DELETE", f"/tasks/{earlier.talker}")
    lab.wait_complete(earlier.suite)
    campaign = start_campaign(lab, name="resnet ablation", quick=500, failing=5)
    for scheme in ("light", "dark"):
        context = browser.new_context(
            base_url=lab.cluster.url, viewport=SIZE, color_scheme=scheme, locale="en-GB"
        )
        page = context.new_page()
        log_in(page, *lab.cluster.admin)
        for name, path in _pages(lab, campaign).items():
            page.set_viewport_size(PHONE if name == "phone" else SIZE)
            page.goto(path)
            page.wait_for_selector("#live[data-state=live]" if name != "access" else "main")
            page.wait_for_timeout(6000 if name in {"overview", "manager"} else 2500)
            page.screenshot(path=directory / f"console-{name}-{scheme}.png")
        context.close()


def _pages(lab: AgentLab, campaign: Campaign) -> dict[str, str]:
    [manager] = lab.managers()
    return {
        "overview": "/console/",
        "suites": "/console/suites",
        "suite": f"/console/suites/{campaign.suite}",
        "tasks": "/console/tasks?state=running",
        "task": f"/console/tasks/{campaign.talker}",
        "failures": "/console/failures",
        "managers": "/console/managers",
        "manager": f"/console/managers/{manager['uuid']}",
        "access": "/console/access",
        "phone": f"/console/suites/{campaign.suite}",
    }


if __name__ == "__main__":
    chosen = Path(sys.argv[1]) if len(sys.argv) > 1 else Path("docs/img")
    sys.exit(main(chosen))
