"""A receiver of webhooks on loopback, and a group that subscribed to it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accounts.actors import SYSTEM
from accounts.models import User
from mitosis_protocol.enums import NoticeKind
from notifications.models import Webhook
from notifications.services.subscriptions import create_webhook
from tests.fakes.tiny_http import Answer, Request, TinyHttp
from tests.integration.suites.campaign import own_group

DOCS = Path(__file__).resolve().parents[3] / "docs" / "webhooks.md"
ALL_KINDS = [kind for kind in NoticeKind if kind is not NoticeKind.PING]


class Receiver:
    """Keeps what it was sent; answers what the test says."""

    def __init__(self) -> None:
        self.answer: Callable[[Request], Answer] = lambda _: Answer(204)
        self.http = TinyHttp(self._handle)
        self.http.start()

    def _handle(self, request: Request) -> Answer:
        return self.answer(request)

    @property
    def url(self) -> str:
        return f"{self.http.url}/hook?from=mitosis"

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [json.loads(request.body) for request in self.http.requests]

    @property
    def kinds(self) -> list[str]:
        return sorted(body["type"] for body in self.bodies)

    def stop(self) -> None:
        self.http.stop()


def subscribe(user: User, url: str, *kinds: NoticeKind) -> Webhook:
    return create_webhook(
        actor=SYSTEM, creator=user, group=own_group(user), url=url, kinds=kinds or ALL_KINDS
    )


def documented_check() -> Callable[..., bool]:
    """The function that docs/webhooks.md tells receivers to use."""
    [code] = re.findall(r"<!-- tested:verify -->\n```python\n(.*?)```", DOCS.read_text(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    check: Callable[..., bool] = names["is_genuine"]
    return check
