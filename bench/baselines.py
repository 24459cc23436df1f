"""What people watch with today, on the same recordings: any Xid, a rule set of single thresholds, distance to peers.

Each is a list of alarms and judged by the same counting as our own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from warnings import catch_warnings, simplefilter

import numpy as np
from numpy.typing import NDArray

from bot.backtest import Alarm
from bot.sandbox.recording import Recording
from bot.sandbox.recording.fleet import ROWS, STEP
from bot.sandbox.recording.view import HOURS, MINUTES, View
from bot.signals.peers import Groups, Stay, deviations

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
GPU, NODE = "DCGM_FI_DEV_", "node_"


@dataclass(frozen=True)
class Rule:
    """bad: of one day's rows, (ROWS, nodes); minutes: for how long it must be so."""

    minutes: int
    bad: Callable[[View], Flags]


def _against_median(name: str, worse: Callable[[Floats, Floats], Flags]) -> Callable[[View], Flags]:
    """The node's rate over five minutes against the cluster's median."""

    def bad(view: View) -> Flags:
        rates = view.by_node(view.rate(name, 5 * MINUTES))[:, :, 0]
        return worse(rates, np.nanmedian(rates, axis=1, keepdims=True)) & _enough(rates)

    return bad


def _few_runnable(view: View) -> Flags:
    running = view.max(view.now("node_procs_running"))
    idle = (running < 2) & (np.nanmedian(running, axis=1, keepdims=True) > 10)
    return np.asarray(idle & _enough(running))


def _enough(values: Floats) -> Flags:
    return np.asarray((~np.isnan(values)).sum(axis=1, keepdims=True) >= LIVE_PEERS)


def _hardware_code(view: View) -> Flags:
    return np.asarray(view.max(np.isin(view.now(f"{GPU}XID_ERRORS"), HARDWARE_CODES).astype(float)) == 1)


def _above(name: str, least: float) -> Callable[[View], Flags]:
    return lambda view: np.asarray(view.max(view.now(f"{GPU}{name}")) >= least)


def _grown(name: str, minutes: int, least: float) -> Callable[[View], Flags]:
    def bad(view: View) -> Flags:
        values = view.samples(f"{GPU}{name}", minutes)
        return np.asarray(view.max(values[-view.asked :] - values[: view.asked]) >= least)

    return bad


def _silent(view: View) -> Flags:
    return np.asarray((view.up("dcgm") == 1) & np.isnan(view.max(view.now(f"{GPU}GPU_TEMP"))))


ANY_XID = (Rule(0, _above("XID_ERRORS", 1)),)
# What such rules page for at sites that leave the application's codes out.
HARDWARE_CODES = (48, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 143, 149, 150)
LIVE_PEERS = 3  # Algalon's rules against a median want so many
# The thresholds that Algalon, a public set of alert rules, took from the study that these recordings follow.
THRESHOLDS = (
    Rule(0, _hardware_code),
    Rule(10, _against_median("node_intr_total", lambda rate, usual: np.asarray(rate < 0.5 * usual))),
    Rule(10, _few_runnable),
    Rule(10, _against_median("node_vmstat_pgpgout", lambda rate, usual: np.asarray(rate > 4 * usual + 1))),
    Rule(0, _grown("CORRECTABLE_REMAPPED_ROWS", 24 * HOURS, 9)),
    Rule(0, _grown("UNCORRECTABLE_REMAPPED_ROWS", 10 * MINUTES, 1)),
    Rule(0, _above("ROW_REMAP_FAILURE", 1)),
    Rule(5, _above("ROW_REMAP_PENDING", 1)),
    Rule(10, _above("CLOCKS_EVENT_REASONS", 8)),
    Rule(5, lambda view: np.asarray(view.up("dcgm") == 0)),
    Rule(5, _silent),
)
PEERS: tuple[Callable[[View], Floats], ...] = (
    lambda view: view.rate("node_intr_total", 5 * MINUTES),
    lambda view: view.now("node_procs_running"),
    lambda view: view.max(view.now(f"{GPU}POWER_USAGE")),
    lambda view: view.max(view.now("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE")),
    lambda view: view.max(view.now(f"{GPU}GPU_TEMP")),
)  # of the kind that Minder compares: host, power, work, heat
DISTANCE, FLOOR, PERSISTS = 6.0, 0.05, 4  # robust spreads; share of the median; minutes, as Minder waits


def baselines(recording: Recording) -> Mapping[str, Sequence[Alarm]]:
    """Name → its alarms."""
    days = range(recording.days)
    rules = {"any_xid": ANY_XID, "thresholds": THRESHOLDS}
    seen: dict[str, list[list[Flags]]] = {name: [[] for _ in of] for name, of in rules.items()}
    far: list[Flags] = []
    with np.errstate(invalid="ignore"), catch_warnings():
        simplefilter("ignore", RuntimeWarning)  # a median of nothing is unknown
        for view in (View(recording, day * ROWS, ROWS) for day in days):
            for name, of in rules.items():
                for rule, parts in zip(of, seen[name], strict=True):
                    parts.append(rule.bad(view))
            far.append(_far(view))
    found = {name: _any(rules[name], parts) for name, parts in seen.items()}
    found["peer_distance"] = _lasted(np.concatenate(far), PERSISTS)
    return {name: list(_alarms(bad, recording)) for name, bad in found.items()}


def _any(rules: Sequence[Rule], parts: Sequence[Sequence[Flags]]) -> Flags:
    bad = [_lasted(np.concatenate(days), rule.minutes) for rule, days in zip(rules, parts, strict=True)]
    return np.asarray(np.any(bad, axis=0))


def _far(view: View) -> Flags:
    recording = view.recording
    values = np.stack([metric(view).reshape(view.asked, -1) for metric in PEERS])
    times = recording.start + (view.first + np.arange(view.asked)) * STEP
    stays = (Stay(run.job, run.nodes, run.start, run.end) for run in recording.runs)
    groups = Groups.of(stays, times.astype(np.int64), recording.fleet.names)
    floor = np.full((len(values), 1, 1), FLOOR)
    away, _ = deviations(values, groups, floor, 0 * floor)
    return np.asarray((np.abs(away) > DISTANCE).any(axis=0))


def _lasted(bad: Flags, minutes: int) -> Flags:
    """True where it has been bad in every row for so long."""
    row = np.arange(len(bad))[:, None]
    last_good = np.maximum.accumulate(np.where(bad, -1, row), axis=0)
    return np.asarray(bad & (row - last_good > minutes * 60 // STEP))


def _alarms(bad: Flags, recording: Recording) -> Iterator[Alarm]:
    for node, name in enumerate(recording.fleet.names):
        edges = np.flatnonzero(np.diff(np.concatenate([[0], bad[:, node].astype(np.int8), [0]])))
        for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
            start, end = recording.start + first * STEP, recording.start + last * STEP
            yield Alarm(name, start, end, "gpu_fault", "", 1.0)
