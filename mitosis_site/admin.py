"""The operators' console site: its name and the order of its sections."""

from typing import Any, Final

from django.contrib.admin import AdminSite
from django.http import HttpRequest
from typing_extensions import override

# What an operator looks at first comes first; apps that are not listed follow by name.
APP_ORDER: Final = ("suites", "tasks", "managers", "workers", "runners", "accounts")


class MitosisAdminSite(AdminSite):
    site_title = "Mitosis"
    site_header = "Mitosis"
    index_title = "Console"
    # An unknown path below /admin/ is as likely a call of the API: 404, no redirect to the login.
    final_catch_all_view = False

    @override
    def get_app_list(self, request: HttpRequest, app_label: str | None = None) -> list[Any]:
        found = super().get_app_list(request, app_label)
        return sorted(found, key=_rank)


def _rank(app: Any) -> tuple[int, str]:
    label = app["app_label"]
    position = APP_ORDER.index(label) if label in APP_ORDER else len(APP_ORDER)
    return position, str(app["name"]).lower()
