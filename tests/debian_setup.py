"""Installs Slurm, nginx and PgBouncer for the tests that need them, where this machine allows it.

Run by `make test` before pytest, as tests.browser_setup is. Without root and without the programs
those tests are skipped, and this says so in one line. Debian's policy-rc.d decides whether the
packages start services of their own; the tests use neither them nor their files.
"""

import os
import shutil
import subprocess
import sys

# Program -> the package that brings it.
PROGRAMS = {
    "munged": "munge",
    "slurmctld": "slurmctld",
    "slurmd": "slurmd",
    "sbatch": "slurm-client",
    "nginx": "nginx-light",
    "pgbouncer": "pgbouncer",
}
SLURM = ("munged", "slurmctld", "slurmd", "sbatch")
PROXIES = ("nginx", "pgbouncer")
# Daemons live here, and not everybody has it on the PATH.
SBIN = "/usr/sbin"


def find_program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path=SBIN)


def missing(programs: tuple[str, ...]) -> list[str]:
    """Which of these are not installed."""
    return [name for name in programs if find_program(name) is None]


def main() -> int:
    absent = missing(tuple(PROGRAMS))
    if not absent:
        return 0
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        names = ", ".join(absent)
        print(f"Tests that need {names} will be skipped: installing them needs root on Debian.")
        return 0
    packages = sorted({PROGRAMS[name] for name in absent})
    print(f"Installing {', '.join(packages)} for the tests", flush=True)
    # RUNLEVEL: init scripts of the packages do not start anything in single-user mode.
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1"}
    for command in (["update"], ["install", "--yes", "--no-install-recommends", *packages]):
        done = subprocess.run(
            ["apt-get", "-qq", *command],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            print(f"apt-get {command[0]} failed: {done.stderr.strip()[-300:]}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
