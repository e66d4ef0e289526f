"""The product with two workers and its peers, in turns: tasks that run `/bin/true` as a process.

From the submit to the last result. In each of three turns everybody is started, warmed up, measured
and stopped again before the next one starts, so that nobody is measured beside another's servers;
before each stands Popen from two processes, so that a machine which got slower meanwhile shows.
The order moves on by one from turn to turn. Peers are installed before the first measurement.

BENCH_TASKS (numbers with commas) and BENCH_PEERS (names with commas) choose less or more.
"""

import os
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import psutil

from benchmarks.live_stack import live_stack
from benchmarks.measure import REPETITIONS, Figure, Row
from benchmarks.peers.catalogue import PEERS, POOL, Peer
from benchmarks.peers.environments import PeerMissing, python_of
from benchmarks.peers.runs import CAP_S, Reading, take
from benchmarks.process_costs import Costs
from benchmarks.spawn_limit import spawns_per_s
from benchmarks.throughput import GOALS, LIMIT_COUNT, prepared_suite, tasks_per_s

WORKERS: Final = 2
SIZES: Final = (2_000, 10_000)
SMALL: Final = 2_000  # up to here all peers; above, those that a goal names
OURS: Final = "ours"
UNIT: Final = "a second"


@dataclass
class Field:
    """Everybody's figures at one size, by name; those of the limit were taken just before each."""

    size: int
    rates: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    limits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    readings: dict[str, list[Reading]] = field(default_factory=lambda: defaultdict(list))
    missing: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def run() -> list[Row]:
    peers = (POOL, *_chosen(os.environ.get("BENCH_PEERS", "")))
    missing = _install(peers)
    fields = [
        Field(size, missing=dict(missing)) for size in _sizes(os.environ.get("BENCH_TASKS", ""))
    ]
    for turn in range(REPETITIONS):
        for one in fields:
            _take_turn(one, peers, turn)
    return [row for one in fields for row in _rows(one, peers)]


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split(",")) if text else SIZES


def _chosen(text: str) -> tuple[Peer, ...]:
    if not text:
        return PEERS
    known = {peer.name: peer for peer in PEERS}
    names = text.split(",")
    if unknown := [name for name in names if name not in known]:
        raise ValueError(f"unknown peer {', '.join(unknown)}; there are: {', '.join(known)}")
    return tuple(known[name] for name in names)


def _install(peers: tuple[Peer, ...]) -> dict[str, str]:
    """Before anything is measured; whoever cannot be installed, and why."""
    missing = {}
    for peer in peers:
        try:
            python_of(peer)
        except PeerMissing as reason:
            missing[peer.name] = str(reason)
    return missing


def _take_turn(one: Field, peers: tuple[Peer, ...], turn: int) -> None:
    runs: dict[str, Callable[[], float]] = {OURS: partial(_run_ours, one)}
    for peer in _at(one.size, peers):
        runs[peer.name] = partial(_run_peer, one, peer)
    names = list(runs)
    for name in (*names[turn:], *names[:turn]):
        if name in one.missing:
            continue
        limit = spawns_per_s(2, LIMIT_COUNT)
        try:
            rate = runs[name]()
        except PeerMissing as reason:
            one.missing[name] = str(reason)
            continue
        one.limits[name].append(limit)
        one.rates[name].append(rate)
        print(f"  {one.size:,} tasks, {name}: {rate:.0f} {UNIT}, limit {limit:.0f}", flush=True)


def _at(size: int, peers: tuple[Peer, ...]) -> tuple[Peer, ...]:
    return tuple(peer for peer in peers if size <= SMALL or peer.goal or peer is POOL)


def _run_ours(one: Field) -> float:
    with live_stack(agents=1) as stack, prepared_suite(stack, WORKERS) as suite:
        costs = Costs(stack.supervisor)
        rate = tasks_per_s(stack, suite, one.size)
        one.notes.append(f"us of CPU a task: {costs.per_task(one.size)}")
    one.notes.append(f"load of the machine afterwards: {psutil.getloadavg()[0]:.1f}")
    return rate


def _run_peer(one: Field, peer: Peer) -> float:
    reading = take(peer, workers=WORKERS, count=one.size)
    one.readings[peer.name].append(reading)
    return reading.rate


def _rows(one: Field, peers: tuple[Peer, ...]) -> list[Row]:
    name = f"throughput: {one.size:,} tasks, {WORKERS} workers"
    ours = Figure(tuple(one.rates[OURS]), UNIT)
    limit = Figure(tuple(one.limits[OURS]), UNIT)
    first = Row(name, ours, limit, goal=GOALS.get((WORKERS, one.size), ""), notes=one.notes)
    rows = [first]
    for peer in _at(one.size, peers):
        rates = one.rates.get(peer.name)
        figure = Figure(tuple(rates), UNIT) if rates else None
        goal = peer.goal if one.size > SMALL else ""
        notes = _peer_notes(one, peer)
        rows.append(Row(f"{name}, {peer.title}", ours, limit, figure, peer.title, goal, notes))
    return rows


def _peer_notes(one: Field, peer: Peer) -> list[str]:
    notes = []
    if peer.name in one.missing:
        notes.append(f"missing: {one.missing[peer.name]}")
    readings = one.readings.get(peer.name)
    if readings:
        shares = zip(one.rates[peer.name], one.limits[peer.name], strict=True)
        share = statistics.median(rate / limit for rate, limit in shares)
        submit_s = statistics.median(reading.submit_s for reading in readings)
        said = f"{peer.title} {readings[0].version}: {share:.2f}x the limit taken beside it"
        notes.append(f"{said}; submit {submit_s:.2f} s" + (f"; {peer.remark}" * bool(peer.remark)))
        notes += [
            f"the cap of {CAP_S:.0f} s bit: {reading.done:,} tasks done by then"
            for reading in readings
            if reading.is_capped
        ]
        notes += [
            f"did not end by itself: {', '.join(reading.ended)}"
            for reading in readings
            if reading.ended
        ]
    return notes
