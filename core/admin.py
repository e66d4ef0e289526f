"""Building blocks of the admin site: read-only pages, audited actions, history, cheap paging.

Used by every app's admin.py. State never changes through a form here: an action calls the same
service as the API, and leaves a trace.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

from django.contrib import admin, messages
from django.contrib.admin.utils import unquote
from django.contrib.admin.views.main import ChangeList
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db import models
from django.db.models import QuerySet
from django.db.models.expressions import Combinable
from django.http import Http404, HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.functional import cached_property
from typing_extensions import override

from core.errors import DomainError

Row = TypeVar("Row", bound=models.Model)

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
    _Paginator = Paginator[Any]
else:
    # Django's own classes take no type arguments at run time.
    _ModelAdmin = admin.ModelAdmin
    _Paginator = Paginator

# Enough to browse; beyond it a filter finds faster than a hundred clicks would.
MAX_LISTED_ROWS: Final = 10_000
# What a filter of a keyset page may read before it says "older": about 100 ms of a big table.
MAX_STRETCH: Final = 200_000
MAX_HISTORY: Final = 200
BEFORE: Final = "before"


class AuditWriter(Protocol):
    """Writes one line of the audit log; registered by the app that owns the log."""

    def __call__(
        self, request: HttpRequest, *, action: str, target: models.Model, outcome: str
    ) -> None: ...


class AuditReader(Protocol):
    """Newest entries of the audit log about any of the targets."""

    def __call__(self, targets: Sequence[str], *, at_most: int) -> Sequence[object]: ...


_audit_writer: AuditWriter | None = None
_audit_reader: AuditReader | None = None


def register_audit_writer(writer: AuditWriter) -> None:
    """Called once by the app that owns the audit log; without it actions refuse to run."""
    global _audit_writer  # noqa: PLW0603 - core cannot import the apps above it
    _audit_writer = writer


def register_audit_reader(reader: AuditReader) -> None:
    """As above, for the histories of objects."""
    global _audit_reader  # noqa: PLW0603 - core cannot import the apps above it
    _audit_reader = reader


class AuditHistory(_ModelAdmin):
    """An object's history is what the audit log says of it: everybody's deeds, not the site's."""

    def audit_targets(self, obj: models.Model) -> list[str]:
        """How the audit log names the object."""
        uuid = getattr(obj, "uuid", None)
        own = [] if uuid is None else [str(uuid)]
        # The second is how actions of this site name a row (accounts.admin).
        return [*own, str(obj), f"{obj._meta.model_name} {obj}"]  # noqa: SLF001 - documented API

    @override
    def history_view(
        self,
        request: HttpRequest,
        object_id: str,
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:
        obj = self.get_object(request, unquote(object_id))
        if obj is None:
            raise Http404
        if not self.has_view_or_change_permission(request, obj):
            raise PermissionDenied
        if _audit_reader is None:
            raise RuntimeError("no audit reader is registered: register_audit_reader()")
        entries = _audit_reader(self.audit_targets(obj), at_most=MAX_HISTORY)
        context = {
            **self.admin_site.each_context(request),
            "title": f"History: {obj}",
            "opts": self.opts,
            "object": obj,
            "entries": entries,
            **(extra_context or {}),
        }
        return TemplateResponse(request, "admin/audit_history.html", context)


class KeysetChangeList(ChangeList):
    """Pages by primary key alone: `?before=` says where a page begins, and nothing is counted.

    A filter that few rows pass reads a bounded stretch of keys; "older" goes on with the next row
    below it, however far away that is.
    """

    older: int | None = None

    @override
    def get_filters_params(self, params: Any = None) -> Any:
        found = super().get_filters_params(params)
        found.pop(BEFORE, None)
        return found

    @override
    def get_ordering(self, request: HttpRequest, queryset: QuerySet[Any]) -> list[str | Combinable]:
        return ["-pk"]

    @override
    def get_results(self, request: HttpRequest) -> None:
        rows, bottom = self.queryset, None
        given = request.GET.get(BEFORE, "")
        before = int(given) if given.isdecimal() and len(given) < 19 else None
        if before is not None:
            rows = rows.filter(pk__lt=before)
        if self.has_active_filters:
            bottom = (self._top(before) or 0) - MAX_STRETCH
            rows = rows.filter(pk__gte=bottom)
        found = list(rows[: self.list_per_page + 1])
        self.result_list = found[: self.list_per_page]
        if len(found) > self.list_per_page:
            self.older = self.result_list[-1].pk
        elif bottom is not None:
            self.older = self._top(bottom)
        self.result_count = len(self.result_list)
        self.full_result_count = None
        self.show_full_result_count = False
        self.show_admin_actions = True
        self.can_show_all = False
        self.multi_page = False
        self.paginator = Paginator(self.result_list, self.list_per_page)

    @property
    def older_link(self) -> str | None:
        return None if self.older is None else self.get_query_string({BEFORE: self.older})

    @property
    def newest_link(self) -> str | None:
        return self.get_query_string(remove=[BEFORE]) if BEFORE in self.params else None

    def _top(self, before: int | None) -> int | None:
        """Just above the newest row below `before`; None where there is none."""
        rows = self.root_queryset if before is None else self.root_queryset.filter(pk__lt=before)
        newest = rows.order_by("-pk").values_list("pk", flat=True).first()
        return None if newest is None else int(newest) + 1


class BoundedPaginator(_Paginator):
    """Pages without counting the table: it looks for at most MAX_LISTED_ROWS rows."""

    @cached_property
    @override
    def count(self) -> int:
        rows = self.object_list
        if not isinstance(rows, QuerySet):
            return min(len(rows), MAX_LISTED_ROWS)
        # The slice becomes a LIMIT inside the count, so the scan ends there.
        return int(rows.order_by()[:MAX_LISTED_ROWS].count())


class ReadOnlyAdmin(AuditHistory):
    """Shows rows and lets nobody add, change or delete one by hand."""

    paginator = BoundedPaginator
    show_full_result_count = False
    list_per_page = 100
    list_max_show_all = 100
    # By primary key alone: any other default order would sort the whole table for one page.
    ordering: ClassVar[tuple[str, ...]] = ("-pk",)

    @override
    def has_add_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    @override
    def has_change_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False

    @override
    def has_delete_permission(self, request: HttpRequest, obj: models.Model | None = None) -> bool:
        return False


class KeysetAdmin(ReadOnlyAdmin):
    """For tables of millions of rows whose primary key is their order."""

    change_list_template = "admin/keyset_change_list.html"

    @override
    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> type[ChangeList]:
        return KeysetChangeList


class AuditedAction(AuditHistory):
    """Mixin for actions on selected rows: each row is tried, audited and reported by itself."""

    def run_action(
        self,
        request: HttpRequest,
        rows: Iterable[Row],
        action: str,
        call: Callable[[Row], object],
    ) -> int:
        """Call the service for every row; returns how many succeeded.

        A DomainError is shown and audited, and does not stop the others. Anything else is a bug.
        """
        if _audit_writer is None:
            raise RuntimeError("no audit writer is registered: core.admin.register_audit_writer()")
        done = 0
        for row in rows:
            try:
                call(row)
            except DomainError as error:
                _audit_writer(request, action=action, target=row, outcome=str(error.code))
                self.message_user(request, f"{row}: {error.message}", messages.ERROR)
            else:
                _audit_writer(request, action=action, target=row, outcome="ok")
                done += 1
        if done:
            self.message_user(request, f"{action}: {done} done", messages.SUCCESS)
        return done
