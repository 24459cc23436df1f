"""Values over time become evidence, evidence becomes one score per node. Pure: no clock, no I/O, no memory.

Shapes: S signals, T times, N nodes. NaN is unknown everywhere. A signal looks back over its persistence and over what
it lasts, never further, so a row whose look-back lies inside the window has the same score in every window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan

import numpy as np
from numpy.typing import NDArray

from bot.model import NodeScore, Reading, State3
from bot.policy import Evidence, Policy, ScoreNumbers, Signal
from bot.signals.xid import xid

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Rows = NDArray[np.intp]

# A persistence that is three quarters sampled is judged. One lost scrape at the usual 30 s is two of the nine rows in
# two minutes; much more than that missing, and nobody knows whether it was bad all the time.
ENOUGH = 0.75


@dataclass(frozen=True, slots=True)
class Window:
    """What was measured. times: (T,) evenly spaced Unix seconds; values: (S, T, N); expected: (N,) GPUs that the node
    should have; known: (N,) the host is a node of the scheduler."""

    signals: tuple[Signal, ...]
    nodes: tuple[str, ...]
    times: NDArray[np.int64]
    values: Floats
    expected: Floats
    known: Flags

    @property
    def step(self) -> int:
        return int(self.times[1] - self.times[0]) if len(self.times) > 1 else 1

    def rows(self, seconds: Callable[[Signal], int]) -> Rows:
        """(S, 1, 1): how many rows back these seconds of each signal reach."""
        return _per_signal([-(-seconds(s) // self.step) for s in self.signals]).astype(np.intp)


@dataclass(frozen=True, slots=True)
class Scores:
    """values, seen, bad, evidence: (S, T, N); score, hard: (T, N).

    values: as shown to people: of the event, while it lasts. seen: bad, whether or not it has persisted; bad: it has.
    evidence: 0..1. score: NaN where no signal that could say something against the node is known.
    """

    window: Window
    numbers: ScoreNumbers
    values: Floats
    seen: Flags
    bad: Flags
    evidence: Floats
    score: Floats
    hard: Flags


def score(window: Window, policy: Policy) -> Scores:
    numbers = policy.numbers.score
    measured, values = _lasting(window, _measured(window))
    with np.errstate(invalid="ignore"):  # an infinite sample compares as it should
        seen = measured >= _parameter(window, lambda e: e.at)
    bad, known = _persistent(window, seen, ~np.isnan(measured))
    evidence = np.where(known, np.where(bad, _strength(window, measured), 0.0), np.nan)
    total, hard = _fused(window.signals, evidence, numbers)
    return Scores(window, numbers, values, seen, bad, evidence, total, hard)


# -- from values to evidence: each class is a measure that is bad at `at` and above ------------------------------------


def _measured(window: Window) -> Floats:
    measured = window.values.copy()
    for kind, measure in MEASURES.items():
        rows = [i for i, signal in enumerate(window.signals) if signal.evidence.kind == kind]
        measured[rows] = measure(window, rows)
    return measured


def _value(window: Window, rows: Sequence[int]) -> Floats:
    return window.values[rows]


def _missing(window: Window, rows: Sequence[int]) -> Floats:
    return window.expected - window.values[rows]


def _rise(window: Window, rows: Sequence[int]) -> Floats:
    """Above the lowest value within `lasts`."""
    low = np.empty((len(rows), *window.values.shape[1:]))
    back = window.rows(lambda s: s.evidence.lasts).ravel()[rows]
    for reach in np.unique(back):
        same = back == reach
        low[same] = _lowest(window.values[rows][same], int(reach) + 1)
    return window.values[rows] - low


def _lowest(values: Floats, length: int) -> Floats:
    """The least known value of the last `length` rows, in log2(length) steps of doubled reach."""
    low, reach = values.copy(), 1
    while reach < length:
        shift = min(reach, length - reach)
        low[:, shift:] = np.fmin(low[:, shift:], low[:, :-shift])
        reach += shift
    return low


MEASURES: dict[str, Callable[[Window, Sequence[int]], Floats]] = {
    "threshold": _value,
    "missing": _missing,
    "change": _rise,
}


def _lasting(window: Window, measured: Floats) -> tuple[Floats, Floats]:
    """Measure and value with the latest event in the place of what followed it, for as long as it lasts."""
    at = _parameter(window, lambda e: e.at)
    reach = window.rows(lambda s: 0 if s.evidence.kind == "change" else s.evidence.lasts)
    row = np.arange(len(window.times))[:, None]
    with np.errstate(invalid="ignore"):
        event = np.maximum.accumulate(np.where(measured >= at, row, -1), axis=1)
    source = np.where((event >= 0) & (row - event <= reach), event, row)
    return np.take_along_axis(measured, source, axis=1), np.take_along_axis(window.values, source, axis=1)


def _persistent(window: Window, seen: Flags, known: Flags) -> tuple[Flags, Flags]:
    """(bad, known): bad in all known samples of the persistence, and enough of them are. Where too few are, and all of
    those bad, nobody knows."""
    back = window.rows(lambda s: s.persistence)
    bad_rows, known_rows = _counted(seen, back), _counted(known, back)
    throughout = seen & (bad_rows == known_rows)
    enough = known_rows >= np.ceil(ENOUGH * (back + 1))
    return throughout & enough, known & (~throughout | enough)


def _counted(flags: Flags, back: Rows) -> NDArray[np.int64]:
    """How many of the last back + 1 rows are set."""
    count = np.cumsum(flags, axis=1, dtype=np.int64)
    before = np.arange(flags.shape[1])[:, None] - back - 1
    earlier = np.take_along_axis(count, np.maximum(before, 0), axis=1)
    return count - np.where(before >= 0, earlier, 0)


def _strength(window: Window, measured: Floats) -> Floats:
    at = _parameter(window, lambda e: e.at)
    top = _parameter(window, lambda e: e.at + 1 if e.ramp is None else e.ramp)
    low = _parameter(window, lambda e: e.strength)
    full = _parameter(window, lambda e: e.strength if e.full is None else e.full)
    weight = _per_signal([s.weight for s in window.signals])
    with np.errstate(invalid="ignore"):
        part = np.clip((measured - at) / (top - at), 0, 1)
    return np.asarray(weight * (low + (full - low) * part))


def _parameter(window: Window, of: Callable[[Evidence], float]) -> Floats:
    return _per_signal([of(signal.evidence) for signal in window.signals])


def _per_signal(numbers: Sequence[float]) -> Floats:
    return np.array(numbers, dtype=np.float64).reshape(-1, 1, 1)


# -- from evidence to scores -------------------------------------------------------------------------------------------


def _fused(signals: Sequence[Signal], evidence: Floats, numbers: ScoreNumbers) -> tuple[Floats, Flags]:
    """The strongest within a category, noisy-or across; soft evidence stops at its cap, whatever adds up."""
    told = np.nan_to_num(evidence)
    no_hard, no_soft = np.ones(told.shape[1:]), np.ones(told.shape[1:])
    for category in {signal.category for signal in signals}:
        hard = _strongest(told, [s.category == category and s.hard for s in signals])
        soft = _strongest(told, [s.category == category and not s.hard for s in signals])
        no_hard *= 1 - hard
        no_soft *= 1 - np.where(hard > 0, 0, soft)
    total = 1 - no_hard * (1 - np.minimum(1 - no_soft, numbers.soft_cap))
    speaks = np.array([max(s.evidence.strength, s.evidence.full or 0) > 0 for s in signals], dtype=bool)
    judged = (~np.isnan(evidence[speaks])).any(axis=0)
    condemned = _strongest(told, [s.hard for s in signals]) >= numbers.hard_line
    return np.where(judged, total, np.nan), condemned


def _strongest(told: Floats, which: Sequence[bool]) -> Floats:
    return np.asarray(told[np.array(which, dtype=bool)].max(axis=0, initial=0.0))


# -- one row, for people and for decide --------------------------------------------------------------------------------


def readings(scores: Scores, row: int) -> tuple[Reading, ...]:
    """Every signal of every node at times[row], node by node."""
    told = _Told(scores, row)
    signals, nodes = range(len(scores.window.signals)), range(len(scores.window.nodes))
    return tuple(told.reading(s, n) for n in nodes for s in signals)


def node_scores(scores: Scores, row: int) -> dict[str, NodeScore]:
    """The nodes whose score is known at times[row], with their bad readings, strongest first."""
    told = _Told(scores, row)
    reasons: dict[int, list[Reading]] = {}
    for s, n in zip(*(axis.tolist() for axis in np.nonzero(scores.bad[:, row])), strict=True):
        reasons.setdefault(n, []).append(told.reading(s, n))
    return {
        scores.window.nodes[n]: told.node(n, sorted(reasons.get(n, []), key=lambda r: (-r.evidence, r.signal)))
        for n in np.flatnonzero(~np.isnan(scores.score[row])).tolist()
    }


class _Told:
    """One row as Python's own numbers: thousands of readings are made of it."""

    def __init__(self, scores: Scores, row: int) -> None:
        window = scores.window
        self.window = window
        self.evidence: list[list[float]] = scores.evidence[:, row].tolist()
        self.bad: list[list[bool]] = scores.bad[:, row].tolist()
        self.values: list[list[float]] = scores.values[:, row].tolist()
        self.expected: list[float] = window.expected.tolist()
        self.known: list[bool] = window.known.tolist()
        past = slice(0, row + 1)
        seen, known = scores.seen[:, past], ~np.isnan(scores.values[:, past])
        self.since: list[list[int]] = window.times[_began(seen, known & ~seen, axis=1)].tolist()
        with np.errstate(invalid="ignore"):
            high, low = scores.score[past] >= scores.numbers.open_at, scores.score[past] < scores.numbers.open_at
        stood = window.times[row] - window.times[_began(high, low, axis=0)]
        self.soft_for: list[int] = np.where(high[-1], stood, 0).tolist()
        self.score: list[float] = scores.score[row].tolist()
        self.hard: list[bool] = scores.hard[row].tolist()

    def reading(self, s: int, n: int) -> Reading:
        signal, evidence, value, bad = self.window.signals[s], self.evidence[s][n], self.values[s][n], self.bad[s][n]
        state: State3 = "unknown" if isnan(evidence) else "bad" if bad else "good"
        return Reading(
            node=self.window.nodes[n],
            signal=signal.id,
            state=state,
            evidence=evidence if bad else 0.0,
            value=None if isnan(value) else value,
            since=self.since[s][n] if bad else None,
            hard=bad and signal.hard,
            provenance=signal.provenance,
            known=self.known[n],
            text=words(signal, value, self.expected[n]) if bad else "",
        )

    def node(self, n: int, reasons: Sequence[Reading]) -> NodeScore:
        return NodeScore(
            node=self.window.nodes[n],
            score=self.score[n],
            hard=self.hard[n],
            reasons=tuple(reasons),
            soft_for=self.soft_for[n],
            known=self.known[n],
        )


def _began(on: Flags, off: Flags, axis: int) -> Rows:
    """The row in which the last stretch of `on` began: the first `on` after the last `off`. Rows that are neither
    break nothing."""
    shape = [1] * on.ndim
    shape[axis] = -1
    row = np.arange(on.shape[axis]).reshape(shape)
    last_off = np.where(off, row, -1).max(axis=axis, keepdims=True)
    return np.asarray((on & (row > last_off)).argmax(axis=axis))


def words(signal: Signal, value: float, expected: float) -> str:
    """The reading in words."""
    name = xid(int(value)).name if signal.xid_action else ""
    return signal.text.format(value=value, expected=expected, xid_name=name)
