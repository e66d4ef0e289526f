"""A batch over log files: upload them, count errors in each on the fleet, add the counts up.

Needs `mitosis login` first. Usage: python log_batch.py FILE...
"""
# ruff: noqa: INP001, T201 - a script by itself, which speaks to whoever runs it

import io
import sys
import tarfile
from pathlib import Path

import mitosis_client as mitosis


def main(paths: list[Path]) -> int:
    with mitosis.connect() as client:
        group = client.accounts.whoami()
        spec = mitosis.SuiteSpec(
            group_name=group,
            name="log batch",
            worker_schedule=mitosis.WorkerSchedule(worker_count=2, task_prefetch_count=2),
        )
        with mitosis.Campaign(client, spec) as campaign:
            for path in paths:
                key = f"logs/{path.name}"
                client.files.upload_attachment(group, key, path)
                file = {"remote_file": {"Attachment": {"key": key}}, "local_path": "log"}
                # grep ends with 1 when it finds nothing, which is no failure here.
                count = (
                    'grep -c ERROR "$MITO_RESOURCE_DIR/log" > "$MITO_RESULT_DIR/n" || test $? = 1'
                )
                campaign.submit(["sh", "-c", count], resources=[file], labels=[path.name])
            campaign.wait(timeout_s=300)
            total = 0
            for task in campaign.tasks():
                number = read_number(client, task.uuid)
                print(f"{task.labels[0]}: {number}")
                total += number
    print(f"total: {total}")
    return 0


def read_number(client: mitosis.Client, uuid: str) -> int:
    archive = io.BytesIO(client.files.artifact(uuid, "result"))
    with tarfile.open(fileobj=archive, mode="r:gz") as opened:
        member = opened.extractfile("result/n")
        return int(member.read()) if member else 0


if __name__ == "__main__":
    sys.exit(main([Path(word) for word in sys.argv[1:]]))
