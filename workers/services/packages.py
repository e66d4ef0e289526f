"""Orders to direct workers about packages: checked, written down, pushed.

The worker has the last word and tells what became of it (websocket.worker_inbound). An order to a
worker that loses its session is lost with it and has to be given again.
"""

from collections.abc import Mapping
from typing import Any
from uuid import UUID

import msgspec
from django.db import transaction

from accounts.actors import Actor
from accounts.services.audit import record
from core.counters import PKG_OPS
from core.errors import InvalidInput, NotFound
from core.push import to_worker_on_commit
from mitosis_protocol.control_payloads import PkgInstall, PkgUninstall
from mitosis_protocol.errors import ErrorCode
from workers.hints import Hint, Install, Uninstall
from workers.models import Worker


def order_install(*, actor: Actor, worker: Worker, op_id: UUID, package: Mapping[str, Any]) -> None:
    """Raises InvalidInput for names the wire does not take, or a worker that takes no packages."""
    if not (worker.capabilities or {}).get("allow_packages", False):
        raise InvalidInput(
            "the worker was not started with --allow-packages",
            code=ErrorCode.PACKAGE_NOT_PERMITTED,
        )
    order = _checked({**package, "op_id": op_id}, PkgInstall)
    _send(actor, worker, "install", Install(order=order), order)


def order_uninstall(
    *, actor: Actor, worker: Worker, op_id: UUID, name: str, version: str | None
) -> None:
    """Raises NotFound for a package the worker did not name, InvalidInput where one has to be
    chosen among several versions.
    """
    packages = (worker.capabilities or {}).get("packages", [])
    versions = [one["version"] for one in packages if one["name"] == name]
    if not versions or (version is not None and version not in versions):
        raise NotFound("The worker has no such package")
    if version is None and len(versions) > 1:
        raise InvalidInput(f"version: the worker has {', '.join(sorted(versions))}")
    chosen = {"name": name, "version": version or versions[0], "op_id": op_id}
    order = _checked(chosen, PkgUninstall)
    _send(actor, worker, "uninstall", Uninstall(order=order), order)


def _checked(members: Mapping[str, Any], kind: Any) -> Any:
    try:
        return msgspec.convert(members, kind)
    except msgspec.ValidationError as error:
        raise InvalidInput(str(error), code=ErrorCode.PACKAGE_INVALID) from error


def _send(
    actor: Actor, worker: Worker, op: str, hint: Hint, order: PkgInstall | PkgUninstall
) -> None:
    tenant = "" if worker.tenant is None else worker.tenant.name
    detail = {
        "tenant": tenant,
        "corr": str(order.op_id),
        "name": order.name,
        "version": order.version,
        "sha256": getattr(order, "sha256", None),
    }
    with transaction.atomic():
        record(actor=actor, action=f"package.{op}", target=str(worker.runner.uuid), detail=detail)
        to_worker_on_commit(worker.runner.uuid, hint)
    PKG_OPS.of(tenant, op, "ordered").inc()
