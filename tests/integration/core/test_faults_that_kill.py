"""The lethal fault actions, on processes of our own."""

import signal
import subprocess
import sys
import time

PROGRAM = """
import sys, time
from mitosis_protocol import faults
faults.configure(sys.argv[1])
print("before", flush=True)
started = time.monotonic()
faults.fault("commit.in_txn")
print("after", round(time.monotonic() - started, 2), flush=True)
"""


def start(spec):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, spec], stdout=subprocess.PIPE, text=True
    )


def test_kill9_ends_the_process_on_the_spot():
    process = start("commit.in_txn=kill9")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == -signal.SIGKILL
    assert out == "before\n"


def test_stop_freezes_the_process_for_the_given_time():
    process = start("commit.in_txn=stop:0.5")
    out, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    word, waited = out.splitlines()[1].split()
    assert word == "after"
    assert 0.4 <= float(waited) < 5


def test_stop_without_a_time_waits_for_somebody_to_continue_it():
    process = start("commit.in_txn=stop")
    try:
        deadline = time.monotonic() + 20
        while state_of(process.pid) != "T":
            assert time.monotonic() < deadline, "the process never stopped"
            time.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        out, _ = process.communicate(timeout=20)
        assert out.splitlines()[1].startswith("after")
    finally:
        process.kill()
        process.wait()


def test_without_a_matching_rule_the_process_goes_on():
    process = start("claim.before_commit=kill9")
    process.communicate(timeout=20)
    assert process.returncode == 0


def state_of(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:  # noqa: PTH123 - procfs
        return file.read().rsplit(")", 1)[1].split()[0]
