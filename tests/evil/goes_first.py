"""Wants to be served before everybody else; exits with the number of wishes granted."""

import os

granted = 0
for wish in (
    lambda: os.setpriority(os.PRIO_PROCESS, 0, -20),
    lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(99)),
    lambda: os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"-1000"),
):
    try:
        wish()
        granted += 1
    except OSError:
        pass
raise SystemExit(granted)
