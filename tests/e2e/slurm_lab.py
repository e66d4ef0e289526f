"""A real Slurm on one machine: munged, slurmctld and slurmd below a temporary directory.

Own ports on loopback, own key, own sockets; nothing of an installed Slurm is read or changed.
cgroups stay out of it: the agents under test bring their own.
"""

import os
import secrets
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType

from mitosis_stack.ports import LOOPBACK, pick_free
from mitosis_stack.process import Child, ChildSpec, spawn, wait_until
from tests.debian_setup import find_program

# One node that claims more processors than there are: jobs of one processor each start side by
# side. Short intervals, so that a test waits for work and not for the scheduler.
CONFIGURATION = """\
ClusterName=lab
SlurmctldHost={host}({address})
SlurmctldPort={slurmctld}
SlurmdPort={slurmd}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={root}/munge.socket
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool
SlurmctldPidFile={root}/slurmctld.pid
SlurmdPidFile={root}/slurmd.pid
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
ReturnToService=2
KillWait=5
MinJobAge=300
NodeName={host} NodeAddr={address} NodeHostname={host} CPUs=16 State=UNKNOWN
PartitionName=lab Nodes={host} Default=YES MaxTime=60 State=UP
PartitionName=broken Nodes={host} MaxTime=60 State=INACTIVE
"""


class SlurmLab:
    """`with SlurmLab() as slurm: slurm.run("squeue")`."""

    def __init__(self) -> None:
        self.root = Path(tempfile.mkdtemp(prefix="mitosis-slurm-"))
        self._children: list[Child] = []

    @property
    def environment(self) -> dict[str, str]:
        """What Slurm's commands need to find this one."""
        return {"SLURM_CONF": str(self.root / "slurm.conf")}

    def __enter__(self) -> "SlurmLab":
        self.root.chmod(0o755)
        for name in ("state", "spool", "log"):
            (self.root / name).mkdir()
        self._write_configuration()
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        dead = [child.spec.name for child in self._children if child.poll() is not None]
        if kind is not None:
            for child in self._children:
                print(child.spec.name, child.spec.log.read_text()[-3000:], sep="\n")
        self._stop()
        if kind is None:
            assert not dead, dead

    def run(self, *command: str) -> str:
        """One of Slurm's commands; its output. Fails with what it said."""
        done = self._try(*command)
        assert done.returncode == 0, (command, done.stdout, done.stderr)
        return done.stdout

    def jobs(self) -> dict[str, str]:
        """Number and state of every job Slurm remembers."""
        lines = self.run("squeue", "--noheader", "--states=all", "--format=%A %T").splitlines()
        return dict(line.split() for line in lines)

    def _try(self, *command: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )

    def _write_configuration(self) -> None:
        ports = pick_free(["slurmctld", "slurmd"], {})
        key = self.root / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(secrets.token_bytes(128))
        text = CONFIGURATION.format(
            root=self.root,
            host=socket.gethostname().split(".")[0],
            address=LOOPBACK,
            user="root" if os.geteuid() == 0 else os.environ.get("USER", str(os.geteuid())),
            **ports,
        )
        (self.root / "slurm.conf").write_text(text)

    def _start(self) -> None:
        munge = self.root / "munge.socket"
        child = self._spawn(
            "munged", "--foreground", "--force",
            f"--key-file={self.root}/munge.key", f"--socket={munge}",
            f"--pid-file={self.root}/munged.pid", f"--seed-file={self.root}/munge.seed",
            f"--log-file={self.root}/log/munge.log",
        )  # fmt: skip
        wait_until(munge.exists, child=child, timeout_s=30)
        child = self._spawn("slurmctld", "-D", "-c")
        wait_until(lambda: "UP" in self._try("scontrol", "ping").stdout, child=child, timeout_s=60)
        child = self._spawn("slurmd", "-D")
        wait_until(self._has_idle_node, child=child, timeout_s=60)

    def _has_idle_node(self) -> bool:
        return "idle" in self._try("sinfo", "--noheader", "--format=%t").stdout.split()

    def _spawn(self, program: str, *arguments: str) -> Child:
        path = find_program(program)
        assert path is not None, program
        child = spawn(
            ChildSpec(
                name=program,
                argv=(path, *arguments),
                log=self.root / "log" / f"{program}.log",
                env={**os.environ, **self.environment},
            )
        )
        self._children.append(child)
        return child

    def _stop(self) -> None:
        """Jobs first: their processes are slurmd's grandchildren and would outlive it."""
        if len(self._children) == 3:
            self._try("scancel", "--full", "--me")
            self._wait_until_empty()
        for child in reversed(self._children):
            child.stop()
        shutil.rmtree(self.root, ignore_errors=True)

    def _wait_until_empty(self) -> None:
        slurmd = self._children[-1]
        wait_until(
            lambda: not self._try("squeue", "--noheader").stdout.strip(),
            child=slurmd,
            timeout_s=30,
        )
