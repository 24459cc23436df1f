"""Values over time become evidence, evidence becomes one score per node. Pure: no clock, no I/O, no memory.

Shapes: S signals, T times, N nodes. NaN is unknown everywhere. A signal looks back over its persistence and over what
it lasts, never further, so a row whose look-back lies inside the window has the same score in every window.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan

import numpy as np
from numpy.typing import NDArray

from bot.policy import Evidence, Policy, ScoreNumbers, Signal
from bot.signals.peers import Groups, Past, deviations, usual_deviations
from bot.signals.phases import phases
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
    should have; known: (N,) the host is a node of the scheduler; groups: which run each node was on, None = on none;
    past: of the signals that are compared with it, in their order."""

    signals: tuple[Signal, ...]
    nodes: tuple[str, ...]
    times: NDArray[np.int64]
    values: Floats
    expected: Floats
    known: Flags
    groups: Groups | None = None
    past: Past | None = None

    @property
    def step(self) -> int:
        return int(self.times[1] - self.times[0]) if len(self.times) > 1 else 1

    def rows(self, seconds: Callable[[Signal], int]) -> Rows:
        """(S, 1, 1): how many rows back these seconds of each signal reach."""
        return _per_signal([-(-seconds(s) // self.step) for s in self.signals]).astype(np.intp)


@dataclass(frozen=True, slots=True)
class Scores:
    """values, seen, bad, evidence, muted: (S, T, N); score, hard, sudden: (T, N).

    values: as shown to people: of the event, while it lasts. seen: bad, whether or not it has persisted; bad: it has.
    evidence: 0..1. score: NaN where no signal that could say something against the node is known. sudden: what the
    driver reported suffices for an incident. muted: a phase took from it what it would have had to persist in. usual:
    number of a signal → (T, N) the median of the node's peers. back: rows that one look sees before its own.
    """

    window: Window
    numbers: ScoreNumbers
    values: Floats
    seen: Flags
    bad: Flags
    evidence: Floats
    score: Floats
    hard: Flags
    sudden: Flags
    muted: Flags
    usual: Mapping[int, Floats] = field(default_factory=dict)
    back: int = 0


def score(window: Window, policy: Policy) -> Scores:
    numbers = policy.numbers.score
    measured = _measured(window)
    usual = _against_peers(window, measured)
    _against_past(window, measured, policy)
    muted = _muted(window, policy)
    measured[muted | _stuck(window)] = np.nan
    measured, values = _lasting(window, measured)
    with np.errstate(invalid="ignore"):  # an infinite sample compares as it should
        seen = measured >= _parameter(window, lambda e: e.at)
    bad, known = _persistent(window, seen, ~np.isnan(measured))
    evidence = np.where(known, np.where(bad, _strength(window, measured), 0.0), np.nan)
    total, hard, sudden = _fused(window.signals, evidence, numbers)
    muted = _counted(muted, window.rows(lambda s: s.persistence)) > 0
    back = look_back(policy) // window.step
    return Scores(window, numbers, values, seen, bad, evidence, total, hard, sudden, muted, usual, back)


def look_back(policy: Policy) -> int:
    """Seconds, a multiple of the step: the window, longer where a site's signal needs more to persist and then to stand
    until it opens something."""
    step, stands = policy.numbers.time.step, policy.numbers.score.open_after
    asked = [signal for signal in policy.signals.values() if signal.query]
    longest = [s.persistence + s.evidence.lasts + (stands if s.evidence.strength else 0) for s in asked]
    return -(-max([policy.numbers.time.window, *longest]) // step) * step


# -- from values to evidence: each class is a measure that is bad at `at` and above ------------------------------------


def _measured(window: Window) -> Floats:
    measured = window.values.copy()
    for kind, measure in MEASURES.items():
        rows = _of_kind(window, kind)
        measured[rows] = measure(window, rows)
    return measured


def _of_kind(window: Window, kind: str) -> list[int]:
    return [i for i, signal in enumerate(window.signals) if signal.evidence.kind == kind]


def _value(window: Window, rows: Sequence[int]) -> Floats:
    return window.values[rows]


def _missing(window: Window, rows: Sequence[int]) -> Floats:
    return np.where(window.values[rows] == 0, np.nan, window.expected - window.values[rows])


def _gone(window: Window, rows: Sequence[int]) -> Floats:
    values = window.values[rows]
    gone = (values == 0) & (window.expected > 0)
    return np.where(np.isnan(values) | np.isnan(window.expected), np.nan, gone)


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


def _nothing(window: Window, rows: Sequence[int]) -> Floats:
    return np.full((len(rows), *window.values.shape[1:]), np.nan)


MEASURES: dict[str, Callable[[Window, Sequence[int]], Floats]] = {
    "threshold": _value,
    "missing": _missing,
    "gone": _gone,
    "change": _rise,
    "context": _nothing,
}


def _against_peers(window: Window, measured: Floats) -> dict[int, Floats]:
    """Measures the class `peers` in place, and gives the median of each. A node that is measured but has no peers, or
    whose peers do too little to be compared, has nothing against it."""
    rows = _of_kind(window, "peers")
    if not rows or window.groups is None:
        measured[rows] *= 0
        return {}
    rules = [window.signals[row].evidence for row in rows]
    floors = _per_signal([e.floor for e in rules]), _per_signal([e.floor_abs for e in rules])
    away, usual = deviations(window.values[rows], window.groups, *floors)
    away *= _per_signal([1 if e.side == "high" else -1 for e in rules])
    with np.errstate(invalid="ignore"):
        told = ~np.isnan(away) & (usual >= _per_signal([e.least for e in rules]))
    measured[rows] = np.where(told, away, 0 * window.values[rows])
    return dict(zip(rows, usual, strict=True))


def _against_past(window: Window, measured: Floats, policy: Policy) -> None:
    """Takes off what a node stood away from its peers before, in place. Where nobody knows that yet, nobody knows."""
    rows = [row for row in _of_kind(window, "peers") if window.signals[row].evidence.own_past]
    if not rows or window.groups is None or window.past is None:
        return
    rules = [window.signals[row].evidence for row in rows]
    floors = _per_signal([e.floor for e in rules]), _per_signal([e.floor_abs for e in rules])
    sides = _per_signal([1 if e.side == "high" else -1 for e in rules])
    before, middle = deviations(window.past.values, window.past.groups, *floors)
    with np.errstate(invalid="ignore"):
        before = np.where(middle >= _per_signal([e.least for e in rules]), before * sides, np.nan)
    time = policy.numbers.time
    usual = usual_deviations(before, window.past, window.times, window.groups, time.past_from, time.past_to)
    with np.errstate(invalid="ignore"):
        measured[rows] = np.where(measured[rows] > 0, measured[rows] - np.maximum(usual, 0), measured[rows])


# -- what cannot be judged ---------------------------------------------------------------------------------------------


def _muted(window: Window, policy: Policy) -> Flags:
    """(S, T, N): the signal says nothing in this phase."""
    groups = window.groups or Groups.none(*window.values.shape[1:])
    now = phases(_by_id(window), groups, window.step, policy.numbers.phases)
    muted = np.zeros(window.values.shape, dtype=bool)
    for row, signal in enumerate(window.signals):
        for phase in signal.not_during:
            muted[row] |= now[phase]
    return muted


def _stuck(window: Window) -> Flags:
    """(S, T, N): it compares what its exporter shows for ever with peers that moved on."""
    values, stuck = _by_id(window), np.zeros(window.values.shape, dtype=bool)
    for row, signal in enumerate(window.signals):
        frozen = values.get(f"{signal.exporter}_frozen")
        if frozen is not None and signal.evidence.kind == "peers":
            stuck[row] = frozen >= 1
    return stuck


def _by_id(window: Window) -> dict[str, Floats]:
    return {signal.id: window.values[row] for row, signal in enumerate(window.signals)}


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


def _fused(signals: Sequence[Signal], evidence: Floats, numbers: ScoreNumbers) -> tuple[Floats, Flags, Flags]:
    """(score, hard, sudden), NaN where nothing is known: no measured signal that could say something against the node,
    and no log that did. A log's silence is no measurement."""
    told = np.nan_to_num(evidence)
    total = _combined(signals, told, numbers)
    events = np.array([s.evidence.event for s in signals], dtype=bool).reshape(-1, 1, 1)
    sudden = _combined(signals, np.where(events, told, 0), numbers) >= numbers.open_at
    speaks = np.array([bool(s.query) and max(s.evidence.strength, s.evidence.full or 0) > 0 for s in signals])
    judged = (~np.isnan(evidence[speaks])).any(axis=0) | (told > 0).any(axis=0)
    condemned = _strongest(told, [s.hard for s in signals]) >= numbers.hard_line
    return np.where(judged, total, np.nan), condemned, sudden


def _combined(signals: Sequence[Signal], told: Floats, numbers: ScoreNumbers) -> Floats:
    """The strongest within a category, noisy-or across; soft evidence stops at its cap, whatever adds up."""
    no_hard, no_soft = np.ones(told.shape[1:]), np.ones(told.shape[1:])
    for category in sorted({signal.category for signal in signals}):
        hard = _strongest(told, [s.category == category and s.hard for s in signals])
        soft = _strongest(told, [s.category == category and not s.hard for s in signals])
        no_hard *= 1 - hard
        no_soft *= 1 - np.where(hard > 0, 0, soft)
    return np.asarray(1 - no_hard * (1 - np.minimum(1 - no_soft, numbers.soft_cap)))


def _strongest(told: Floats, which: Sequence[bool]) -> Floats:
    return np.asarray(told[np.array(which, dtype=bool)].max(axis=0, initial=0.0))


# -- in words ----------------------------------------------------------------------------------------------------------


def words(signal: Signal, value: float, expected: float = nan, peers: float = nan) -> str:
    """The reading in words."""
    name = xid(int(value)).name if "{xid_name}" in signal.text else ""
    return signal.text.format(value=value, expected=expected, peers=peers, xid_name=name)
