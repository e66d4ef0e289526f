"""Two tenants and everybody who may knock at their doors.

`lab` is the tenant under attack or at work, `lux` the other one, `lob` does not exist: names of
one length, so that answers about them may be compared byte by byte. Used by the access matrix.
"""

from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Final
from uuid import uuid4

from django.conf import settings

from accounts.actors import SYSTEM
from accounts.keys import key_ring
from accounts.models import Group, User
from accounts.services.sessions import issue_user_token
from accounts.services.storage import charge_storage
from accounts.services.users import set_user_state
from accounts.tokens import mint
from core import clock
from mitosis_protocol.enums import Role, TokenKind, UserState
from mitosis_protocol.specs import TaskSpec, WorkerSchedule
from mitosis_protocol.suites import SuiteSpec
from suites.services.create import create_suite
from tasks.models import Attachment
from tasks.new_task import NewTask
from tasks.services.claim import claim_for_worker_sync
from tasks.services.submit import Target, submit_task
from tests.integration.managers.fleet import registered
from tests.integration.workers.people import new_group, new_user, new_worker

OWN: Final = "own"
FOREIGN: Final = "foreign"
ABSENT: Final = "absent"
KEY: Final = "data.bin"
_URGENCY: Final = count(1000)


@dataclass(frozen=True)
class Things:
    """What a request may name; everything of one tenant."""

    group: str
    user: str
    suite: str
    task: str
    manager: str
    worker: str
    attempt: int
    key: str = KEY


@dataclass
class Tenant:
    """A group whose Admin makes new things on demand."""

    group: Group
    admin: User
    tokens: dict[str, str] = field(default_factory=dict)  # by uuid of the runner

    def things(self, member: str) -> Things:
        """A suite, a task in the hands of a worker, a manager and an attachment, all new."""
        worker = new_worker(self.admin, groups=[f"{self.group.name}:admin"])
        manager = registered(self.admin, groups=[f"{self.group.name}:admin"])
        self.tokens[str(worker.runner.uuid)] = worker.token
        self.tokens[str(manager.runner.uuid)] = manager.tokens.token
        task = submit_task(
            target=Target(self.group.pk),
            creator_id=self.admin.pk,
            # Above all earlier ones, which come back when their worker is shut down.
            task=NewTask(spec=TaskSpec(args=["true"]), timeout_s=60, priority=next(_URGENCY)),
        )
        claimed = claim_for_worker_sync(runner_id=worker.runner.pk)
        assert claimed is not None
        assert claimed.uuid == task.uuid
        if not Attachment.objects.filter(group=self.group, key=KEY).exists():
            Attachment.objects.create(group=self.group, key=KEY, size=3)
            charge_storage(group_id=self.group.pk, delta=3)
        suite = create_suite(
            actor=SYSTEM,
            creator=self.admin,
            group=self.group,
            spec=SuiteSpec(
                group_name=self.group.name, worker_schedule=WorkerSchedule(worker_count=1)
            ),
            defaults=settings.MITOSIS,
        )
        return Things(
            group=self.group.name,
            user=member,
            suite=str(suite.uuid),
            task=str(task.uuid),
            manager=str(manager.runner.uuid),
            worker=str(worker.runner.uuid),
            attempt=claimed.attempt_id,
        )


def nothing() -> Things:
    """Names that nobody has."""
    suite, task, manager, worker = (str(uuid4()) for _ in range(4))
    return Things(
        group="lob", user="abe", suite=suite, task=task, manager=manager, worker=worker,
        attempt=2**40,
    )  # fmt: skip


class People:
    """Everybody, by the name the matrix gives them; None has no header at all."""

    def __init__(self) -> None:
        ann, joe = new_user("ann"), new_user("joe")
        bob, ron, eve = new_user("bob"), new_user("ron"), new_user("eve")
        root, locked = new_user("root", admin=True), new_user("max")
        members = {"bob": Role.WRITE, "ron": Role.READ, "max": Role.ADMIN}
        self.lab = Tenant(new_group("lab", ann, **members), ann)
        self.lux = Tenant(new_group("lux", joe, joe=Role.ADMIN), joe)
        users = {"admin": ann, "writer": bob, "reader": ron, "stranger": eve, "rival": joe}
        self.headers: dict[str, str | None] = {"anonymous": None, "garbage": "Bearer a.b.c"}
        # A token of the present generation: locking alone has to be enough.
        set_user_state(actor=SYSTEM, username="max", state=UserState.LOCKED)
        locked.refresh_from_db()
        for name, user in {**users, "staff": root, "locked": locked}.items():
            self.headers[name] = f"Bearer {issue_user_token(user)}"
        self.headers |= {
            "expired": f"Bearer {_token(ann, expired=True)}",
            "revoked": f"Bearer {_token(ann, generation=ann.token_generation + 7)}",
            "wrong audience": f"Bearer {_token(ann, kind=TokenKind.DIRECT)}",
        }

    def header(self, principal: str, own: Things) -> str | None:
        """What the principal sends; runners are those of the things `own`."""
        if principal in {"worker", "manager"}:
            return f"Bearer {self.lab.tokens[getattr(own, principal)]}"
        return self.headers[principal]


def _token(
    user: User, *, kind: TokenKind = TokenKind.USER, generation: int = -1, expired: bool = False
) -> str:
    hour = timedelta(hours=1)
    return mint(
        key_ring(),
        kind=kind,
        subject=user.username,
        generation=user.token_generation if generation < 0 else generation,
        now=clock.now() - (3 * hour if expired else timedelta(0)),
        lifetime=hour,
    )
