"""Base classes for views of any app: who may call them, and how callers prove who they are."""

from rest_framework.views import APIView

from accounts.authentication import USER_AUTHENTICATION
from accounts.guards import AdminRequired, UserRequired


class UserView(APIView):
    """For any active user."""

    authentication_classes = USER_AUTHENTICATION
    permission_classes = (UserRequired,)


class AdminView(APIView):
    """For users with the admin flag."""

    authentication_classes = USER_AUTHENTICATION
    permission_classes = (AdminRequired,)
