"""Payloads a direct worker says about itself, made from what it is. Pure; used by machine."""

from collections.abc import Iterable, Sequence

from mitosis_protocol.control_codes import ControlCode
from mitosis_protocol.control_payloads import (
    Capabilities,
    Concurrency,
    Handshake,
    HeldAttempt,
    InstalledPackage,
    PkgEvent,
    PkgInstall,
    PkgUninstall,
    Register,
)
from nodeagent.direct.events import Resources, Traits


def handshake(traits: Traits, session_id: str | None) -> Handshake:
    return Handshake(
        worker_id=traits.worker_uuid,
        process_id=traits.process_uuid,
        auth=traits.auth,
        session_id=session_id,
        software=traits.software,
    )


def register(
    traits: Traits,
    *,
    packages: Sequence[InstalledPackage],
    held: Iterable[tuple[int, int]],
    resources: Resources,
    is_clean: bool,
) -> Register:
    """`held`: attempts, each with the first number that was not acked."""
    return Register(
        capabilities=Capabilities(
            node_types=list(traits.node_types),
            concurrency=Concurrency(max_parallel=traits.max_parallel),
            allow_packages=traits.allow_packages,
        ),
        packages=list(packages),
        inventory=[HeldAttempt(task_id=attempt_id, next_seq=seq) for attempt_id, seq in held],
        resources=list(resources.values()),
        is_clean=is_clean,
    )


def package_refusal(request: PkgInstall | PkgUninstall) -> PkgEvent:
    return PkgEvent(
        op_id=request.op_id,
        op="install" if isinstance(request, PkgInstall) else "uninstall",
        name=request.name,
        version=request.version,
        status="refused",
        code=ControlCode.PKG_PERMISSION,
        message="the worker runs without --allow-packages",
    )
