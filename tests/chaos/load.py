"""The client of a chaos run: campaigns with tasks of several kinds, submitted without a pause.

Each campaign gets batches of every kind and arrays of quick tasks, so that both ways to submit are
under fault and the fleet never runs dry. After some tasks the next one begins: hosts leave the old
one when it is done, and the strict suite between them gets its turn. A submit whose answer was lost
is repeated under its Idempotency-Key until it is answered, so that at the end every task is either
acknowledged once or was never asked for. Runs as a thread beside the nemesis; everything it learns
goes into the history.
"""

import hashlib
import random
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx2

from tests.chaos.history import Acknowledged, History

T = TypeVar("T")

BATCH: Final = 24
ARRAY: Final = 720
# Acknowledged and not ended: some seconds of work, so that a client that is cut off starves nobody.
MAX_BACKLOG: Final = 4000
SUITE_TASKS: Final = 9000
SUITE_LIFE_S: Final = 45.0
SUITE_CANCEL_SHARE: Final = 0.15
PREFETCH: Final = 48
# Never given up for random losses; the cap itself has tests of its own.
PATIENT: Final = {"max_failures": 50}
# Of tasks of a suite; independent ones are always quick.
KINDS: Final = {"quick": 65, "slow": 8, "artifact": 8, "fail": 6, "crash": 3, "cancel": 10}

_LINE: Final = 'echo "{0} $MITO_TASK_UUID ${{MITOSIS_TASK_ATTEMPT:-0}} $$ {1}" >> {2}'


def script(kind: str, evidence: Path, dice: random.Random) -> tuple[str, str]:
    """The shell and what it runs; each writes down that it began and how it ended."""

    def say(word: str, rest: str) -> str:
        return _LINE.format(word, rest, evidence)

    middle = {
        "slow": f"sleep {dice.uniform(0.3, 2.0):.2f}; ",
        "cancel": "sleep 60; ",
        "artifact": 'echo "$MITO_TASK_UUID $MITOSIS_TASK_ATTEMPT" > $MITO_RESULT_DIR/mark; ',
        "crash": "[ $MITOSIS_TASK_ATTEMPT = 1 ] && kill -SEGV $$; ",
    }.get(kind, "")
    if kind == "ticking":
        # Seen again and again, so that the end of a killed one is known as well.
        tick = say("T", "$EPOCHREALTIME")
        middle = f"for i in 1 2 3 4 5 6 7 8 9 10 11 12; do {tick}; sleep 0.1; done; "
        began, ended = "$EPOCHREALTIME", "$EPOCHREALTIME 0"
        return "bash", f"{say('S', began)}; {middle}{say('E', ended)}"
    status = 3 if kind == "fail" else 0
    return "sh", f"{say('S', '-')}; {middle}{say('E', f'- {status}')}; exit {status}"


