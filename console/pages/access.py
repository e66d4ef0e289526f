"""Which group may use which manager, and the questions that wait for an answer."""

from typing import Final
from uuid import UUID

from django.http import HttpRequest, HttpResponse
from django.urls import reverse

from accounts.actors import user_actor
from accounts.models import User
from accounts.selectors import access_group
from console.pages.shell import deed, done, is_confirmed, page, question, show
from console.selectors.grants import MAX_SHOWN, read_grants, read_pending
from console.viewer import viewer_of
from core.errors import InvalidInput
from managers.selectors import get_applicant
from managers.services.attributes import decide_consent
from mitosis_protocol.enums import Role

SECTION: Final = "console-access"
_ANSWERS: Final = {"accept": True, "refuse": False}


@page
def access_page(request: HttpRequest, user: User) -> HttpResponse:
    viewer = viewer_of(user)
    after = request.GET.get("after", "").replace("\x00", "")
    context = {
        "page": read_grants(user, viewer, after=after),
        "pending": read_pending(user, viewer),
        "shown_count": MAX_SHOWN,
        "after": after,
    }
    return show(request, "access", context, section=SECTION)


@deed
def consent(request: HttpRequest, user: User, manager_uuid: UUID, group: str) -> HttpResponse:
    """A group's answer takes Admin in that group, operator or not."""
    asked = access_group(user, group, Role.ADMIN).group
    runner = get_applicant(asked, manager_uuid)
    answer = request.POST.get("answer", "")
    if answer not in _ANSWERS:
        raise InvalidInput("answer: it has to be accept or refuse")
    if not is_confirmed(request):
        return question(
            request,
            title=f"{answer.capitalize()} this manager for {group}?",
            text=f"Manager {manager_uuid} of {runner.owner.username} asks to serve {group}.",
            back=reverse("console-access"),
            fields={"answer": answer},
        )
    decided = decide_consent(
        actor=user_actor(user, request),
        decided_by=user,
        runner=runner,
        group=asked,
        accept=_ANSWERS[answer],
    )
    return done(request, f"{group}: {decided.value}", "console-access")
