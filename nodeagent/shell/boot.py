"""The steps of a start before the first event: directory, lock, sweep, identity. Used by agent."""

import contextlib
import hashlib
import os
import stat
from pathlib import Path
from typing import Final

import httpx2
import structlog

from nodeagent.agent_config import AgentConfig
from nodeagent.coordinator import rest
from nodeagent.coordinator.tokens import TokenKeeper, read_user_token
from nodeagent.debt import DebtBook
from nodeagent.errors import AuthRejected, HostUnusable
from nodeagent.hooks.directories import Sandbox as HookUser
from nodeagent.identity import load_identity
from nodeagent.ipc.names import prefix_of
from nodeagent.marker import marker_value
from nodeagent.pool.host import find_hierarchies
from nodeagent.pool.sandbox import Sandbox
from nodeagent.pool.slots import subtree_name
from nodeagent.startup import SweepPlan, sweep
from nodeagent.worker.threads import run_blocking
from nodeagent.worker.workspace import remove_tree

log = structlog.stdlib.get_logger(__name__)

# Beyond the 256 slots of workers, within what an instance has.
_HOOK_SLOT: Final = 300
# Commands of another user pass through to their own directories, and see nothing on the way.
_PASSAGE: Final = 0o711
_SHARED_BASE: Final = Path("/var/lib/mitosis")


def make_data_dir(path: Path) -> None:
    """The agent's own directory: identity, outbox, debts."""
    _make(path, 0o700)


def make_work_root(config: AgentConfig, sandbox: Sandbox) -> Path:
    """Where tasks and hooks run: in the data directory, unless their user cannot get there.

    Below a private home (0700) that is so for every user of a sandbox; then it is elsewhere.
    """
    if config.work_dir is not None:
        root = config.work_dir
    elif not sandbox.is_separate or _is_passable(config.data_dir.parent):
        root = config.data_dir
    else:
        name = hashlib.sha256(str(config.data_dir.resolve()).encode()).hexdigest()[:12]
        root = _SHARED_BASE / f"work-{name}"
        _make(_SHARED_BASE, _PASSAGE)
        log.info("work_dir.elsewhere", path=str(root), reason="data_dir is below a private one")
    _make(root, _PASSAGE if sandbox.is_separate else 0o700)
    return root


def leave_work_root(config: AgentConfig, root: Path) -> None:
    """At the end: nothing stays outside of the data directory unless a cleanup still needs it."""
    if root in (config.data_dir, config.work_dir):
        return
    with contextlib.suppress(OSError):
        for name in ("workers", "ipc"):
            remove_tree(root / name)
        for place in (root / "suites", root):
            place.rmdir()


async def sweep_earlier_life(config: AgentConfig, book: DebtBook, work_root: Path) -> bool:
    """Whether nothing of it runs any more. Needs no coordinator."""

    def clear() -> bool:
        identity = load_identity(identity_path(config))
        plan = SweepPlan(
            data_dir=work_root,
            marker=marker_value(config.instance, config.data_dir),
            cgroups=_own_cgroups(config),
            ipc_prefix="" if identity is None else prefix_of(identity.manager_uuid),
            owed_suites=[debt.suite_uuid for debt in book.open_debts()],
        )
        return sweep(plan).survivors == 0

    return await run_blocking(clear)


def make_token_keeper(config: AgentConfig, client: httpx2.AsyncClient) -> TokenKeeper:
    """Registers with the user's token, or with the user's password."""

    async def user_token() -> str:
        if config.token_file is not None:
            return await run_blocking(read_user_token, config.token_file)
        if config.user is None or config.password is None:
            raise AuthRejected("neither a token file nor a password")
        return await rest.log_in(client, config.user, config.password.reveal())

    return TokenKeeper(identity_path(config), client, config.coordinator, user_token)


def identity_path(config: AgentConfig) -> Path:
    return config.data_dir / "identity.json"


def pool_instance(config: AgentConfig) -> str:
    """What this agent's cgroups and users are told apart by."""
    return config.instance or "default"


def hook_user(sandbox: Sandbox) -> HookUser | None:
    """Whom hooks run as."""
    identity = sandbox.identity(_HOOK_SLOT)
    return None if identity is None else HookUser(identity.uid, identity.gid)


def _make(path: Path, mode: int) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = path.lstat()
        if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid():
            raise HostUnusable(f"{path} is not a directory of this user")
        path.chmod(mode)
    except OSError as error:
        raise HostUnusable(f"cannot use {path}: {error.strerror}") from error


def _is_passable(path: Path) -> bool:
    """Whether any user may pass through to what is below."""
    resolved = path.resolve()
    return all(place.stat().st_mode & stat.S_IXOTH for place in (resolved, *resolved.parents))


def _own_cgroups(config: AgentConfig) -> list[Path]:
    if config.cgroup == "off":
        return []
    name = subtree_name(pool_instance(config))
    found: list[Path] = []
    for hierarchy in find_hierarchies():
        # The pool falls back to the root of a hierarchy where its own group cannot be used.
        found += [hierarchy.own_group / name, hierarchy.root / name]
    return list(dict.fromkeys(found))
