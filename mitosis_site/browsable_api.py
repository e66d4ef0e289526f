"""DRF's browsable API as it looks here; named in settings.rest.

JSON is indented for people (the API itself sends it compact), and the page carries no style block
for highlighted code, which the Content-Security-Policy would refuse anyway.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rest_framework.renderers import BaseRenderer, BrowsableAPIRenderer, JSONRenderer
from typing_extensions import override

from core.drf import CompactJSONRenderer

if TYPE_CHECKING:
    # DRF's views load this module while they are being imported themselves.
    from rest_framework.views import APIView


class ConsoleAPIRenderer(BrowsableAPIRenderer):
    @override
    def get_default_renderer(self, view: "APIView") -> BaseRenderer | None:
        renderer = super().get_default_renderer(view)
        return JSONRenderer() if isinstance(renderer, CompactJSONRenderer) else renderer

    @override
    def get_context(
        self, data: Any, accepted_media_type: str | None, renderer_context: Mapping[str, Any]
    ) -> dict[str, Any]:
        context = super().get_context(data, accepted_media_type, renderer_context)
        return {**context, "code_style": ""}
