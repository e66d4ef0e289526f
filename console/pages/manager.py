"""One manager: its page, its charts, whom it serves, and what an operator wants of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import reverse

from accounts.actors import Actor, user_actor
from accounts.models import User
from console.pages.shell import deed, done, is_confirmed, page, question, show
from console.panels.table import build
from console.panels.topics import Topic
from console.viewer import require_action, see_manager, viewer_of
from core.errors import InvalidInput, NotFound
from managers.selectors_metrics import read_history
from managers.services import wishes
from managers.services.attributes import put_groups, remove_groups
from mitosis_protocol.enums import ConsentState, DesiredState, Role, ShutdownOp
from mitosis_protocol.errors import InvalidValue
from mitosis_protocol.limits import MAX_ERROR_MESSAGE_CHARS
from runners.models import Runner
from runners.selectors import list_group_roles

SECTION: Final = "console-managers"
DEFAULT_REASON: Final = "from the console"
WINDOWS: Final = {"1h": 3600, "6h": 6 * 3600, "24h": 24 * 3600, "7d": 7 * 86400, "30d": 30 * 86400}
# What the charts draw; a history has about sixty numbers.
CHARTED: Final = (
    "system.cpu_usage_percent",
    "system.memory_used_bytes",
    "system.memory_total_bytes",
    "system.disk_used_bytes",
    "system.disk_total_bytes",
    "system.disk_io_read_bytes_per_sec",
    "system.disk_io_write_bytes_per_sec",
    "system.network_rx_bytes_per_sec",
    "system.network_tx_bytes_per_sec",
    "system.load_avg_1min",
    "worker_pool.workers_active",
    "worker_pool.workers_executing",
    "worker_pool.workers_crashes_per_hour",
    "ipc.fetch_p50_latency_us",
    "ipc.fetch_p95_latency_us",
)


@dataclass(frozen=True, slots=True)
class Act:
    """One action: what it means, and the service behind it."""

    meaning: str
    run: Callable[[Actor, Runner, str], None]
    asks_reason: bool = False


@page
def manager_page(request: HttpRequest, user: User, manager_uuid: UUID) -> HttpResponse:
    seen = see_manager(user, manager_uuid)
    node = seen.thing
    shown = build(Topic("manager", str(manager_uuid), viewer_of(user)))
    visible = set(viewer_of(user).group_names())
    roles = list_group_roles(node.pk)
    context = {
        "node": node,
        "runner": node.runner,
        "seen": seen,
        "regions": shown.html,
        "actions": [(verb, act.meaning) for verb, act in ACTS.items()] if seen.may_act else [],
        # A member sees his own groups' roles; who else uses the host is the Admins' business.
        "roles": {name: role for name, role in roles.items() if seen.may_act or name in visible},
        "pending": list_group_roles(node.pk, consent=ConsentState.PENDING) if seen.may_act else {},
        "all_roles": list(Role),
        "windows": list(WINDOWS),
        "is_quarantined": node.runner.desired_state is DesiredState.QUARANTINED,
    }
    return show(request, "manager", context, section=SECTION)


@page
def manager_series(request: HttpRequest, user: User, manager_uuid: UUID) -> HttpResponse:
    """Columns for the charts, as JSON."""
    node = see_manager(user, manager_uuid).thing
    window = request.GET.get("window", "1h")
    if window not in WINDOWS:
        raise InvalidInput(f"window: it has to be one of {', '.join(WINDOWS)}")
    history = read_history(node.pk, window_s=WINDOWS[window])
    series = {name: history.means[name] for name in CHARTED if name in history.means}
    at = [int(moment.timestamp()) for moment in history.at]
    return JsonResponse({"step_s": history.step_s, "at": at, "series": series})


@deed
def manager_act(request: HttpRequest, user: User, manager_uuid: UUID, verb: str) -> HttpResponse:
    runner = require_action(see_manager(user, manager_uuid)).runner
    act = ACTS.get(verb)
    if act is None:
        raise NotFound(f"Action {verb} not found")
    if not is_confirmed(request):
        return question(
            request,
            title=f"{verb.capitalize()} this manager?",
            text=f"{act.meaning} Manager {manager_uuid}.",
            back=reverse("console-manager", args=[manager_uuid]),
            asks_reason=act.asks_reason,
        )
    reason = request.POST.get("reason", "").replace("\x00", "").strip()[:MAX_ERROR_MESSAGE_CHARS]
    act.run(user_actor(user, request), runner, reason or DEFAULT_REASON)
    return done(request, f"{verb.capitalize()}: done", "console-manager", manager_uuid)


@deed
def manager_grant(request: HttpRequest, user: User, manager_uuid: UUID) -> HttpResponse:
    """Give a group a role on the manager; it counts once the group's side accepts."""
    runner = require_action(see_manager(user, manager_uuid)).runner
    name = request.POST.get("group", "").strip()
    try:
        role = Role.parse(request.POST.get("role", ""))
    except InvalidValue as error:
        raise InvalidInput(f"role: {error}") from error
    if not is_confirmed(request):
        return question(
            request,
            title=f"Give {name[:64]} {role.value} on this manager?",
            text="It counts once an Admin of that group accepts; at once if you are one.",
            back=reverse("console-manager", args=[manager_uuid]),
            fields={"group": name, "role": role.value},
        )
    consents = put_groups(
        actor=user_actor(user, request), asked_by=user, runner=runner, roles={name: role}
    )
    said = ", ".join(f"{group}: {consent.value}" for group, consent in consents.items())
    return done(request, f"Offered to {said}", "console-manager", manager_uuid)


@deed
def manager_ungrant(request: HttpRequest, user: User, manager_uuid: UUID) -> HttpResponse:
    runner = require_action(see_manager(user, manager_uuid)).runner
    name = request.POST.get("group", "").strip()
    if not is_confirmed(request):
        return question(
            request,
            title=f"Take this manager from {name[:64]}?",
            text="Its engagements for that group end at the scheduler's next pass.",
            back=reverse("console-manager", args=[manager_uuid]),
            fields={"group": name},
        )
    remove_groups(actor=user_actor(user, request), runner=runner, group_names=[name])
    return done(request, f"{name} has no role any more", "console-manager", manager_uuid)


def _drain(actor: Actor, runner: Runner, reason: str) -> None:
    wishes.drain_manager(actor=actor, runner=runner, reason=reason)


def _undrain(actor: Actor, runner: Runner, reason: str) -> None:
    wishes.undrain_manager(actor=actor, runner=runner)


def _quarantine(actor: Actor, runner: Runner, reason: str) -> None:
    wishes.quarantine_manager(actor=actor, runner=runner, reason=reason)


def _release(actor: Actor, runner: Runner, reason: str) -> None:
    wishes.release_manager(actor=actor, runner=runner)


def _shutdown(actor: Actor, runner: Runner, reason: str) -> None:
    wishes.shut_down_manager(actor=actor, runner=runner, op=ShutdownOp.GRACEFUL)


ACTS: Final = {
    "drain": Act("No new tasks; what runs may end.", _drain, asks_reason=True),
    "undrain": Act("Work again.", _undrain),
    "quarantine": Act("No tasks until it is released.", _quarantine, asks_reason=True),
    "release": Act("End the quarantine; the evidence so far is forgotten.", _release),
    "shutdown": Act("The agent leaves after what runs has ended.", _shutdown),
}
