"""Resources in, archives and live output out; and what the worker refuses to touch."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from uuid import uuid4

from tests.fakes.http_coordinator import FakeCoordinator, FakeTask
from tests.fakes.tiny_http import Answer, Fault, Trouble
from tests.fakes.worker_process import WorkerProcess, committed, content, members

StartWorker = Callable[..., WorkerProcess]


def attachment(key: str, local_path: str) -> dict[str, object]:
    return {"remote_file": {"Attachment": {"key": key}}, "local_path": local_path}


def stdout(coordinator: FakeCoordinator, task: FakeTask) -> bytes:
    return content(coordinator.store[f"artifact/{task.uuid}/std-log"], "std-log/stdout.log")


def test_resources_are_there_before_the_command_runs(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.add_attachment("set one/é.bin", b"A" * 3_000_000)
    coordinator.add_attachment("empty", b"")
    other = uuid4()
    coordinator.store[f"artifact/{other}/result"] = b"archive"
    artifact = {
        "remote_file": {"Artifact": {"uuid": str(other), "content_type": "result"}},
        "local_path": "in/result.tar.gz",
    }
    task = coordinator.add_task(
        "sh",
        "-c",
        "cd $MITO_RESOURCE_DIR && find . -type f -printf '%P %s\\n' | sort",
        resources=[attachment("set one/é.bin", "a/b/data.bin"), attachment("empty", "e"), artifact],
        terminal_output=True,
    )
    start_worker()
    assert committed(task)["exit_status"] == 0
    assert stdout(coordinator, task) == b"a/b/data.bin 3000000\ne 0\nin/result.tar.gz 7\n"


def test_a_missing_resource_ends_the_task(
    coordinator: FakeCoordinator, start_worker: StartWorker, tmp_path: Path
) -> None:
    proof = tmp_path / "ran"
    task = coordinator.add_task("touch", str(proof), resources=[attachment("nothing", "x")])
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": "ResourceNotFound"}
    assert task.ops == ["Cancel", "Commit"]
    assert not proof.exists()


def test_a_forbidden_resource_ends_the_task(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.attachments["secret"] = "forbidden"
    coordinator.add_attachment("expired", b"x")
    coordinator.add_attachment("moved", b"x")
    for key, answer in {
        "expired": Answer(403),
        "moved": Answer(
            302, headers={"Location": f"{coordinator.http.url}/store/attachment/expired"}
        ),
    }.items():
        coordinator.http.faults.append(Fault("GET", f"/store/attachment/{key}", answer, times=99))
    tasks = [
        coordinator.add_task("true", resources=[attachment(key, "x")])
        for key in ("secret", "expired", "moved")
    ]
    start_worker()
    for task in tasks:
        assert committed(task) == {"exit_status": 0, "msg": "ResourceForbidden"}
        assert task.ops == ["Cancel", "Commit"]


def test_a_resource_longer_than_announced_is_refused(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.add_attachment("liar", b"x" * 10)
    coordinator.http.faults.append(
        Fault("GET", "/store/attachment/liar", Answer(body=b"x" * 1000), times=99)
    )
    task = coordinator.add_task("true", resources=[attachment("liar", "x")])
    start_worker()
    assert committed(task)["msg"] == "ResourceForbidden"


def test_a_download_that_breaks_is_repeated_until_it_is_whole(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.add_attachment("data", b"x" * 1000)
    place = "/store/attachment/data"
    coordinator.http.faults += [
        Fault("GET", place, Trouble.RESET),
        Fault("GET", place, Answer(503)),
        Fault("GET", place, Answer(body=b"x" * 500)),
        Fault("GET", "/workers/tasks/", Answer(500)),
    ]
    task = coordinator.add_task(
        "sh",
        "-c",
        "ls -A $MITO_RESOURCE_DIR; wc -c < $MITO_RESOURCE_DIR/d",
        resources=[attachment("data", "d")],
        terminal_output=True,
    )
    start_worker()
    assert committed(task)["msg"] is None
    assert stdout(coordinator, task).split() == [b"d", b"1000"]


def test_a_path_outside_the_resource_directory_is_refused(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.add_attachment("data", b"x")
    paths = ["../escape", "/tmp/escape", "a/../../escape", "a\0b", "", ".", "x" * 300, "d/"]
    tasks = [coordinator.add_task("true", resources=[attachment("data", path)]) for path in paths]
    worker = start_worker()
    for task in tasks:
        assert committed(task) == {"exit_status": 0, "msg": "ResourceForbidden"}
        assert task.ops == ["Cancel", "Commit"]
    assert not list(worker.cache.rglob("escape"))


def test_a_link_planted_by_one_task_is_not_written_through_by_the_next(
    coordinator: FakeCoordinator, start_worker: StartWorker, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    coordinator.add_attachment("data", b"x")
    planted = coordinator.add_task(
        "sh", "-c", f"rm -rf $MITO_RESOURCE_DIR; ln -s {outside} $MITO_RESOURCE_DIR"
    )
    task = coordinator.add_task("true", resources=[attachment("data", "d")])
    start_worker()
    committed(planted)
    assert committed(task)["msg"] is None
    assert list(outside.iterdir()) == []


def test_links_are_stored_not_followed_and_odd_files_left_out(
    coordinator: FakeCoordinator, start_worker: StartWorker, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("secret")
    script = (
        f"cd $MITO_RESULT_DIR; ln -s {tmp_path}/secret link; ln -s {tmp_path} dirlink; mkfifo pipe;"
        "echo x > plain; chmod 4755 plain; mkdir -p deep/er; echo y > deep/er/file; : > empty"
    )
    task = coordinator.add_task("sh", "-c", script)
    start_worker()
    assert committed(task)["msg"] is None
    archive = coordinator.store[f"artifact/{task.uuid}/result"]
    found = members(archive)
    assert sorted(found) == [
        *("result", "result/deep", "result/deep/er", "result/deep/er/file"),
        *("result/dirlink", "result/empty", "result/link", "result/plain"),
    ]
    assert found["result/link"].issym()
    assert found["result/plain"].mode == 0o755
    assert b"secret" not in content(archive, "result/plain")


def test_a_tree_deeper_than_a_path_may_be_is_packed_as_far_as_it_goes_and_removed(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    dig = (
        "import os\nos.chdir(os.environ['MITO_RESULT_DIR'])\nopen('top', 'w')\n"
        "for _ in range(5000): os.mkdir('d'); os.chdir('d')\nos.chmod('..', 0o500)\n"
    )
    task = coordinator.add_task(sys.executable, "-c", dig)
    after = coordinator.add_task("sh", "-c", "ls -A $MITO_RESULT_DIR", terminal_output=True)
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": None}
    found = members(coordinator.store[f"artifact/{task.uuid}/result"])
    assert "result/top" in found
    assert len(found) > 1000
    committed(after)
    assert stdout(coordinator, after) == b""


def test_a_result_directory_replaced_by_a_link_is_not_uploaded(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    task = coordinator.add_task("sh", "-c", "rmdir $MITO_RESULT_DIR; ln -s /etc $MITO_RESULT_DIR")
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert task.ops == ["Finish", "Commit"]


def test_a_full_quota_skips_the_uploads_but_commits(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.is_quota_used = True
    script = "echo x > $MITO_RESULT_DIR/a; echo x > $MITO_EXEC_DIR/b"
    task = coordinator.add_task("sh", "-c", script, terminal_output=True)
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert task.ops == ["Finish", "Commit"]
    asked = [r for r in coordinator.http.requests if b"Upload" in r.body]
    assert len(asked) == 1


def test_an_upload_that_breaks_is_repeated(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.http.faults += [
        Fault("PUT", "/store/", Trouble.RESET),
        Fault("PUT", "/store/", Answer(500)),
        Fault("PUT", "/store/", Trouble.LOST_ANSWER),
        Fault("PUT", "/store/", Answer(403)),
    ]
    task = coordinator.add_task("sh", "-c", "head -c 3000000 /dev/urandom > $MITO_RESULT_DIR/a")
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert len(content(coordinator.store[f"artifact/{task.uuid}/result"], "result/a")) == 3_000_000
    # The refused one was repeated with a fresh address.
    assert task.ops == ["Finish", "Upload", "Upload", "Commit"]


def test_an_upload_the_store_never_takes_is_named_in_the_result(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    coordinator.http.faults.append(Fault("PUT", "/store/", Answer(400), times=99))
    task = coordinator.add_task("sh", "-c", "echo x > $MITO_RESULT_DIR/a")
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": "UploadResultTimeout"}


def test_a_lost_answer_to_submit_does_not_submit_twice(
    coordinator: FakeCoordinator, start_worker: StartWorker
) -> None:
    request = json.dumps({"task_spec": {"args": ["true"]}})
    coordinator.http.faults.append(
        Fault("POST", "/workers/tasks", Trouble.LOST_ANSWER, containing=b"Submit")
    )
    task = coordinator.add_task("sh", "-c", f"echo '{request}' > $MITO_NEW_TASK")
    start_worker()
    assert committed(task) == {"exit_status": 0, "msg": None}
    assert len([t for t in coordinator.tasks if t.upstream == task.uuid]) == 1
