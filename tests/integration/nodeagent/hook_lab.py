"""A host for hooks under test: real processes, a real store, links made as the coordinator does."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import boto3
from botocore.config import Config

from mitosis_protocol.errors import ErrorCode
from mitosis_protocol.specs import AttachmentRef, EnvHookSpec, RemoteResource, ResourceRef
from mitosis_protocol.to_manager import ResolvedResource
from nodeagent.hooks.context import HookContext, Phase
from nodeagent.hooks.directories import Sandbox, suite_dirs
from nodeagent.hooks.resources import Resolve
from nodeagent.hooks.runner import HookHost
from nodeagent.worker.transfers import Transfers

BUCKET = "mitosis-attachments"


class Store:
    """Objects of this test in a real S3, and the links a coordinator would give for them."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=environment["S3_ENDPOINT_URL"],
            aws_access_key_id=environment["S3_ACCESS_KEY_ID"],
            aws_secret_access_key=environment["S3_SECRET_ACCESS_KEY"],
            region_name="us-east-1",
            config=Config(signature_version="s3v4", s3={"addressing_style": "path"}),
        )
        self._prefix = uuid4().hex
        self.links: dict[str, ResolvedResource] = {}
        self.asked = 0

    def make_bucket(self) -> None:
        self._client.create_bucket(Bucket=BUCKET)

    def put(self, key: str, data: bytes, *, sha256: str | None = None) -> ResourceRef:
        """An object and a reference that puts it at a path of the same name."""
        name = f"{self._prefix}/{key}"
        self._client.put_object(Bucket=BUCKET, Key=name, Body=data)
        self.links[key] = ResolvedResource(url=self.sign(name), size=len(data), sha256=sha256)
        return resource(key)

    def sign(self, name: str) -> str:
        params = {"Bucket": BUCKET, "Key": name}
        return str(self._client.generate_presigned_url("get_object", Params=params))

    async def resolve(self, resources: Sequence[RemoteResource]) -> list[ResolvedResource]:
        self.asked += 1
        absent = ResolvedResource(error=ErrorCode.OBJECT_NOT_FOUND)
        keys = [one.attachment.key if one.attachment else "" for one in resources]
        return [self.links.get(key, absent) for key in keys]


def resource(key: str, local_path: str | None = None) -> ResourceRef:
    return ResourceRef(RemoteResource(attachment=AttachmentRef(key)), local_path or key)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def shell(script: str, timeout: str = "60s", **more: Any) -> EnvHookSpec:
    return EnvHookSpec(args=["sh", "-c", script], timeout=timeout, **more)


def context(phase: Phase = "preparation", suite_uuid: UUID | None = None) -> HookContext:
    return HookContext(
        phase=phase,
        suite_uuid=suite_uuid or uuid4(),
        suite_name="ML campaign, Übung 1",
        group_name="ml-team",
        worker_count=16,
        manager_uuid=uuid4(),
        assignment_id=7,
    )


class Lab:
    """One data directory; `host` is what the agent would hand to hooks."""

    def __init__(self, data_dir: Path, transfers: Transfers, marker: str) -> None:
        self.data_dir = data_dir
        self.transfers = transfers
        self.marker = marker

    def host(
        self,
        resolve: Resolve | None = None,
        *,
        sandbox: Sandbox | None = None,
        network_deadline_s: float = 60.0,
        **env: str,
    ) -> HookHost:
        return HookHost(
            data_dir=self.data_dir,
            transfers=self.transfers,
            resolve=resolve,
            marker=self.marker,
            env={"PATH": os.environ["PATH"], **env},
            sandbox=sandbox,
            network_deadline_s=network_deadline_s,
        )

    def shared(self, about: HookContext) -> Path:
        return suite_dirs(self.data_dir, about.suite_uuid).shared
