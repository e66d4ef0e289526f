"""Run the state machine against SQL with one guard broken. Used by the tests of this folder."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import LiteralString

import psycopg
from django.db import DatabaseError, OperationalError
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from core.errors import DomainError
from core.pg import load_sql
from tasks import statements
from tests.mutants.mutants import Mutant
from tests.property.machine import QueueMachine


def machine_fails(max_examples: int, machine: type[RuleBasedStateMachine] = QueueMachine) -> bool:
    """Whether the machine objects within so many examples; always the same ones."""
    short = settings(
        max_examples=max_examples,
        stateful_step_count=30,
        derandomize=True,
        deadline=None,
        database=None,
        # A dead mutant need not be a small one: no shrinking, no second bug, no story.
        phases=(Phase.generate,),
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(machine, settings=short)
    except (psycopg.OperationalError, OperationalError):
        raise  # the server is in trouble, which says nothing about the guard
    except (AssertionError, psycopg.Error, DatabaseError, DomainError):
        return True
    return False


@contextmanager
def in_place(mutant: Mutant) -> Iterator[None]:
    """Run with the mutated text; nothing on disk changes."""

    def mutated(package: str, name: str) -> LiteralString:
        text = load_sql(package, name)
        return text.replace(mutant.old, mutant.new) if name == mutant.file else text

    original = statements.load_sql
    statements.load_sql = mutated
    statements.forget_texts()
    try:
        yield
    finally:
        statements.load_sql = original
        statements.forget_texts()
