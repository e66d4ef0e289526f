"""Filters of suites that compose; what Django calls a model manager is made from them."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Self

from django.db import models

from mitosis_protocol.enums import SuiteState

if TYPE_CHECKING:
    from suites.models import TaskSuite  # noqa: F401 - ruff does not see the quoted parameter

LIVE = (SuiteState.OPEN, SuiteState.CLOSED)


class SuiteQuerySet(models.QuerySet["TaskSuite"]):
    """Everything here narrows; nothing orders or limits."""

    def live(self) -> Self:
        """Open or Closed: may still have tasks to run."""
        return self.filter(state__in=LIVE)

    def of_member(self, user_id: int) -> Self:
        """Suites of groups the user belongs to."""
        return self.filter(group__memberships__user_id=user_id)

    def tagged(self, tags: Collection[str]) -> Self:
        return self.filter(tags__contains=sorted(tags))

    def labelled(self, labels: Collection[str]) -> Self:
        return self.filter(labels__contains=sorted(labels))

    def named_like(self, text: str) -> Self:
        """Part of the name, whatever the case."""
        return self.filter(name__icontains=text)
