"""What every command has at hand: settings, a client for them, a printer; and ids by prefix."""

import re
from collections.abc import Iterable
from typing import Final, TypeVar

import typer

from mitosis_client.calls import suites, tasks
from mitosis_client.cli.output import Printer
from mitosis_client.client import Client
from mitosis_client.errors import AmbiguousId, NotFound, NotLoggedIn
from mitosis_client.models import Suite
from mitosis_client.settings import Home, Settings

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# As a uuid is written, as far as it goes.
_PREFIX: Final = re.compile(
    r"[0-9a-f]{1,8}|[0-9a-f]{8}-(?:[0-9a-f]{4}-){0,2}[0-9a-f]{0,4}"
    r"|[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{0,12}"
)
T = TypeVar("T")
_SHOWN: Final = 5  # candidates named when a prefix fits several


class Session:
    """One run of the command."""

    def __init__(self, settings: Settings, home: Home, context: str | None) -> None:
        self.settings = settings
        self.home = home
        self.context = context
        self.printer = Printer(settings.output)
        self._client: Client | None = None

    @property
    def client(self) -> Client:
        """Logged in. Raises NotLoggedIn."""
        if self._client is None:
            token = self.home.token(self.settings.coordinator, self.settings.user)
            if token is None:
                raise NotLoggedIn(
                    f"not logged in at {self.settings.coordinator}: run "
                    f"`mitosis login --coordinator {self.settings.coordinator} --user NAME`"
                )
            self._client = Client(self.settings.coordinator, token)
        return self._client

    @property
    def group(self) -> str:
        """The group meant when none is named: the setting, else the user's own."""
        return self.settings.group or self.settings.user or self.client.accounts.whoami()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def suite(self, text: str) -> str:
        """The uuid of the suite meant: uuid, prefix of one, name, or `last`."""
        if _UUID.fullmatch(text.lower()):
            return text.lower()
        return self.find_suite(text).uuid

    def find_suite(self, text: str) -> Suite:
        """Raises NotFound, AmbiguousId."""
        group = self.settings.group
        if text == "last":
            newest = next(self.client.pages(suites.query(group_name=group)), None)
            if newest is None:
                raise NotFound("there is no suite yet", status=404)
            return newest
        # Newest first, and the newest of a name is the one people mean.
        for one in self.client.pages(suites.query(group_name=group, name=text)):
            if one.name == text:
                return one
        found = []
        if _PREFIX.fullmatch(text.lower()):
            everything = self.client.pages(suites.query(group_name=group))
            found = [one for one in everything if one.uuid.startswith(text.lower())]
        return _only(found, [one.uuid for one in found], "suite", text)

    def task(self, text: str) -> str:
        """The uuid of the task meant: uuid, prefix of one, or its number in the group."""
        if _UUID.fullmatch(text.lower()):
            return text.lower()
        group = self.settings.group
        if text.isdecimal() and text.isascii() and len(text) < 8 and int(text):
            for one in self.client.pages(tasks.query(group_name=group, task_id=int(text))):
                return one.uuid
        found = []
        if _PREFIX.fullmatch(text.lower()):
            begun = tasks.query(group_name=group, uuid_prefix=text.lower())
            found = [one.uuid for one in self.client.pages(begun)]
        return _only(found, found, "task", text)

    def manager(self, text: str) -> str:
        if _UUID.fullmatch(text.lower()):
            return text.lower()
        uuids = [one.uuid for one in self.client.fleet.managers()]
        found = [uuid for uuid in uuids if uuid.startswith(text.lower())]
        return _only(found, found, "manager", text)

    def worker(self, text: str) -> str:
        if _UUID.fullmatch(text.lower()):
            return text.lower()
        rows = self.client.fleet.workers(group_name=self.settings.group)["workers"]
        uuids = [str(one["worker_id"]) for one in rows]
        found = [uuid for uuid in uuids if uuid.startswith(text.lower())]
        return _only(found, found, "worker", text)


def session_of(ctx: typer.Context) -> Session:
    session = ctx.find_root().obj
    if not isinstance(session, Session):
        raise TypeError("the root callback has not run")
    return session


def _only(found: list[T], ids: Iterable[str], kind: str, text: str) -> T:
    if not found:
        raise NotFound(f"no {kind} has the id or name {text!r}", status=404)
    if len(found) > 1:
        shown = ", ".join(list(ids)[:_SHOWN])
        raise AmbiguousId(f"{text!r} fits {len(found)} {kind}s: {shown}", status=404)
    return found[0]
