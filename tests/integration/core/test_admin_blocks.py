"""Console building blocks: no hand-made changes, audited actions, pages without full counts."""

import pytest
from django.contrib.admin import AdminSite
from django.contrib.messages import get_messages
from django.contrib.messages.storage.fallback import FallbackStorage
from django.db import connection
from django.test import RequestFactory
from django.test.utils import CaptureQueriesContext

from core import admin as core_admin
from core.admin import AuditedAction, BoundedPaginator, ReadOnlyAdmin, register_audit_writer
from core.errors import Conflict


@pytest.fixture
def request_with_messages():
    request = RequestFactory().post("/admin/")
    request.session = {}
    request._messages = FallbackStorage(request)
    return request


@pytest.fixture
def audit(monkeypatch):
    lines = []

    def write(request, *, action, target, outcome):
        lines.append((action, str(target), outcome))

    monkeypatch.setattr(core_admin, "_audit_writer", None)
    register_audit_writer(write)
    return lines


def test_nobody_adds_changes_or_deletes_by_hand(campaigns, request_with_messages):
    page = ReadOnlyAdmin(campaigns, AdminSite())
    row = campaigns.objects.create(name="a")
    for permission in (
        page.has_add_permission,
        page.has_change_permission,
        page.has_delete_permission,
    ):
        assert permission(request_with_messages) is False
    assert page.has_change_permission(request_with_messages, row) is False
    assert page.has_delete_permission(request_with_messages, row) is False


def test_a_page_never_counts_the_whole_table(campaigns, monkeypatch):
    monkeypatch.setattr(core_admin, "MAX_LISTED_ROWS", 5)
    campaigns.objects.bulk_create(campaigns(name=str(n)) for n in range(8))
    paginator = BoundedPaginator(campaigns.objects.order_by("-pk"), 2)
    with CaptureQueriesContext(connection) as queries:
        assert paginator.count == 5
    assert "LIMIT 5" in queries[0]["sql"]
    assert "ORDER BY" not in queries[0]["sql"]
    assert paginator.num_pages == 3
    assert [row.name for row in paginator.page(1)] == ["7", "6"]


def test_short_tables_and_lists_are_counted_exactly(campaigns):
    campaigns.objects.create(name="a")
    assert BoundedPaginator(campaigns.objects.order_by("pk"), 10).count == 1
    assert BoundedPaginator([1, 2, 3], 10).count == 3


def test_lists_use_the_cheap_paginator_and_a_stable_order(campaigns):
    page = ReadOnlyAdmin(campaigns, AdminSite())
    assert page.paginator is BoundedPaginator
    assert page.show_full_result_count is False
    assert page.ordering == ("-pk",)


def test_each_row_of_an_action_is_tried_audited_and_reported(
    campaigns, request_with_messages, audit
):
    for name in ("a", "bad", "c"):
        campaigns.objects.create(name=name)

    def close(row):
        if row.name == "bad":
            raise Conflict("it has running tasks")

    page = AuditedAction(campaigns, AdminSite())
    done = page.run_action(
        request_with_messages, campaigns.objects.order_by("pk"), "suite.close", close
    )
    assert done == 2
    assert audit == [
        ("suite.close", "a", "ok"),
        ("suite.close", "bad", "request.conflict"),
        ("suite.close", "c", "ok"),
    ]
    shown = [str(message) for message in get_messages(request_with_messages)]
    assert shown == ["bad: it has running tasks", "suite.close: 2 done"]


def test_a_bug_in_an_action_is_not_swallowed(campaigns, request_with_messages, audit):
    campaigns.objects.create(name="a")
    page = AuditedAction(campaigns, AdminSite())

    def broken(row):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        page.run_action(request_with_messages, campaigns.objects.all(), "x", broken)
    assert audit == []


def test_an_action_that_cannot_be_audited_does_not_run(
    campaigns, request_with_messages, monkeypatch
):
    monkeypatch.setattr(core_admin, "_audit_writer", None)
    campaigns.objects.create(name="a")
    ran = []
    page = AuditedAction(campaigns, AdminSite())
    with pytest.raises(RuntimeError, match="audit writer"):
        page.run_action(request_with_messages, campaigns.objects.all(), "x", ran.append)
    assert ran == []
