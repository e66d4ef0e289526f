"""Which faultpoints a chaos run may arm, and in which process each one lies.

The names are those of the test plan; `test_faultpoints.py` fails when one is gone from the code.
"""

from typing import Final

# A point that every request passes is hit late in a life, a rare one at once.
COORDINATOR: Final = {
    "submit.before_commit": 20,
    "submit.after_commit_before_reply": 20,
    "claim.before_commit": 20,
    "claim.after_commit_before_send": 20,
    "commit.in_txn": 30,
    "commit.after_commit_before_ack": 30,
    "reap.after_select": 1,
    "reap.after_epoch_bump": 1,
    "cancel.after_decide_before_push": 1,
    "suite.assign_committed_not_sent": 1,
    "session.after_epoch_before_accept": 1,
    "session.old_close_after_new_open": 1,
    "token.rotated_not_delivered": 1,
    "count.mid_fold": 1,
}
AGENT: Final = {
    "claim.sent_before_agent_store": 5,
    "ipc.after_pop_before_reply": 10,
    "finish.after_exit_before_outbox": 10,
    "finish.after_outbox_before_send": 10,
    "finish.ack_lost": 5,
    "cancel.pushed_not_killed": 1,
    "suite.mid_preparation": 1,
    "suite.mid_cleanup": 1,
    "debt.written": 1,
    "debt.unlinked": 1,
}
WORKER: Final = {
    "worker.task_fetched": 5,  # the reply was sent, its worker is dead
    "start.before_exec": 5,
    "worker.before_finish": 5,  # the command has ended, nobody knows
    "worker.before_commit": 5,  # uploads are done
    "worker.after_commit": 5,
    "upload.url_issued": 2,
}
POINTS: Final = {**COORDINATOR, **AGENT, **WORKER}
# Where frames are handed on: they can also be lost or doubled there.
DELIVERIES: Final = ("claim.sent_before_agent_store", "finish.ack_lost", "cancel.pushed_not_killed")
# Only called where a runner is removed by hand.
ELSEWHERE: Final = ("reap.mid_batch",)
