"""SeaweedFS as a child: an S3 endpoint on loopback, its inner ports closed by signed tokens.

Its defaults would bind every address, report telemetry and log into the temporary directory.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from mitosis_stack.layout import write_private
from mitosis_stack.ports import LOOPBACK
from mitosis_stack.probes import http_status
from mitosis_stack.process import ChildSpec

PORT_NAMES = (
    "s3", "s3.grpc", "master", "master.grpc", "volume", "volume.grpc",
    "filer", "filer.grpc", "admin", "admin.grpc",
)  # fmt: skip

# Volumes grow as needed, so a larger limit than the default 128 costs nothing.
VOLUME_SIZE_LIMIT_MB = 1024


@dataclass(frozen=True)
class SeaweedSecrets:
    access_key: str
    secret_key: str
    # Signs the inner HTTP of filer and volumes, otherwise open to every local user.
    internal_key: str


@dataclass(frozen=True)
class Seaweed:
    """All of SeaweedFS in one process (`weed mini`)."""

    program: Path
    directory: Path
    sockets: Path
    log: Path
    ports: Mapping[str, int]
    secrets: SeaweedSecrets
    inherited: Mapping[str, str]
    name: str = "s3"
    start_timeout_s: float = 60.0

    @property
    def environment(self) -> dict[str, str]:
        """What a coordinator needs to use this endpoint."""
        return {
            "S3_ENDPOINT_URL": f"http://{LOOPBACK}:{self.ports['s3']}",
            "S3_ACCESS_KEY_ID": self.secrets.access_key,
            "S3_SECRET_ACCESS_KEY": self.secrets.secret_key,
        }

    def prepare(self) -> None:
        self._configuration.mkdir(exist_ok=True, mode=0o700)
        self._store.mkdir(exist_ok=True, mode=0o700)
        identity = {
            "name": "mitosis",
            "credentials": [
                {"accessKey": self.secrets.access_key, "secretKey": self.secrets.secret_key}
            ],
            "actions": ["Admin", "Read", "Write", "List", "Tagging"],
        }
        write_private(self._configuration / "s3.json", json.dumps({"identities": [identity]}))
        key = self.secrets.internal_key
        sections = ("jwt.signing", "jwt.filer_signing", "jwt.filer_signing.read")
        text = "".join(f'[{section}]\nkey = "{key}"\n' for section in sections)
        write_private(self._configuration / "security.toml", text)

    def spec(self) -> ChildSpec:
        options = {
            "dir": ".",
            "ip": LOOPBACK,
            "ip.bind": LOOPBACK,
            "master.telemetry": "false",
            # A resumed master looks for its (no) peers a thousand times a second for ever, 3 % of a
            # core. What it would resume, the highest volume id, it hears from its volumes anyway.
            "master.resumeState": "false",
            "master.volumeSizeLimitMB": str(VOLUME_SIZE_LIMIT_MB),
            "admin.ui": "false",
            "webdav": "false",
            # One volume server: nobody else has to notice that it leaves.
            "volume.preStopSeconds": "0",
            "s3.iam": "false",
            "s3.port.iceberg": "0",
            "s3.port.lance": "0",
            "s3.config": str(self._configuration / "s3.json"),
            "s3.localSocket": str(self.sockets / "s3.sock"),
            "filer.localSocket": str(self.sockets / "filer.sock"),
            **{_port_flag(name): str(port) for name, port in self.ports.items()},
        }
        return ChildSpec(
            name=self.name,
            argv=(
                str(self.program),
                "-logtostderr=true",
                f"-config_dir={self._configuration}",
                "mini",
                *(f"-{name}={value}" for name, value in options.items()),
            ),
            log=self.log,
            env=self.inherited,
            cwd=self._store,
        )

    def is_ready(self) -> bool:
        return http_status(self.ports["s3"], "/status") == 200

    @property
    def _configuration(self) -> Path:
        return self.directory / "config"

    @property
    def _store(self) -> Path:
        return self.directory / "store"


def _port_flag(name: str) -> str:
    part, _, kind = name.partition(".")
    return f"{part}.port.{kind}" if kind else f"{part}.port"
