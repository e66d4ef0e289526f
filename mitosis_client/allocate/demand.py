"""What the coordinator knows that matters to an allocation: the backlog, and the jobs' agents."""

from collections.abc import Mapping

from mitosis_client.allocate.job_script import ALLOCATION_LABEL, JOB_LABEL
from mitosis_client.allocate.values import Agent, Scope
from mitosis_client.client import Client
from mitosis_client.fleet_models import Manager


def read_backlog(client: Client, scope: Scope) -> int:
    """Tasks that wait or run."""
    return sum(
        suite.pending_tasks
        for group in scope.groups
        for suite in client.suites.list(group_name=group, states=["Open", "Closed"])
        if scope.covers(suite)
    )


def read_agents(client: Client, scope: Scope, name: str) -> Mapping[str, Agent]:
    """The agents of the allocation by the job that each runs in."""
    label = f"{ALLOCATION_LABEL}{name}"
    found: dict[str, Agent] = {}
    for group in scope.groups:
        for manager in client.fleet.managers(group_name=group, labels=[label]):
            job = job_of(manager)
            if job is not None:
                # Newest first: a Slurm that was set up anew counts its jobs from 1 again.
                found.setdefault(job, agent_of(manager))
    return found


def job_of(manager: Manager) -> str | None:
    numbers = [
        label.removeprefix(JOB_LABEL) for label in manager.labels if label.startswith(JOB_LABEL)
    ]
    return next((number for number in numbers if number.isdecimal()), None)


def agent_of(manager: Manager) -> Agent:
    return Agent(
        manager=manager.uuid,
        is_online=manager.connection == "Connected",
        is_idle=manager.state == "Idle" and manager.assigned_suite_uuid is None,
        is_leaving=manager.desired_state == "Shutdown",
    )
