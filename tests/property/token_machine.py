"""Two managers and a thief: tokens issued, refreshed, repeated, stolen, renewed and revoked.

Time passes by the clock that the services are given. After each step the newest access tokens are
good or not as the model says, at the end all of them; what a socket was opened with counts for
`open_session` and `recheck` as well.
"""

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar

from django.db import connection

from accounts.actors import SYSTEM
from accounts.bearer import bind, read_claims
from core import clock
from core.errors import AuthenticationFailed
from core.pg import load_sql
from managers.models import NodeManager
from managers.services.tokens import (
    ManagerTokens,
    TokenPolicy,
    issue_first_tokens,
    refresh_tokens,
    renew_access,
)
from managers.services.wishes import revoke_manager
from mitosis_protocol.enums import RunnerKind, TokenKind
from mitosis_protocol.errors import ErrorCode
from runners.models import Runner
from runners.services.registration import rotate_token_generation
from runners.standing import forget_standing, runner_standing_in_thread
from tests.property.choices import EITHER, RECENT, Draw, pick
from tests.property.lab import Lab
from tests.property.moves import MovesMachine
from tests.property.token_model import ACCESS, LIFETIME, OVERLAP, Access, Family

POLICY = TokenPolicy(access_s=ACCESS.total_seconds(), overlap_s=OVERLAP.total_seconds())
MINUTES = (1, 1, 2, 4, 4, 6, 20, 59, 62, 60 * 20)
MANAGERS = (0, 1)
# Which refresh token is shown: mostly the one there is, often one that was spent.
KINDS = ("newest", "newest", "newest", "spent", "spent", "older", "older", "foreign", "made up")
LAST = 2  # access tokens looked at after each step; a signature takes its time
RESET = """
UPDATE runners SET revoked_at = NULL, conn_state = 0, desired_state = 0 WHERE id = ANY (%s)
"""


