"""The existing Python client where it is strict: specs, results, filters, errors and big batches.

That every one of its methods works is shown in tests/e2e/test_existing_client.py.
"""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from pynetmito import MitoHttpClient
from pynetmito import schemas as mito

from tests.e2e.cluster import Cluster
from tests.integration.tasks.live_client import LiveUser, LiveWorker

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(120),
    # The client's own habits are not ours to judge.
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def admin(live: Cluster) -> Iterator[LiveUser]:
    user = LiveUser(live, *live.admin)
    yield user
    user.http.close()


@pytest.fixture(scope="module")
def client(live: Cluster, tmp_path_factory: pytest.TempPathFactory) -> MitoHttpClient:
    client = MitoHttpClient(live.url)
    name, password = live.admin
    credentials: Path = tmp_path_factory.mktemp("client") / "credentials"
    assert client.connect(credentials, name, password, True) == name
    return client


@pytest.fixture
def worker(admin: LiveUser) -> Iterator[LiveWorker]:
    registered = admin.register_worker()
    yield registered
    registered.http.close()


@pytest.fixture
def label() -> str:
    """Keeps the tasks of one test apart from those of the others."""
    return f"label-{uuid4().hex}"


def request(client: MitoHttpClient, label: str, **changes: object) -> mito.SubmitTaskReq:
    given: dict[str, object] = {
        "group_name": client.username,
        "labels": {label},
        "timeout": timedelta(minutes=1, seconds=30),
        "task_spec": mito.TaskSpec(args=["true"]),
        **changes,
    }
    return mito.SubmitTaskReq(**given)


def uuid_of(result: object) -> UUID:
    uuid: UUID = getattr(result, "ok", result).uuid
    return uuid


def test_watch_and_artifact_resources_survive_the_round_trip(
    client: MitoHttpClient, label: str
) -> None:
    first = client.user_submit_task(request(client, label)).uuid
    spec = mito.TaskSpec(
        args=["python", "x.py"],
        envs={"A": "1"},
        resources=[
            mito.RemoteResourceDownload(
                remote_file=mito.RemoteResource.artifact(
                    uuid=first, content_type=mito.ArtifactContentType.EXEC_LOG
                ),
                local_path=Path("in/log.tar.gz"),
            ),
            mito.RemoteResourceDownload(
                remote_file=mito.RemoteResource.attachment(key="a b/c.csv"),
                local_path=Path("c.csv"),
            ),
        ],
        terminal_output=True,
        watch=(first, mito.TaskExecState.EXEC_FINISHED),
    )
    batch = mito.TasksSubmitReq(tasks=[request(client, label, task_spec=spec)])
    [result] = client.batch_submit_tasks(batch).results
    read = client.get_task_by_uuid(uuid_of(result)).info.spec
    assert read.watch == spec.watch
    assert read.resources == spec.resources
    assert (read.args, read.envs, read.terminal_output) == (spec.args, spec.envs, True)


def test_every_way_a_task_can_end_is_valid_for_the_client(
    client: MitoHttpClient, admin: LiveUser, worker: LiveWorker, label: str
) -> None:
    first = admin.submit(labels=[label], priority=9)
    doomed = admin.submit(labels=[label], depends_on=[first])
    running = admin.submit(labels=[label], priority=8)
    waiting = admin.submit(labels=[label], priority=-9)
    worker.commit(worker.fetch()["id"], exit_status=256)
    task = worker.fetch()
    assert task["uuid"] == running
    client.cancel_task_by_uuid(UUID(running))
    client.cancel_task_by_uuid(UUID(waiting))
    worker.report(task["id"], "Cancel")
    worker.report(task["id"], {"Commit": {"exit_status": 15, "msg": "ExecTimeout"}})
    ended = {uuid: client.get_task_by_uuid(UUID(uuid)).info for uuid in (first, doomed, running)}
    assert ended[first].result.exit_status == 256
    assert ended[doomed].result is None
    assert ended[running].state == mito.TaskState.CANCELLED
    listed = client.query_tasks_by_filter(
        mito.TasksQueryReq(labels={label}, exit_status="!=0", limit=10)
    )
    assert {str(info.uuid) for info in listed.tasks} == {first, running}


def test_filters_of_the_client(client: MitoHttpClient, label: str) -> None:
    for priority in (1, 2, 3):
        client.user_submit_task(request(client, label, priority=priority, tags={"gpu"}))

    def count(**filters: object) -> int:
        found = client.query_tasks_by_filter(mito.TasksQueryReq(labels={label}, **filters))
        return int(found.count)

    assert count() == 3
    assert count(count=True) == 3
    assert count(limit=1, offset=1) == 1
    assert count(priority=">=2") == 2
    assert count(states={mito.TaskState.READY}) == 3
    assert count(states={mito.TaskState.RUNNING}) == 0
    assert count(creator_usernames={client.username}) == 3
    assert count(tags={"gpu"}) == 3
    assert count(tags=set()) == 3  # the client drops empty sets itself
    assert count(reporter_uuid=uuid4()) == 0
    cancelled = client.cancel_tasks_by_filter(mito.TasksCancelByFilterReq(labels={label}))
    assert cancelled.cancelled_count == 3


def test_refusals_reach_the_user_as_status_and_text(client: MitoHttpClient, label: str) -> None:
    with pytest.raises(Exception, match=r"404.*nobody"):
        client.user_submit_task(request(client, label, group_name="nobody"))
    with pytest.raises(Exception, match=r"404.*not found"):
        client.get_task_by_uuid(uuid4())
    with pytest.raises(Exception, match=r"400.*nobody not found or user is not in the group"):
        client.query_tasks_by_filter(mito.TasksQueryReq(group_name="nobody"))
    negative = request(client, label, timeout=timedelta(seconds=-5))
    with pytest.raises(Exception, match=r"400.*negative"):
        client.user_submit_task(negative)


@pytest.mark.alone
def test_a_batch_of_ten_thousand_answers_before_the_client_gives_up(
    client: MitoHttpClient, label: str
) -> None:
    batch = mito.TasksSubmitReq(tasks=[request(client, label) for _ in range(10_000)])
    results = client.batch_submit_tasks(batch).results
    assert len({uuid_of(result) for result in results}) == 10_000
    gone = client.cancel_tasks_by_filter(mito.TasksCancelByFilterReq(labels={label}))
    assert gone.cancelled_count == 10_000
