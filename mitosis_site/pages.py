"""The few pages that belong to no app: the landing page and the API's documentation."""

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe
from drf_spectacular.views import SpectacularSwaggerSplitView


@require_safe
def landing(request: HttpRequest) -> HttpResponse:
    """Where a person who typed the bare address finds the way on."""
    return render(request, "site/landing.html")


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """Django's own page would tell people about cookies and have its style inside."""
    return render(request, "site/csrf_failure.html", status=403)


class ApiDocsView(SpectacularSwaggerSplitView):
    """Swagger UI from local files. The split view answers its script as a file of its own, and
    our template has its style in a file too, so the page needs no exception from the CSP."""

    template_name = "site/api_docs.html"
