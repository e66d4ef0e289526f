"""Guards of the agent's core, broken one at a time. Each must be noticed by a test.

A mutant is a text substitution in one module of nodeagent/core; swap.py puts it in place.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

from tests.mutants.swap import code_in_place


@dataclass(frozen=True)
class AgentMutant:
    name: str
    module: str
    old: str
    new: str


def in_place(mutant: AgentMutant) -> AbstractContextManager[None]:
    edits = [(mutant.old, mutant.new)]
    return code_in_place(f"nodeagent.core.{mutant.module}", edits, mutant.name)


AGENT_MUTANTS = (
    # --- results ---
    AgentMutant(
        "a result the disk refused is forgotten when its worker is dead",
        "reports",
        "        m.reports.refused[event.op_id] = None\n",
        "",
    ),
    AgentMutant(
        "a worker is released although its result could not be stored",
        "reports",
        '        refuse_for_now(m, token, "the result could not be stored; try again")\n',
        "        m.out.append(ReplyIpc(token, ipc.Done(request_id=token.request_id)))\n",
    ),
    AgentMutant(
        "a result without an answer is not said again",
        "reports",
        "            _later(m, line)\n        else:\n            _again(m, line)\n",
        "            _later(m, line)\n",
    ),
    AgentMutant(
        "a result that has to wait is never said again",
        "reports",
        "        elif result.answer is ReportAnswer.RETRY_LATER:\n            _later(m, line)\n",
        "        elif result.answer is ReportAnswer.RETRY_LATER:\n            pass\n",
    ),
    AgentMutant(
        "results are not sent again after a reconnect",
        "reports",
        "    reports.queue = dict.fromkeys(reports.lines)\n",
        "    reports.queue = {}\n",
    ),
    AgentMutant(
        "lines that a short answer leaves out are given up",
        "reports",
        "    for line in purpose.lines[len(results) :]:\n",
        "    for line in purpose.lines[:0]:\n",
    ),
    AgentMutant(
        "a result of a revoked attempt is sent",
        "reports",
        '    if attempt.wish == "revoked":\n        forget(m, attempt, "revoked")\n        return\n'
        "    reports.queue[op_id] = None\n",
        "    reports.queue[op_id] = None\n",
    ),
    # --- crashes ---
    AgentMutant(
        "a crash whose decision got lost counts as settled",
        "reports",
        "    elif answer is ReportAnswer.OK_DUPLICATE and attempt.item is not None:\n",
        "    elif answer is ReportAnswer.OK_DUPLICATE and attempt.item is None:\n",
    ),
    AgentMutant(
        "a task that was to be tried again is dropped",
        "reports",
        '    elif answer is ReportAnswer.OK and result.action == "keep":\n'
        "        try_again(m, attempt)\n",
        "",
    ),
    AgentMutant(
        "the death of a worker takes its task with it",
        "workers",
        "        if attempt.stage is Stage.HANDED:\n"
        "            _report_death(m, attempt, event.reason)\n",
        "",
    ),
    AgentMutant(
        "a worker that asks again keeps what it never reported",
        "workers",
        "        _empty_hands(m, slot)\n    if not slot.is_parked",
        "        pass\n    if not slot.is_parked",
    ),
    AgentMutant(
        "what was ahead dies with its worker",
        "workers",
        "    if ahead is not None:\n        _take_back(m, ahead)\n",
        "",
    ),
    AgentMutant(
        "what runs after a result is charged to the one before",
        "reports",
        "        let_go(m, attempt)\n    if token is not None:\n",
        "    if token is not None:\n",
    ),
    AgentMutant(
        "what was never begun is told as started",
        "reports",
        "attempt not in waiting and attempt.attempt_id",
        "attempt.attempt_id",
    ),
    AgentMutant(
        "an event of an earlier worker touches the present one",
        "workers",
        "slot is None or slot.generation != key.generation or slot.phase",
        "slot is None or slot.phase",
    ),
    # --- fences ---
    AgentMutant(
        "a revoked command goes on",
        "custody",
        '        _stop(m, attempt, "revoked")\n',
        "        pass\n",
    ),
    AgentMutant(
        "a revoked attempt is run again after a crash",
        "custody",
        '    elif attempt.wish == "revoked":\n        forget(m, attempt, "revoked")\n'
        '    elif attempt.wish == "cancelled"',
        '    elif attempt.wish == "cancelled"',
    ),
    AgentMutant(
        "a cancelled command goes on",
        "custody",
        '        _stop(m, attempt, "cancelled")\n',
        "        pass\n",
    ),
    AgentMutant(
        "a lease that ran out stops nothing",
        "session",
        "            revoke(m, attempt)\n\n\ndef _compare",
        "            pass\n\n\ndef _compare",
    ),
    AgentMutant(
        "the lease counts from the answer instead of the question",
        "session",
        "    until = sent_at + lease_s\n",
        "    until = m.now + lease_s\n",
    ),
    AgentMutant(
        "a permission to start is given without an answer",
        "reports",
        "    reports.permits[attempt_id] = token\n    reports.to_permit[attempt_id] = None\n",
        "    answer = ipc.StartReply(request_id=token.request_id, may_run=True)\n"
        "    m.out.append(ReplyIpc(token, answer))\n",
    ),
    # --- tasks in and out ---
    AgentMutant(
        "a task that comes twice is taken in twice",
        "supply",
        "        if attempt_id in claim.received or attempt_id in m.ledger.attempts:\n",
        "        if attempt_id < 0:\n",
    ),
    AgentMutant(
        "tasks of an engagement that is over are run",
        "supply",
        "        if is_wanted:\n",
        "        if is_wanted or items is not None:\n",
    ),
    AgentMutant(
        "a return without an answer is given up",
        "supply",
        "        if attempt is not None and attempt.stage is Stage.RETURNING:\n"
        "            m.supply.to_return[attempt_id] = None\n",
        "        if attempt is not None and attempt.stage is Stage.RETURNING:\n            pass\n",
    ),
    AgentMutant(
        "a claim without an answer is asked again under another name",
        "supply",
        "    claim = purpose.claim\n    claim.is_sent = False\n",
        "    claim = purpose.claim\n    claim.is_sent = False\n    claim.claim_id = m.draw_id()\n",
    ),
)
