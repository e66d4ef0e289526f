"""One suite: its page, why it waits, and its life by hand."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.conf import settings
from django.db import transaction
from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from accounts.actors import Actor, user_actor
from accounts.models import User
from console.pages.explaining import explanation_context
from console.pages.shell import deed, done, is_confirmed, page, question, show
from console.panels.suite import topics_of
from console.panels.table import build
from console.viewer import require_action, require_role, see_suite
from core.errors import NotFound
from core.redaction import redact_value
from managers.services.engagement import forgive_preparations
from mitosis_protocol.enums import Outcome, Role, SuiteState
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from suites.models import TaskSuite
from suites.services.lifecycle import close_suite, reopen_suite
from suites.services.pausing import pause_suite, resume_suite
from tasks.services.explain import explain_suite
from tasks.services.suite_cancel import cancel_suite
from tasks.services.suite_hints import (
    tell_cancelled,
    tell_closed,
    tell_of_work,
    tell_paused,
    tell_resumed,
)
from tasks.services.suite_rerun import rerun_tasks

SECTION: Final = "console-suites"
RERUN_OUTCOMES: Final = (Outcome.FAILED, Outcome.TIMEOUT, Outcome.OOM, Outcome.UPSTREAM_FAILED)
DEFAULT_REASON: Final = "cancelled from the console"


@dataclass(frozen=True, slots=True)
class Act:
    """One action: what it means, and the service behind it."""

    meaning: str
    run: Callable[[Actor, TaskSuite, str], None]
    asks_reason: bool = False


@page
def suite_page(request: HttpRequest, user: User, suite_uuid: UUID) -> HttpResponse:
    seen = see_suite(user, suite_uuid)
    suite = seen.thing
    shown = {
        name: html for topic in topics_of(suite_uuid) for name, html in build(topic).html.items()
    }
    context = {
        "suite": suite,
        "seen": seen,
        "regions": shown,
        "actions": [(verb, act.meaning) for verb, act in ACTS.items()] if seen.may_act else [],
        "may_rerun": seen.role is not None and seen.role.allows(Role.WRITE),
        "is_cancelled": suite.state is SuiteState.CANCELLED,
        "hooks": redact_value({"preparation": suite.env_preparation, "cleanup": suite.env_cleanup}),
    }
    return show(request, "suite", context, section=SECTION)


@page
def suite_explain(request: HttpRequest, user: User, suite_uuid: UUID) -> HttpResponse:
    seen = see_suite(user, suite_uuid)
    suite = seen.thing
    # An operator outside of the group is told what its creator would be.
    asker = user if seen.is_member else suite.creator
    context = explanation_context(explain_suite(user=asker, suite=suite))
    back = reverse("console-suite", args=[suite_uuid])
    return show(request, "explain", {**context, "title": suite, "back": back}, section=SECTION)


@deed
def suite_act(request: HttpRequest, user: User, suite_uuid: UUID, verb: str) -> HttpResponse:
    """`POST`, first to ask and then, confirmed, to act."""
    suite = require_action(see_suite(user, suite_uuid))
    act = ACTS.get(verb)
    if act is None:
        raise NotFound(f"Action {verb} not found")
    if not is_confirmed(request):
        return question(
            request,
            title=f"{verb.capitalize()} {suite}?",
            text=act.meaning,
            back=reverse("console-suite", args=[suite_uuid]),
            asks_reason=act.asks_reason,
        )
    reason = request.POST.get("reason", "").replace("\x00", "").strip()
    act.run(user_actor(user, request), suite, reason[:MAX_ERROR_MESSAGE_CHARS])
    return done(request, f"{verb.capitalize()}: done", "console-suite", suite_uuid)


@deed
def suite_rerun(request: HttpRequest, user: User, suite_uuid: UUID) -> HttpResponse:
    """New tasks in the name of this user, so it takes Write in the group, operator or not."""
    suite = require_role(see_suite(user, suite_uuid), Role.WRITE)
    if not is_confirmed(request):
        return question(
            request,
            title=f"Run failed tasks of {suite} again?",
            text="Each failed task that was not run again yet becomes a new task.",
            back=reverse("console-suite", args=[suite_uuid]),
        )
    made = rerun_tasks(
        actor=user_actor(user, request), user=user, suite=suite, outcomes=RERUN_OUTCOMES
    )
    if made.tasks:
        tell_of_work(suite)
    more = ", and there are more: ask again" if made.has_more else ""
    text = f"{len(made.tasks)} tasks run again{more}"
    return done(request, text, "console-suite", suite_uuid)


def _close(actor: Actor, suite: TaskSuite, reason: str) -> None:
    close_suite(actor=actor, suite=suite)
    tell_closed(suite)


def _reopen(actor: Actor, suite: TaskSuite, reason: str) -> None:
    reopen_suite(actor=actor, suite=suite)


def _pause(actor: Actor, suite: TaskSuite, reason: str) -> None:
    pause_suite(actor=actor, suite=suite)
    tell_paused(suite)


def _resume(actor: Actor, suite: TaskSuite, reason: str) -> None:
    with transaction.atomic():
        resume_suite(actor=actor, suite=suite)
        forgive_preparations(suite)
    tell_resumed(suite)


def _cancel(actor: Actor, suite: TaskSuite, reason: str) -> None:
    text, batch = reason or DEFAULT_REASON, settings.MITOSIS.sweep_batch
    cancel_suite(actor=actor, suite=suite, reason=text, stop_running=True, batch=batch)
    tell_cancelled(suite, reason=text, stop_running=True)


ACTS: Final = {
    "pause": Act("Hand out nothing more; what runs goes on.", _pause),
    "resume": Act("End a pause or a block; failures so far are forgiven.", _resume),
    "close": Act("No more tasks are expected: it completes when the last one ends.", _close),
    "reopen": Act("Take tasks again.", _reopen),
    "cancel": Act(
        "Cancel the suite with all its tasks, for good. Running ones are stopped.",
        _cancel,
        asks_reason=True,
    ),
}