class Load(threading.Thread):
    """`halt`, then `join`: what was asked is acknowledged by then."""

    def __init__(
        self, url: str, admin: tuple[str, str], history: History, evidence: Path, seed: int
    ) -> None:
        super().__init__(daemon=True)
        self.ended = 0  # told by whoever looks at the queue
        self.trouble: BaseException | None = None
        self._url = url
        self._user, self._password = admin
        self._history = history
        self._evidence = evidence
        self._dice = random.Random(seed)
        self._halt = threading.Event()
        self._http = httpx2.Client(base_url=url, timeout=8)
        self._suites: list[str] = []
        self._renew_at = 0.0
        self._room = 0  # tasks until the next campaign
        self._number = 0
        self._to_cancel: list[tuple[float, str]] = []  # when, whom

    @property
    def backlog(self) -> int:
        return len(self._history.tasks) - self.ended

    def halt(self) -> None:
        self._halt.set()

    def raise_trouble(self) -> None:
        """What ended it, if something did."""
        if self.trouble is not None:
            raise self.trouble

    def run(self) -> None:
        try:
            self._until_done(self._log_in)
            while not self._halt.is_set():
                if time.monotonic() > self._renew_at or self._room <= 0:
                    self._new_suites()
                if self.backlog < MAX_BACKLOG:
                    self._submit_round()
                self._cancel_some()
                self._halt.wait(0.05)
            self._cancel_some()
        except BaseException as error:  # noqa: BLE001 - shown by the campaign
            self.trouble = error
        finally:
            self._http.close()

    # Requests

    def _until_done(self, request: Callable[[], T]) -> T:
        """Again and again while the answer is lost or says to come back later."""
        while True:
            try:
                return request()
            except httpx2.TransportError:
                pass
            except _Later:
                pass
            time.sleep(0.1)

    def _call(self, method: str, path: str, body: Any, key: str | None = None) -> Any:
        headers = {"Idempotency-Key": key} if key else {}
        return self._checked(self._http.request(method, path, json=body, headers=headers))

    def _checked(self, answer: httpx2.Response) -> Any:
        self._look_at_token(answer)
        if answer.status_code >= 500 or answer.status_code == 429:
            raise _Later
        assert answer.status_code < 300, (answer.url, answer.status_code, answer.text[:500])
        return answer.json() if answer.content else None

    def _look_at_token(self, answer: httpx2.Response) -> None:
        """One from the future of a clock that was set back is exchanged for one of today."""
        if answer.status_code == 401 and "Authorization" in self._http.headers:
            del self._http.headers["Authorization"]
            self._until_done(self._log_in)
            raise _Later

    def _log_in(self) -> None:
        digest = list(hashlib.md5(self._password.encode()).digest())
        body = {"username": self._user, "md5_password": digest, "retain": True}
        token = self._call("POST", "/login", body)["token"]
        self._http.headers["Authorization"] = f"Bearer {token}"

    # Campaigns

    def _new_suites(self) -> None:
        for old in self._suites:
            if self._dice.random() < SUITE_CANCEL_SHARE:
                self._cancel_suite(old)
        self._suites = [self._until_done(self._make_keep), self._until_done(self._make_stop)]
        self._renew_at = time.monotonic() + SUITE_LIFE_S
        self._room = SUITE_TASKS

    def _make_keep(self) -> str:
        return self._make_suite(
            "keep",
            env_preparation={"args": ["true"], "timeout": "1m"},
            env_cleanup={"args": ["true"], "timeout": "1m"},
        )

    def _make_stop(self) -> str:
        return self._make_suite("stop")

    def _make_suite(self, on_partition: str, **more: Any) -> str:
        """A lost answer may leave one that nobody uses; an empty suite harms nobody."""
        body = {
            "group_name": self._user,
            "name": "chaos",
            "worker_schedule": {"worker_count": 2, "task_prefetch_count": PREFETCH},
            "settle_seconds": 1,
            "linger_seconds": 0,
            "on_partition": on_partition,
            **more,
        }
        made = str(self._call("POST", "/suites", body)["uuid"])
        self._history.suites[made] = on_partition
        self._history.note("suite", uuid=made, on_partition=on_partition)
        return made

    def _cancel_suite(self, suite: str) -> None:
        self._history.cancelled_suites.add(suite)
        self._history.note("cancel_suite", uuid=suite)
        self._until_done(lambda: self._cancel_suite_once(suite))

    def _cancel_suite_once(self, suite: str) -> None:
        body = {"reason": "chaos", "cancel_running_tasks": True}
        answer = self._http.post(f"/suites/{suite}/cancel", json=body)
        # 409: by an earlier try of ours whose answer was lost.
        if answer.status_code != 409 or answer.json().get("state") != "Cancelled":
            self._checked(answer)

    # Tasks

    def _submit_round(self) -> None:
        keep, stop = self._suites
        names, weights = list(KINDS), list(KINDS.values())
        self._submit(keep, self._dice.choices(names, weights, k=BATCH))
        self._submit_array(keep, ARRAY)
        self._submit(stop, ["ticking"] * self._dice.randint(0, 2))
        self._submit(None, ["quick"] * self._dice.randint(0, 2))

    def _submit(self, suite: str | None, kinds: list[str]) -> None:
        if not kinds:
            return
        tasks = [self._task(suite, kind, self._next_label()) for kind in kinds]
        labels = [task["labels"][0] for task in tasks]
        answer = self._ask_for(labels, "/tasks/submit", {"tasks": tasks})
        uuids = [result["Ok"]["uuid"] for result in answer["results"]]
        self._acknowledged(suite, uuids, labels, kinds)

    def _submit_array(self, suite: str, count: int) -> None:
        labels = [self._next_label() for _ in range(count)]
        body = {
            "template": self._task(suite, "quick", "{label}"),
            "rows": [{"params": {"label": label}} for label in labels],
        }
        answer = self._ask_for(labels, "/tasks/array", body)
        self._acknowledged(suite, answer["uuids"], labels, ["quick"] * count)

    def _ask_for(self, labels: list[str], path: str, body: dict[str, Any]) -> Any:
        """The answer to a submit, repeated under one key until there is one."""
        key = str(uuid.UUID(int=self._dice.getrandbits(128), version=4))
        self._history.note("submit", key=key, labels=labels)
        return self._until_done(lambda: self._call("POST", path, body, key))

    def _acknowledged(
        self, suite: str | None, uuids: list[str], labels: list[str], kinds: list[str]
    ) -> None:
        made = [
            Acknowledged(one, label, kind, suite)
            for one, label, kind in zip(uuids, labels, kinds, strict=True)
        ]
        self._history.acknowledge(made)
        self._room -= len(made)
        now = time.monotonic()
        self._to_cancel += [
            (now + self._dice.uniform(0.2, 6.0), task.uuid)
            for task in made
            if task.kind == "cancel"
        ]

    def _next_label(self) -> str:
        self._number += 1
        return f"chaos-{self._number}"

    def _task(self, suite: str | None, kind: str, label: str) -> dict[str, Any]:
        shell, text = script(kind, self._evidence, self._dice)
        return {
            "group_name": self._user,
            "suite_uuid": suite,
            "tags": [],
            "labels": [label],
            "timeout": "2m",
            # Before all others, so that some of them run when the cancel comes.
            "priority": 1 if kind == "cancel" else 0,
            "retry": PATIENT,
            "task_spec": {"args": [shell, "-c", text]},
        }

    def _cancel_some(self) -> None:
        """Some of them still wait then, some run; at the end nobody is left out."""
        now = time.monotonic()
        due = [one for one in self._to_cancel if one[0] <= now or self._halt.is_set()]
        for one in due:
            self._to_cancel.remove(one)
            self._cancel(one[1])

    def _cancel(self, task: str) -> None:
        self._history.note("cancel", uuid=task)
        if self._until_done(lambda: self._cancel_once(task)):
            self._history.cancelled.add(task)
            self._history.note("cancelled", uuid=task)

    def _cancel_once(self, task: str) -> bool:
        """Whether the coordinator has promised that it ends as cancelled."""
        answer = self._http.delete(f"/tasks/{task}")
        self._look_at_token(answer)
        if answer.status_code >= 500 or answer.status_code in (409, 429):
            raise _Later
        # 404: it has ended, perhaps by an earlier try of ours whose answer was lost.
        assert answer.status_code in (200, 404), (answer.status_code, answer.text[:500])
        return answer.status_code == 200


class _Later(Exception):
    """The coordinator cannot now."""
