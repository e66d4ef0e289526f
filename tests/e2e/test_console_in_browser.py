"""The console as an operator sees it, in headless Chromium."""

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.browser]


def _log_in(page: Page, cluster: Cluster) -> None:
    username, password = cluster.admin
    page.goto("/admin/login/?next=/admin/")
    page.fill("input[name=username]", username)
    page.fill("input[name=password]", password)
    page.click("input[type=submit]")


def test_the_generated_admin_logs_into_the_console(page: Page, cluster: Cluster):
    _log_in(page, cluster)
    expect(page.locator("#user-tools")).to_contain_text(cluster.admin[0])
    expect(page.locator("#content")).to_contain_text("Users")


def test_a_wrong_password_is_refused(page: Page, cluster: Cluster):
    page.goto("/admin/")
    page.fill("input[name=username]", cluster.admin[0])
    page.fill("input[name=password]", "wrong")
    page.click("input[type=submit]")
    expect(page.locator(".errornote")).to_be_visible()


def test_the_start_page_leads_to_console_and_api(page: Page):
    page.goto("/")
    expect(page.get_by_role("link", name="Console")).to_be_visible()
    expect(page.get_by_role("link", name="API documentation")).to_be_visible()


def test_the_api_documentation_renders_without_the_internet(page: Page):
    page.goto("/api/docs")
    expect(page.locator(".swagger-ui .info")).to_be_visible(timeout=15_000)
