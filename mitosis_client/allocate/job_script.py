"""What a job runs: one node agent, told to finish in time, in a directory that goes with it.

Pure text. No secret is in it: the agent reads its token from a private file.
"""

import re
import shlex
from pathlib import Path
from typing import Final

import msgspec

from mitosis_client.allocate.values import Scope
from mitosis_client.errors import ConfigError

# Slurm signals up to 60 s early and kills at the end; the rest is for cleaning up and last words.
LAST_WORDS_S: Final = 20
JOB_LABEL: Final = "slurm-job:"
ALLOCATION_LABEL: Final = "allocation:"
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
# Flags of sbatch that we set, or that would make other jobs than the one we count.
_OURS: Final = frozenset({
    "array", "a", "clusters", "M", "comment", "export", "export-file", "get-user-env", "job-name",
    "J", "nodes", "N", "ntasks", "n", "no-requeue", "output", "o", "parsable", "partition", "p",
    "requeue", "signal", "test-only", "time", "t", "wait", "W", "wrap",
})  # fmt: skip


class JobPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is the same for every job of an allocation."""

    name: str
    coordinator: str
    token_file: Path
    log_dir: Path
    agent_command: tuple[str, ...]
    scope: Scope
    time_s: int
    drain_s: int
    partition: str | None = None
    agent_dir: str | None = None
    setup: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if _NAME.fullmatch(self.name) is None:
            raise ConfigError("name: up to 32 letters, digits, - and _")
        if not LAST_WORDS_S * 2 <= self.drain_s <= 65535:
            raise ConfigError(f"drain: from {LAST_WORDS_S * 2}s to 65535s")
        if self.time_s < 60 or self.time_s <= self.drain_s:
            raise ConfigError("time: at least a minute, and longer than drain")
        for flag in self.extra:
            check_extra(flag)

    @property
    def job_name(self) -> str:
        return f"mitosis-{self.name}"

    def flags(self) -> list[str]:
        """For sbatch. One task on one node: an agent uses all that the job has there."""
        found = [
            *self.extra,
            "--nodes=1", "--ntasks=1",
            f"--time={-(-self.time_s // 60)}",
            # To the script alone, which passes it on; the agent's commands never see it.
            f"--signal=B:USR1@{self.drain_s}",
            f"--output={self.log_dir}/%j.log",
        ]  # fmt: skip
        return [*found, f"--partition={self.partition}"] if self.partition else found

    def script(self) -> str:
        agent = " ".join(
            [
                *map(shlex.quote, self.agent_command), "run",
                "--coordinator", shlex.quote(self.coordinator),
                "--token-file", shlex.quote(str(self.token_file)),
                "--groups", shlex.quote(",".join(self.scope.groups)),
                *(["--tags", shlex.quote(",".join(self.scope.tags))] if self.scope.tags else []),
                "--labels", f'"{ALLOCATION_LABEL}{self.name},{JOB_LABEL}$SLURM_JOB_ID"',
                "--instance", f'"slurm-{self.name}-$SLURM_JOB_ID"',
                "--data-dir", '"$dir"',
                "--grace", f"{self.drain_s - LAST_WORDS_S}s",
                "--log-format", "json",
            ]
        )  # fmt: skip
        base = shlex.quote(self.agent_dir) if self.agent_dir else '"${TMPDIR:-/tmp}"'
        setup = "".join(f"{line}\n" for line in self.setup)
        return _SCRIPT.format(name=self.name, setup=setup, base=base, agent=agent)


# The shell stays: SIGUSR1 comes to it alone, perhaps before there is an agent, and becomes one
# SIGTERM for the agent; a second one would mean "at once". A plain scancel signals every process of
# the job, so the shell passes nothing on then. `wait` returns early at each trap, hence the loop.
# 143 without an outbox: told before it could listen, so there was nothing to finish. A directory of
# an agent that did not end well is kept: its outbox may hold results.
_SCRIPT: Final = """\
#!/bin/sh
# A node agent of the allocation {name}, submitted by `mitosis allocate slurm`.
agent= told= passed=
pass_on() {{
  if [ -n "$agent" ] && [ -z "$passed" ]; then passed=1; kill -TERM "$agent"; fi
}}
trap 'told=1; pass_on' USR1
trap : TERM INT
set -eu
{setup}base={base}
mkdir -p "$base"
dir=$(mktemp -d "$base/mitosis-$SLURM_JOB_ID.XXXXXX")
set +e
{agent} &
agent=$!
if [ -n "$told" ]; then pass_on; fi
while :; do
  wait "$agent"
  status=$?
  kill -0 "$agent" 2>/dev/null || break
done
if [ "$status" -eq 143 ] && [ ! -e "$dir/outbox.sqlite" ]; then status=0; fi
if [ "$status" -eq 0 ]; then rm -rf "$dir"; else echo "kept $dir" >&2; fi
exit "$status"
"""


def check_extra(flag: str) -> None:
    """A flag of the operator's for sbatch, as one word. Raises ConfigError."""
    found = re.fullmatch(r"--([a-z][a-z-]*)(=.+)?|-([A-Za-z])(.*)", flag, re.DOTALL)
    if found is None:
        raise ConfigError(f"sbatch: {flag!r} is not a flag in one word, as in --mem=8G")
    name = found[1] or found[3]
    # sbatch takes any beginning of a long flag that is not ambiguous.
    is_ours = name in _OURS or (found[1] and any(one.startswith(name) for one in _OURS))
    if is_ours:
        raise ConfigError(f"sbatch: {flag!r} is set by the allocation itself")
