"""`client.suites.close(uuid)`: the calls as methods, bound to a client of either kind.

Every verb is described once, in mitosis_client.calls; here it only gets its name. `Sync` and
`Async` differ in nothing but who sends.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from mitosis_client.calls import accounts, fleet, suites, tasks
from mitosis_client.calls.call import Call, Pages

P = ParamSpec("P")
T = TypeVar("T")


class Sender(Protocol):
    def send(self, call: Call[T]) -> T: ...

    def pages(self, pages: Pages[T]) -> Iterator[T]: ...


class AsyncSender(Protocol):
    async def send(self, call: Call[T]) -> T: ...

    def pages(self, pages: Pages[T]) -> AsyncIterator[T]: ...


class Sync:
    """Methods that wait."""

    def __init__(self, client: Sender) -> None:
        self.client = client


class Async:
    """Methods to be awaited."""

    def __init__(self, client: AsyncSender) -> None:
        self.client = client


def _now(build: Callable[P, Call[T]]) -> Callable[Concatenate[Any, P], T]:
    def method(self: Sync, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.client.send(build(*args, **kwargs))

    return _named(method, build)


def _all(build: Callable[P, Pages[T]]) -> Callable[Concatenate[Any, P], Iterator[T]]:
    def method(self: Sync, /, *args: P.args, **kwargs: P.kwargs) -> Iterator[T]:
        return self.client.pages(build(*args, **kwargs))

    return _named(method, build)


def _later(build: Callable[P, Call[T]]) -> Callable[Concatenate[Any, P], Awaitable[T]]:
    def method(self: Async, /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]:
        return self.client.send(build(*args, **kwargs))

    return _named(method, build)


def _all_later(
    build: Callable[P, Pages[T]],
) -> Callable[Concatenate[Any, P], AsyncIterator[T]]:
    def method(self: Async, /, *args: P.args, **kwargs: P.kwargs) -> AsyncIterator[T]:
        return self.client.pages(build(*args, **kwargs))

    return _named(method, build)


M = TypeVar("M", bound=Callable[..., Any])


def _named(method: M, build: Callable[..., Any]) -> M:
    method.__name__, method.__doc__ = build.__name__, build.__doc__
    return method


class Suites(Sync):
    create = _now(suites.create)
    list = _all(suites.query)
    show = _now(suites.show)
    change = _now(suites.change)
    delete = _now(suites.delete)
    close = _now(suites.close)
    reopen = _now(suites.reopen)
    pause = _now(suites.pause)
    resume = _now(suites.resume)
    cancel = _now(suites.cancel)
    scale = _now(suites.scale)
    rerun = _now(suites.rerun)
    explain = _now(suites.explain)
    refresh_managers = _now(suites.refresh_managers)


class AsyncSuites(Async):
    create = _later(suites.create)
    list = _all_later(suites.query)
    show = _later(suites.show)
    change = _later(suites.change)
    delete = _later(suites.delete)
    close = _later(suites.close)
    reopen = _later(suites.reopen)
    pause = _later(suites.pause)
    resume = _later(suites.resume)
    cancel = _later(suites.cancel)
    scale = _later(suites.scale)
    rerun = _later(suites.rerun)
    explain = _later(suites.explain)
    refresh_managers = _later(suites.refresh_managers)


class Tasks(Sync):
    submit = _now(tasks.submit)
    submit_array = _now(tasks.submit_array)
    show = _now(tasks.show)
    list = _all(tasks.query)
    cancel = _now(tasks.cancel)
    cancel_many = _now(tasks.cancel_many)
    relabel = _now(tasks.relabel)
    explain = _now(tasks.explain)
    artifact = _now(tasks.artifact)
    delete_artifact = _now(tasks.delete_artifact)
    group_events = _now(tasks.group_events)


class AsyncTasks(Async):
    submit = _later(tasks.submit)
    submit_array = _later(tasks.submit_array)
    show = _later(tasks.show)
    list = _all_later(tasks.query)
    cancel = _later(tasks.cancel)
    cancel_many = _later(tasks.cancel_many)
    relabel = _later(tasks.relabel)
    explain = _later(tasks.explain)
    artifact = _later(tasks.artifact)
    delete_artifact = _later(tasks.delete_artifact)
    group_events = _later(tasks.group_events)


class Fleet(Sync):
    managers = _all(fleet.managers)
    manager = _now(fleet.manager)
    metrics = _now(fleet.metrics)
    drain = _now(fleet.drain)
    undrain = _now(fleet.undrain)
    quarantine = _now(fleet.quarantine)
    release = _now(fleet.release)
    shutdown = _now(fleet.shutdown)
    revoke = _now(fleet.revoke)
    grant = _now(fleet.grant)
    withdraw = _now(fleet.withdraw)
    consent = _now(fleet.consent)
    retag = _now(fleet.retag)
    relabel = _now(fleet.relabel)
    workers = _now(fleet.workers)
    worker = _now(fleet.worker)
    shutdown_worker = _now(fleet.shutdown_worker)


class AsyncFleet(Async):
    managers = _all_later(fleet.managers)
    manager = _later(fleet.manager)
    metrics = _later(fleet.metrics)
    drain = _later(fleet.drain)
    undrain = _later(fleet.undrain)
    quarantine = _later(fleet.quarantine)
    release = _later(fleet.release)
    shutdown = _later(fleet.shutdown)
    revoke = _later(fleet.revoke)
    grant = _later(fleet.grant)
    withdraw = _later(fleet.withdraw)
    consent = _later(fleet.consent)
    workers = _later(fleet.workers)
    worker = _later(fleet.worker)
    shutdown_worker = _later(fleet.shutdown_worker)


class Accounts(Sync):
    health = _now(accounts.health)
    whoami = _now(accounts.whoami)
    roles = _now(accounts.roles)
    change_password = _now(accounts.change_password)
    create_group = _now(accounts.create_group)
    group = _now(accounts.group)
    set_members = _now(accounts.set_members)
    remove_members = _now(accounts.remove_members)
    attachments = _all(accounts.attachments)
    attachment = _now(accounts.attachment)
    delete_attachment = _now(accounts.delete_attachment)
    create_user = _now(accounts.create_user)
    delete_user = _now(accounts.delete_user)
    set_user_state = _now(accounts.set_user_state)
    set_password = _now(accounts.set_password)
    group_quota = _now(accounts.group_quota)
    storage_quota = _now(accounts.storage_quota)
    shutdown_coordinator = _now(accounts.shutdown_coordinator)


class AsyncAccounts(Async):
    health = _later(accounts.health)
    whoami = _later(accounts.whoami)
    roles = _later(accounts.roles)
    create_group = _later(accounts.create_group)
    group = _later(accounts.group)
    attachments = _all_later(accounts.attachments)
    attachment = _later(accounts.attachment)
