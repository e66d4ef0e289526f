"""The direct worker: one session on the control plane, many tasks in one process.

`machine` decides (pure), `session` and `link` do; `comm` is the WorkerComm of a lane.
"""
