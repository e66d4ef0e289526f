"""The state of another task, for `watch`: asked over HTTP with the agent's token. Made by agent."""

from collections.abc import Callable, Mapping

import httpx2

from nodeagent import effects, events
from nodeagent.effects import Effect
from nodeagent.errors import CoordinatorUnavailable
from nodeagent.events import Event
from nodeagent.shell.chores import Chores
from nodeagent.shell.mailbox import Handler
from nodeagent.worker.http_client import decode, problem, send
from nodeagent.worker.http_wire import ReadTask


class WatchedTasks:
    """One request per question; `token` gives the present access token."""

    def __init__(
        self,
        post: Callable[[Event], None],
        client: httpx2.AsyncClient,
        token: Callable[[], str],
        chores: Chores,
    ) -> None:
        self._post = post
        self._client = client
        self._token = token
        self._chores = chores

    def handlers(self) -> Mapping[type[Effect], Handler]:
        return {effects.ReadTaskState: lambda effect: self._chores.start(self._read(effect))}

    async def _read(self, effect: effects.ReadTaskState) -> None:
        self._post(await self._answer(effect))

    async def _answer(self, effect: effects.ReadTaskState) -> events.TaskRead:
        headers = {"Authorization": f"Bearer {self._token()}"}
        path = f"/managers/tasks/{effect.task_uuid}"
        try:
            response = await send(self._client, "GET", path, headers=headers)
            if response.is_success:
                return events.TaskRead(effect.token, decode(response, ReadTask).to_snapshot().state)
            trouble = problem(response)
        except CoordinatorUnavailable as error:
            trouble = str(error)
        return events.TaskRead(effect.token, None, trouble)
