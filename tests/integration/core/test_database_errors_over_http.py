"""A view that meets a slow or locked database answers 503, and what it wrote is undone."""

from django.db import connection, transaction
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory
from rest_framework.views import APIView

from core.drf import exception_handler


class Slow(APIView):
    authentication_classes = []  # noqa: RUF012 - DRF's way
    permission_classes = []  # noqa: RUF012 - DRF's way

    def get_exception_handler(self):
        return exception_handler

    def get(self, request):
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("SET LOCAL statement_timeout = '50ms'")
            cursor.execute("SELECT pg_sleep(5)")
        return Response()


def test_a_statement_timeout_is_a_503_with_a_code(transactional_db):
    response = Slow.as_view()(APIRequestFactory().get("/x"))
    assert response.status_code == 503
    assert response.data["code"] == "dependency.database"
    assert response["Retry-After"] == "1"
    assert "statement timeout" not in str(response.data)
