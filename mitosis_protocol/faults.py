"""Faultpoints: named places where a test or a chaos run may hurt this process.

Call sites say `fault("commit.in_txn")`; without a plan that is one comparison with None. The plan
comes from whoever owns the settings, through `configure(spec)`.

A spec is a list of rules separated by `;`:

    <point>=<action>[:<argument>][@<probability>][#<hit>[+]]

`point` may end in `*`. `#3` acts on the third hit only, `#3+` from the third on, `@0.25` on every
fourth hit by chance (`seed=7` as a rule of its own fixes the dice). Actions:

    kill9            SIGKILL to this process
    stop[:seconds]   SIGSTOP, continued from outside after `seconds` (without: by whoever wants)
    exc[:name]       raise FaultInjected, or the exception registered under `name`
    delay:seconds    sleep
    drop, dup        only at delivery points (`deliveries`): send zero times, or twice

Whatever is done is first said in one line of JSON on the standard error stream.
"""

import asyncio
import contextlib
import os
import random
import re
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from mitosis_protocol.errors import InvalidValue


class FaultInjected(RuntimeError):
    """Raised on purpose by an `exc` rule."""


class FaultMisused(RuntimeError):
    """A drop or dup rule names a point that sends nothing: the run would prove nothing."""


_RULE = re.compile(
    r"(?P<point>[a-z0-9_.]+\*?|\*)=(?P<action>kill9|stop|exc|delay|drop|dup)"
    r"(?::(?P<argument>[A-Za-z0-9_.]+))?"
    r"(?:@(?P<probability>[0-9.]+))?(?:#(?P<hit>[0-9]+)(?P<onwards>\+)?)?"
)
_SEED = re.compile(r"seed=([0-9]+)")
_TIMED_ACTIONS = frozenset({"delay", "stop"})

_exceptions: dict[str, Callable[[str], Exception]] = {"": FaultInjected}


@dataclass
class _Rule:
    point: str
    action: str
    argument: str
    probability: float
    first_hit: int
    last_hit: int | None
    hits: int = 0

    def covers(self, name: str) -> bool:
        if self.point.endswith("*"):
            return name.startswith(self.point[:-1])
        return name == self.point

    def fires(self, dice: random.Random) -> bool:
        self.hits += 1
        if self.hits < self.first_hit:
            return False
        if self.last_hit is not None and self.hits > self.last_hit:
            return False
        return self.probability >= 1 or dice.random() < self.probability


@dataclass
class _Plan:
    rules: list[_Rule]
    dice: random.Random
    # SIGSTOP's wakers: kept so that each is reaped instead of being left a zombie.
    wakers: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def next_rule(self, name: str) -> _Rule | None:
        for rule in self.rules:
            if rule.covers(name) and rule.fires(self.dice):
                _say(rule, name)
                return rule
        return None


_plan: _Plan | None = None


def configure(spec: str | None) -> None:
    """Replace the plan; an empty spec removes it. Raises InvalidValue for a rule it cannot read."""
    global _plan  # noqa: PLW0603 - one plan per process, read on every hit
    rules: list[_Rule] = []
    dice = random.Random()  # noqa: S311 - dice for tests, not secrets
    for text in (spec or "").split(";"):
        rule_text = text.strip()
        seed = _SEED.fullmatch(rule_text)
        if seed is not None:
            dice.seed(int(seed[1]))
        elif rule_text:
            rules.append(_parse_rule(rule_text))
    _plan = _Plan(rules=rules, dice=dice) if rules else None


def register_exception(name: str, factory: Callable[[str], Exception]) -> None:
    """Let `exc:<name>` raise `factory(text)`; for packages that have exceptions of their own."""
    _exceptions[name] = factory


def is_armed() -> bool:
    """Whether any rule is loaded; start-up logs it so that nobody runs chaos unknowingly."""
    return _plan is not None


def fault(name: str) -> None:
    """Do what the plan says about `name`; nothing when there is no plan."""
    if _plan is None:
        return
    rule = _plan.next_rule(name)
    if rule is None:
        return
    if rule.action == "delay":
        time.sleep(float(rule.argument))
    else:
        _hurt(_plan, rule, name)


async def afault(name: str) -> None:
    """As `fault`, without blocking the loop for a delay."""
    if _plan is None:
        return
    rule = _plan.next_rule(name)
    if rule is None:
        return
    if rule.action == "delay":
        await asyncio.sleep(float(rule.argument))
    else:
        _hurt(_plan, rule, name)


def deliveries(name: str) -> int:
    """How often to send the message at this delivery point: 1, or 0 (drop), or 2 (dup)."""
    if _plan is None:
        return 1
    rule = _plan.next_rule(name)
    if rule is None:
        return 1
    if rule.action == "drop":
        return 0
    if rule.action == "dup":
        return 2
    if rule.action == "delay":
        time.sleep(float(rule.argument))
    else:
        _hurt(_plan, rule, name)
    return 1


def _say(rule: _Rule, name: str) -> None:
    """To the descriptor itself: a process that is about to be killed flushes nothing."""
    line = f'{{"event": "fault.injected", "point": "{name}", "action": "{rule.action}"}}\n'
    with contextlib.suppress(OSError):
        os.write(2, line.encode())


def _hurt(plan: _Plan, rule: _Rule, name: str) -> None:
    if rule.action == "kill9":
        os.kill(os.getpid(), signal.SIGKILL)
    elif rule.action == "stop":
        _stop_self(plan, rule.argument)
    elif rule.action == "exc":
        raise _exceptions[rule.argument](f"fault injected at {name}")
    else:
        raise FaultMisused(f"{name} sends nothing, so it cannot {rule.action}")


def _stop_self(plan: _Plan, seconds: str) -> None:
    plan.wakers = [waker for waker in plan.wakers if waker.poll() is None]
    if seconds:
        # A stopped process cannot wake itself, and none of its threads can either.
        command = f"sleep {float(seconds)}; kill -CONT {os.getpid()}"
        plan.wakers.append(subprocess.Popen(["/bin/sh", "-c", command]))  # noqa: S603 - two numbers
    os.kill(os.getpid(), signal.SIGSTOP)


def _parse_rule(text: str) -> _Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise InvalidValue(f"not a fault rule: {text!r}")
    action, argument = match["action"], match["argument"] or ""
    if action == "delay" and not argument:
        raise InvalidValue(f"delay needs seconds: {text!r}")
    if action == "exc" and argument not in _exceptions:
        raise InvalidValue(f"no exception is registered as {argument!r}: {text!r}")
    try:
        if action in _TIMED_ACTIONS and argument:
            float(argument)
        probability = float(match["probability"] or "1")
    except ValueError as error:
        raise InvalidValue(f"not a number in fault rule {text!r}") from error
    if not 0 <= probability <= 1:
        raise InvalidValue(f"probability must be between 0 and 1: {text!r}")
    first_hit = int(match["hit"] or "1")
    only_once = match["hit"] is not None and match["onwards"] is None
    return _Rule(
        point=match["point"],
        action=action,
        argument=argument,
        probability=probability,
        first_hit=first_hit,
        last_hit=first_hit if only_once else None,
    )
