"""Django REST framework and the OpenAPI schema."""

from typing import Any

from mitosis_protocol import enums
from mitosis_protocol.coded_enum import CodedEnum

REST_FRAMEWORK: dict[str, Any] = {
    "DEFAULT_PARSER_CLASSES": ["core.drf.StrictJSONParser"],
    "DEFAULT_RENDERER_CLASSES": [
        "core.drf.CompactJSONRenderer",
        "mitosis_site.browsable_api.ConsoleAPIRenderer",
    ],
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "accounts.authentication.UserTokenAuthentication",
        "rest_framework.authentication.SessionAuthentication",
    ],
    # A view that forgets its permission is closed, not open.
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    # Behind authentication, so it counts known users; callers without an account do no work.
    "DEFAULT_THROTTLE_CLASSES": ["accounts.request_rate.UserRate"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "DEFAULT_FILTER_BACKENDS": ["django_filters.rest_framework.DjangoFilterBackend"],
    "EXCEPTION_HANDLER": "core.drf.exception_handler",
    "NUM_PROXIES": 0,
}


def _enum_names() -> dict[str, list[str]]:
    """Schema names for the wire enums, which many fields called `state` or `kind` share."""
    names: dict[tuple[str, ...], str] = {}
    for enum in vars(enums).values():
        if isinstance(enum, type) and issubclass(enum, CodedEnum) and len(enum) > 0:
            spellings = tuple(text for item in enum for text in (item.value, *item.aliases))
            names.setdefault(spellings, enum.__name__)
    return {name: list(spellings) for spellings, name in names.items()}


SPECTACULAR_SETTINGS: dict[str, Any] = {
    "TITLE": "Mitosis",
    "DESCRIPTION": "Runs campaigns of command tasks on a fleet of machines.",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SWAGGER_UI_DIST": "SIDECAR",
    "SWAGGER_UI_FAVICON_HREF": "SIDECAR",
    "COMPONENT_SPLIT_REQUEST": True,
    "ENUM_GENERATE_CHOICE_DESCRIPTION": False,
    "ENUM_NAME_OVERRIDES": _enum_names(),
}
