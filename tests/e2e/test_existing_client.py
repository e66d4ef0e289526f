"""Every public method of the existing Python client (pynetmito) against a running coordinator."""

import hashlib
import inspect
from datetime import timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx2
import pytest
from pynetmito import MitoHttpClient
from pynetmito import schemas as mito

from tests.e2e.cluster import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

RESULT = mito.ArtifactContentType.RESULT
PUBLIC = {
    name
    for name, _ in inspect.getmembers(MitoHttpClient, inspect.isfunction)
    if not name.startswith("_")
}


def md5(password: str) -> list[int]:
    return list(hashlib.md5(password.encode()).digest())


class Recorder:
    """Hands out the client's methods and remembers which were called."""

    def __init__(self, url: str) -> None:
        self._client = MitoHttpClient(url)
        self.called: set[str] = set()

    def __getattr__(self, name: str) -> Any:
        if name in PUBLIC:
            self.called.add(name)
        return getattr(self._client, name)


class Story:
    """A user, her group, tasks and a worker, told once through the client."""

    def __init__(self, cluster: Cluster, place: Path) -> None:
        self.cluster = cluster
        self.place = place
        self.client = Recorder(cluster.url)
        self.name, self.password = cluster.admin

    def sessions(self) -> None:
        credentials = self.place / "credentials"
        assert self.client.connect(credentials, self.name, self.password, True) == self.name
        lines = credentials.read_text().splitlines()
        assert self.client.extract_credential(self.name, lines)[0] == self.name
        self.client.modify_or_append_credential(self.place / "other", "somebody", "token")
        self.client.user_login(
            mito.UserLoginReq(username=self.name, md5_password=md5(self.password))
        )
        assert self.client.user_auth() == self.name
        assert self.client.get_redis_connection_info().url is None

    def users_and_groups(self) -> None:
        create = mito.CreateUserReq(username="grace", md5_password=md5("first"), admin=False)
        self.client.admin_create_user(create)
        new = mito.AdminChangePasswordReq(new_md5_password=md5("second"))
        self.client.admin_change_password("grace", new)
        self.client.user_create_group(mito.CreateGroupReq(group_name="lab"))
        assert self.client.get_user_groups_roles().groups["lab"] == mito.UserGroupRole.ADMIN
        relations = {"grace": mito.UserGroupRole.WRITE}
        self.client.update_user_group_roles("lab", mito.UpdateUserGroupRoleReq(relations=relations))
        assert self.client.get_group_by_name("lab").users_in_group == {
            self.name: mito.UserGroupRole.ADMIN,
            **relations,
        }
        self.client.remove_user_group_roles("lab", mito.RemoveUserGroupRoleReq(users={"grace"}))
        quota = mito.ChangeGroupStorageQuotaReq(storage_quota="=20GB")
        assert (
            self.client.admin_update_group_storage_quota("lab", quota).storage_quota == 20 * 10**9
        )
        groups = mito.ChangeUserGroupQuota(group_quota="+2")
        assert self.client.admin_update_user_group_quota("grace", groups).group_quota == 10
        self.client.admin_delete_user("grace")
        changed = mito.UserChangePasswordReq(
            old_md5_password=md5(self.password), new_md5_password=md5("changed")
        )
        assert self.client.user_change_password(self.name, changed).token
        self.password = "changed"
        assert self.client.user_auth() == self.name

    def attachments(self) -> None:
        source = self.place / "data.txt"
        source.write_bytes(b"attachment bytes")
        self.client.upload_attachment(source, "lab", "dir/data one.txt")
        self.client.upload_attachment(source, "lab", "second.txt")
        req = mito.UploadAttachmentReq(key="third.txt", content_length=16)
        answer = self.client.get_upload_attachment_resp("lab", req)
        assert not answer.exist
        self.client.upload_file(answer.url, 16, source)
        assert self.client.get_attachment("dir/data one.txt", "lab").size == 16
        found = self.client.query_attachments_by_filter("lab", mito.AttachmentsQueryReq(key="data"))
        assert [one.key for one in found.attachments] == ["dir/data one.txt"]
        target = self.place / "back.txt"
        self.client.download_attachment("dir/data one.txt", "lab", target)
        assert target.read_bytes() == b"attachment bytes"
        resp = self.client.get_attachment_download_resp("lab", "third.txt")
        self.client.download_file(resp, target)
        self.client.concurrent_download_files(
            [(resp, self.place / "a"), (resp, self.place / "b")], 2
        )
        assert (self.place / "b").read_bytes() == b"attachment bytes"
        by_filter = self.client.batch_download_attachments_by_filter(
            "lab", mito.AttachmentsDownloadByFilterReq(key="second")
        )
        assert [one.key for one in by_filter.downloads] == ["second.txt"]
        by_list = self.client.batch_download_attachments_by_list(
            "lab", mito.AttachmentsDownloadByKeysReq(keys=["second.txt", "absent"])
        )
        assert len(by_list.downloads) == 1
        # Younger than an hour: the batch calls skip it, the admin may delete it.
        young = self.client.batch_delete_attachments_by_list(
            "lab", mito.AttachmentsDeleteByKeysReq(keys=["second.txt"])
        )
        assert (young.deleted_count, young.failed_keys) == (0, ["second.txt"])
        none = self.client.batch_delete_attachments_by_filter(
            "lab", mito.AttachmentsDeleteByFilterReq(key="second")
        )
        assert none.deleted_count == 0
        self.client.delete_attachment("lab", "second.txt", True)

    def tasks(self) -> None:
        first = self.client.user_submit_task(self.task("one"))
        assert first.task_id == 1
        batch = self.client.batch_submit_tasks(
            mito.TasksSubmitReq(tasks=[self.task("two"), self.task("three"), self.task("four")])
        )
        uuids = [self.uuid_of(result) for result in batch.results]
        self.client.change_task(first.uuid, mito.ChangeTaskReq(priority=7))
        self.client.update_task_labels(first.uuid, mito.UpdateTaskLabelsReq(labels={"kept"}))
        info = self.client.get_task_by_uuid(first.uuid).info
        assert (info.priority, info.labels, info.state) == (7, ["kept"], mito.TaskState.READY)
        assert info.timeout == 90
        listed = self.client.query_tasks_by_filter(mito.TasksQueryReq(group_name="lab", limit=10))
        assert listed.count == 4
        self.client.cancel_task_by_uuid(uuids[0])
        by_list = self.client.cancel_tasks_by_uuids(mito.TasksCancelByUuidsReq(uuids=[uuids[1]]))
        assert (by_list.cancelled_count, by_list.failed_uuids) == (1, [])
        by_filter = self.client.cancel_tasks_by_filter(
            mito.TasksCancelByFilterReq(group_name="lab", labels={"four"})
        )
        assert by_filter.cancelled_count == 1
        cancelled = self.client.get_task_by_uuid(uuids[0]).info
        assert cancelled.state == mito.TaskState.CANCELLED
        assert cancelled.result.msg == mito.TaskResultMessage.USER_CANCELLATION
        self.task_uuid = first.uuid

    def workers(self) -> None:
        self.worker_uuid, self.worker = self.register("lab:admin")
        self.client.replace_worker_tags(self.worker_uuid, mito.ReplaceWorkerTagsReq(tags={"gpu"}))
        self.client.replace_worker_labels(
            self.worker_uuid, mito.ReplaceWorkerLabelsReq(labels={"rack-1"})
        )
        self.client.user_create_group(mito.CreateGroupReq(group_name="guests"))
        self.client.update_group_worker_roles(
            self.worker_uuid,
            mito.UpdateGroupWorkerRoleReq(relations={"guests": mito.GroupWorkerRole.WRITE}),
        )
        self.client.remove_group_worker_roles(
            self.worker_uuid, mito.RemoveGroupWorkerRoleReq(groups={"guests"})
        )
        seen = self.client.get_worker_by_uuid(self.worker_uuid)
        assert (seen.info.tags, seen.info.labels) == (["gpu"], ["rack-1"])
        assert seen.groups["lab"] == mito.GroupWorkerRole.ADMIN
        listed = self.client.query_workers_by_filter(mito.WorkersQueryReq(group_name="lab"))
        assert [one.worker_id for one in listed.workers] == [self.worker_uuid]

    def run_the_task(self) -> None:
        """As the existing worker does it: fetch, finish, upload, commit."""
        task = self.worker.get("/workers/tasks").json()
        assert UUID(task["uuid"]) == self.task_uuid
        self.report(task["id"], "Finish")
        upload = {"Upload": {"content_type": "result", "content_length": 5}}
        url = self.report(task["id"], upload)["url"]
        assert httpx2.put(url, content=b"bytes").status_code == 200
        self.report(task["id"], {"Commit": {"exit_status": 0, "msg": None}})
        answer = self.client.get_task_by_uuid(self.task_uuid)
        assert answer.info.state == mito.TaskState.FINISHED
        assert answer.info.reporter_uuid == self.worker_uuid
        assert [one.content_type for one in answer.artifacts] == [RESULT]

    def artifacts(self) -> None:
        resp = self.client.get_artifact_download_resp(self.task_uuid, RESULT)
        assert resp.size == 5
        target = self.place / "result"
        self.client.download_artifact(self.task_uuid, RESULT, target)
        assert target.read_bytes() == b"bytes"
        log = mito.ArtifactContentType.STD_LOG
        self.client.upload_artifact(target, self.task_uuid, log)
        request = mito.UploadArtifactReq(content_type=log, content_length=5)
        assert self.client.get_upload_artifact_resp(self.task_uuid, request).exist
        by_filter = self.client.batch_download_artifacts_by_filter(
            mito.ArtifactsDownloadByFilterReq(group_name="lab", content_type=RESULT)
        )
        assert [one.uuid for one in by_filter.downloads] == [self.task_uuid]
        by_list = self.client.batch_download_artifacts_by_list(
            mito.ArtifactsDownloadByUuidsReq(uuids=[self.task_uuid], content_type=RESULT)
        )
        assert len(by_list.downloads) == 1
        young = self.client.batch_delete_artifacts_by_list(
            mito.ArtifactsDeleteByUuidsReq(uuids=[self.task_uuid], content_type=RESULT)
        )
        assert (young.deleted_count, young.failed_uuids) == (0, [self.task_uuid])
        none = self.client.batch_delete_artifacts_by_filter(
            mito.ArtifactsDeleteByFilterReq(group_name="lab", content_type=RESULT)
        )
        assert none.deleted_count == 0
        self.client.delete_artifact(self.task_uuid, RESULT, True)

    def dismissals(self) -> None:
        force = mito.WorkerShutdownOp.FORCE
        self.client.cancel_worker_by_uuid(self.worker_uuid, True)
        assert self.worker.get("/workers/tasks").status_code == 401
        by_admin, _ = self.register("lab:admin")
        self.client.admin_cancel_worker_by_uuid(by_admin, True)
        by_list, _ = self.register("lab:admin")
        answer = self.client.shutdown_workers_by_uuids(
            mito.WorkersShutdownByUuidsReq(uuids=[by_list], op=force)
        )
        assert (answer.shutdown_count, answer.failed_uuids) == (1, [])
        self.register("lab:admin")
        by_filter = self.client.shutdown_workers_by_filter(
            mito.WorkersShutdownByFilterReq(group_name="lab", op=force)
        )
        assert by_filter.shutdown_count == 1

    def wrong_shutdown_secret(self) -> None:
        with pytest.raises(Exception, match="403"):
            self.client.admin_shutdown_coordinator(mito.ShutdownReq(secret="wrong"))

    def register(self, group: str) -> tuple[UUID, httpx2.Client]:
        headers = {"Authorization": f"Bearer {self.client.credential}"}
        body = {"tags": [], "labels": [], "groups": [group], "lifetime": None}
        answer = httpx2.post(f"{self.cluster.url}/workers", json=body, headers=headers).json()
        worker = httpx2.Client(
            base_url=self.cluster.url, headers={"Authorization": f"Bearer {answer['token']}"}
        )
        return UUID(answer["worker_id"]), worker

    def report(self, attempt_id: int, op: Any) -> Any:
        answer = self.worker.post("/workers/tasks", json={"id": attempt_id, "op": op})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def task(self, label: str) -> mito.SubmitTaskReq:
        return mito.SubmitTaskReq(
            group_name="lab",
            labels={label},
            timeout=timedelta(seconds=90),
            task_spec=mito.TaskSpec(args=["true"]),
        )

    @staticmethod
    def uuid_of(result: Any) -> UUID:
        return getattr(result, "ok", result).uuid


# The client's own habits (its upload call, sockets left to the collector) are not ours to judge.
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_every_public_method_of_the_existing_client_works(cluster: Cluster, tmp_path: Path):
    story = Story(cluster, tmp_path)
    story.sessions()
    story.users_and_groups()
    story.attachments()
    story.tasks()
    story.workers()
    story.run_the_task()
    story.artifacts()
    story.dismissals()
    story.wrong_shutdown_secret()
    assert story.client.called == PUBLIC
