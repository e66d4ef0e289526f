"""Every pair of hot statements on two connections, in both orders: no deadlock, the right end."""

from typing import Any

import pytest

from tests.figures import Figure
from tests.integration.tasks.statement_pairs import (
    HOT,
    STAGES,
    Hot,
    PairLab,
    Stage,
    at_once,
    one_after_the_other,
    sessions,
)
from tests.property.lab import query

pytestmark = pytest.mark.timeout(300)

Ends = dict[tuple[str, str], tuple[Any, ...]]


@pytest.mark.parametrize("stage", STAGES)
def test_two_statements_at_once_end_as_one_after_the_other(
    transactional_db: None, stage: Stage, figure: Figure
) -> None:
    lab = PairLab()
    lab.begin(stage)
    before = _deadlocks()
    pairs = [(first, second) for first in HOT for second in HOT]
    wrong = []
    with sessions() as two:
        ends = {(a.name, b.name): one_after_the_other(lab, a, b) for a, b in pairs}
        # Two that are both refused, in either order, have nothing to fight about.
        rivals = [pair for pair in pairs if _may_matter(lab, pair, ends)]
        for first, second in rivals:
            found = at_once(lab, first, second, two)
            lab.check_truth()
            allowed = (ends[first.name, second.name], ends[second.name, first.name])
            if found not in allowed:
                wrong.append(f"{first.name} / {second.name}: {found} is neither of {allowed}")
    assert wrong == []
    assert _deadlocks() == before
    print(f"{len(rivals)} of the pairs on a {stage} task can meet at once")
    figure("ordered pairs of statements without a deadlock", len(pairs), "pairs", at_least=132)


def _may_matter(lab: PairLab, pair: tuple[Hot, Hot], ends: Ends) -> bool:
    first, second = pair
    reached = {ends[first.name, second.name], ends[second.name, first.name]}
    return first.is_sweep or second.is_sweep or reached != {lab.start_state}


def _deadlocks() -> int:
    query("SELECT pg_stat_force_next_flush()")
    [row] = query("SELECT deadlocks AS n FROM pg_stat_database WHERE datname = current_database()")
    return int(row["n"])