class TokenMachine(MovesMachine):
    """Manager 0 and 1; whoever has a token may show it."""

    MOVES = (
        "refresh refresh refresh refresh insist insist steal steal time_passes time_passes"
        " time_passes renew rotate revoke open_a_session open_a_session"
    )
    runners: ClassVar[list[Runner]]

    def __init__(self) -> None:
        super().__init__()
        self._now = datetime.now(UTC).replace(microsecond=0)
        # Set, not entered: an example may end anywhere, and `registry` puts the real clock back.
        clock._source = lambda: self._now
        self.access: list[Access] = []
        with connection.cursor() as cursor:
            cursor.execute(RESET, [[runner.pk for runner in self.runners]])
        self.families = [self._register(runner) for runner in self.runners]

    def teardown(self) -> None:
        for one in self.access:
            self._check(one)

    def _register(self, runner: Runner) -> Family:
        runner.refresh_from_db(fields=["token_generation"])
        forget_standing(runner)
        tokens = issue_first_tokens(
            runner, access_s=ACCESS.total_seconds(), lifetime_s=LIFETIME.total_seconds()
        )
        NodeManager.objects.filter(pk=runner.pk).update(refresh_previous_hash="")
        family = Family(self._now + LIFETIME, runner.token_generation, newest=None)
        self._take(family, tokens)
        return family

    # --- the holder of a token ---

    def refresh(self, draw: Draw) -> None:
        manager = draw(MANAGERS)
        self._refresh(manager, self._shown(draw, manager))

    def insist(self, draw: Draw) -> None:
        """The answer is lost again and again; or two parties have the token, and one is slow."""
        manager = draw(MANAGERS)
        token = self._shown(draw, manager)
        for _ in range(3):
            self._refresh(manager, token)
            self._now += timedelta(minutes=draw((0, 1, 4, 4)))

    def steal(self, draw: Draw) -> None:
        """A thief uses a copy and goes on with what it got; the owner comes later, unaware."""
        manager = draw(MANAGERS)
        family = self.families[manager]
        copied = family.newest
        for _ in range(draw((1, 1, 2, 3))):
            if family.newest is not None:
                self._refresh(manager, family.newest)
        if draw(EITHER):
            self.time_passes(draw)
        if copied is not None:
            self._refresh(manager, copied)

    def renew(self, draw: Draw) -> None:
        """With nothing but an access token."""
        one = pick(self.access, draw(RECENT))
        manager, family = self.families.index(one.owner), one.owner
        if not one.is_good(self._now):
            return
        runner = self._runner(manager)
        if self._now >= family.expires_at:
            code = self._refusal(lambda: renew_access(actor=SYSTEM, runner=runner, policy=POLICY))
            assert code is ErrorCode.AUTH_EXPIRED_TOKEN
            return
        tokens = renew_access(actor=SYSTEM, runner=runner, policy=POLICY)
        assert tokens.refresh_token is None
        family.generation += 1
        self._take(family, tokens)

    def open_a_session(self, draw: Draw) -> None:
        """A socket whose token was read a while ago: the generation is asked once more."""
        one = pick(self.access, draw(RECENT))
        family = one.owner
        is_current = one.generation == family.generation and not family.is_revoked
        parameters = {
            "runner_id": self.runners[self.families.index(family)].pk,
            "generation": one.generation,
            "process_id": uuid.uuid4(),
            "ttl_s": 60,
        }
        with connection.cursor() as cursor:
            cursor.execute(load_sql("runners", "open_session"), parameters)
            assert (cursor.fetchone() is not None) is is_current

    # --- time and operators ---

    def time_passes(self, draw: Draw) -> None:
        self._now += timedelta(minutes=draw(MINUTES))

    def rotate(self, draw: Draw) -> None:
        manager = draw(MANAGERS)
        rotate_token_generation(actor=SYSTEM, runner=self._runner(manager))
        self.families[manager].generation += 1

    def revoke(self, draw: Draw) -> None:
        manager = draw(MANAGERS)
        if not draw((False, False, True)):
            self.rotate(draw)
            return
        family = self.families[manager]
        is_news = revoke_manager(actor=SYSTEM, runner=self._runner(manager))
        assert is_news is not family.is_revoked
        family.revoke()

    # --- truth ---

    def compare(self) -> None:
        for one in self.access[-LAST:]:
            self._check(one)

    def _check(self, one: Access) -> None:
        try:
            claims = read_claims(f"Bearer {one.token}", TokenKind.MANAGER)
            bind(claims, runner_standing_in_thread(TokenKind.MANAGER, claims.subject))
        except AuthenticationFailed:
            is_good = False
        else:
            is_good = True
        assert is_good is one.is_good(self._now)

    # --- parts ---

    def _refresh(self, manager: int, token: str) -> None:
        family, runner = self.families[manager], self._runner(manager)
        expected = family.refresh(token, self._now)

        def ask() -> ManagerTokens:
            return refresh_tokens(actor=SYSTEM, runner=runner, refresh_token=token, policy=POLICY)

        if expected is None:
            self._take(family, ask())
        else:
            assert self._refusal(ask) is expected

    def _refusal(self, ask: Any) -> ErrorCode:
        try:
            ask()
        except AuthenticationFailed as error:
            return error.code
        raise AssertionError("a token was taken that is not good")

    def _take(self, family: Family, tokens: ManagerTokens) -> None:
        if tokens.refresh_token is not None:
            family.hand_out(tokens.refresh_token)
        assert tokens.expires_at == min(self._now + ACCESS, family.expires_at)
        self.access.append(Access(tokens.token, family, family.generation, tokens.expires_at))

    def _shown(self, draw: Draw, manager: int) -> str:
        family, other = self.families[manager], self.families[1 - manager]
        kind = draw(KINDS)
        if kind == "made up":
            return uuid.uuid4().hex
        if kind == "foreign":
            return other.newest or other.issued[-1]
        if kind == "older":
            return pick(family.issued, draw((1, 2, 3, 4)))
        wanted = family.newest if kind == "newest" else family.spent
        return wanted or family.issued[-1]

    def _runner(self, manager: int) -> Runner:
        """As a request finds it; a generation that is not the database's makes no good token."""
        runner = self.runners[manager]
        runner.token_generation = self.families[manager].generation
        return runner


@contextmanager
def registry() -> Iterator[None]:
    """The managers of all examples."""
    lab = Lab(runners=2)
    Runner.objects.filter(pk__in=lab.runner_ids).update(kind=RunnerKind.MANAGER)
    for runner_id in lab.runner_ids:
        NodeManager.objects.create(runner_id=runner_id)
    TokenMachine.runners = list(Runner.objects.filter(pk__in=lab.runner_ids).order_by("pk"))
    try:
        yield
    finally:
        clock._source = None
        del TokenMachine.runners
