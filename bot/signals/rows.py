"""Scores as readings, row by row. What reads as in the row before is not made anew: a row of a large cluster has
thousands of readings and few of them change. A good reading keeps the value with which it became good, or with which
it crossed the line to where a warning of it is over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isnan, nan

import numpy as np
from numpy.typing import NDArray

from bot.model import NodeScore, Reading, State3
from bot.signals.score import Flags, Scores, words

Numbers = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Row:
    """What is seen at one moment. scores: the nodes whose score is known, with their bad readings, strongest first.
    readings: every signal of every node, node by node, but for those that only tell the phase."""

    scores: Mapping[str, NodeScore]
    readings: tuple[Reading, ...]


@dataclass(frozen=True, slots=True)
class _Node:
    score: NodeScore | None
    readings: tuple[Reading, ...]


UNTOLD = _Node(None, ())


def row_of(scores: Scores, number: int) -> Row:
    """One row alone."""
    return Rows(scores).row(number)


class Rows:
    """The rows of one block of scores, forward in any steps."""

    def __init__(self, scores: Scores) -> None:
        self.scores = scores
        self._changes = _changes(scores)
        self.strikes = _strikes(scores)
        self._at = -1
        self._nodes: list[_Node] = []
        self._row = Row({}, ())

    def at(self, moment: int) -> int:
        """The number of a moment's row; -1 when it lies outside."""
        times = self.scores.window.times
        row = (moment - int(times[0])) // self.scores.window.step
        return row if 0 <= row < len(times) else -1

    def row(self, number: int) -> Row:
        fresh = self._fresh(number)
        stale = self._stale(number, fresh)
        self._at = number
        if len(stale):
            told = _Told(self.scores, number, stale, fresh)
            for place, column in enumerate(stale.tolist()):
                self._nodes[column] = told.node(place, self._nodes[column])
            known = {node.score.node: node.score for node in self._nodes if node.score}
            self._row = Row(known, tuple(chain.from_iterable(node.readings for node in self._nodes)))
        return self._row

    def _fresh(self, number: int) -> Flags:
        """(S, N): what reads differently from the row told last."""
        if self._at < 0 or number < self._at:
            self._nodes = [UNTOLD] * len(self.scores.window.nodes)
            return np.ones(self.scores.bad[:, number].shape, dtype=bool)
        return np.asarray(self._changes[:, self._at + 1 : number + 1].any(axis=1))

    def _stale(self, number: int, fresh: Flags) -> Numbers:
        """Columns to be told anew: where something changed, and where something is bad: for longer now, perhaps for
        longer than one look sees, or against peers that moved on."""
        bad = self.scores.bad[:, number].any(axis=0)
        return np.flatnonzero(fresh.any(axis=0) | (bad & (number > self._at)))


def _changes(scores: Scores) -> Flags:
    """(S, T, N): it reads differently from the row before: it became bad, good or unknown, or unknown for another
    reason, or is bad with another strength or value, or is no longer what a warning of it goes on for."""
    changed = np.ones(scores.bad.shape, dtype=bool)
    evidence, bad, muted = scores.evidence, scores.bad, scores.muted & np.isnan(scores.evidence)
    differs = (evidence[:, 1:] != evidence[:, :-1]) & ~(np.isnan(evidence[:, 1:]) & np.isnan(evidence[:, :-1]))
    differs |= muted[:, 1:] != muted[:, :-1]
    differs |= (bad[:, 1:] != bad[:, :-1]) | (bad[:, 1:] & (scores.values[:, 1:] != scores.values[:, :-1]))
    for row, until in _lines(scores):
        with np.errstate(invalid="ignore"):
            above = scores.values[row] >= until
        differs[row] |= above[1:] != above[:-1]
    changed[:, 1:] = differs
    return changed


def _lines(scores: Scores) -> list[tuple[int, float]]:
    """(row, until) of the signals that have one."""
    rules = enumerate(signal.evidence.until for signal in scores.window.signals)
    return [(row, until) for row, until in rules if until is not None]


def _strikes(scores: Scores) -> Flags:
    """(T,): something counts that did not in the row before, or no more; also: nothing at all is known of a node, or
    nothing of its GPUs."""
    counts = np.where(scores.bad, scores.evidence, -1.0)
    unknown, gpus = np.isnan(scores.evidence), [signal.exporter == "dcgm" for signal in scores.window.signals]
    dark = np.stack([unknown.all(axis=0), unknown[np.array(gpus, dtype=bool)].all(axis=0)])
    strikes = np.ones(len(scores.window.times), dtype=bool)
    strikes[1:] = (counts[:, 1:] != counts[:, :-1]).any(axis=(0, 2)) | (dark[:, 1:] != dark[:, :-1]).any(axis=(0, 2))
    return strikes


class _Told:
    """Some nodes of one row as Python's own numbers. fresh: (S, N) what must be told though it is not bad."""

    def __init__(self, scores: Scores, row: int, columns: Numbers, fresh: Flags) -> None:
        window = scores.window
        self.signals = window.signals
        self.shown = [s for s, signal in enumerate(window.signals) if signal.evidence.kind != "context"]
        self.names = [window.nodes[column] for column in columns]
        self.evidence: list[list[float]] = scores.evidence[:, row, columns].tolist()
        self.bad: list[list[bool]] = scores.bad[:, row, columns].tolist()
        self.muted: list[list[bool]] = scores.muted[:, row, columns].tolist()
        self.telling: list[list[bool]] = (fresh[:, columns] | scores.bad[:, row, columns])[self.shown].T.tolist()
        self.values: list[list[float]] = scores.values[:, row, columns].tolist()
        self.expected: list[float] = window.expected[columns].tolist()
        self.known: list[bool] = window.known[columns].tolist()
        self.score: list[float] = scores.score[row, columns].tolist()
        self.hard: list[bool] = scores.hard[row, columns].tolist()
        self.sudden: list[bool] = scores.sudden[row, columns].tolist()
        self.usual: dict[int, list[float]] = {s: median[row, columns].tolist() for s, median in scores.usual.items()}
        self._look_back(scores, row, columns)

    def _look_back(self, scores: Scores, row: int, columns: Numbers) -> None:
        """No further than one look sees, so that every split of the time axis tells the same."""
        past = slice(max(row - scores.back, 0), row + 1)
        times = scores.window.times[past]
        seen, known = scores.seen[:, past, columns], ~np.isnan(scores.values[:, past, columns])
        well = known & ~seen
        self.since: list[list[int]] = times[_began(seen, well, axis=1)].tolist()
        self.begun: list[list[bool]] = np.asarray(well.any(axis=1)).tolist()
        score = scores.score[past, columns]
        with np.errstate(invalid="ignore"):
            high, low = score >= scores.numbers.open_at, score < scores.numbers.open_at
        self.soft_for: list[int] = np.where(high[-1], times[-1] - times[_began(high, low, axis=0)], 0).tolist()

    def node(self, n: int, before: _Node) -> _Node:
        known = before.readings or [None] * len(self.shown)
        readings = tuple(
            kept if kept and not tell else self.reading(s, n)
            for s, tell, kept in zip(self.shown, self.telling[n], known, strict=True)
        )
        if isnan(self.score[n]):
            return _Node(None, readings)
        bad = sorted((r for r in readings if r.state == "bad"), key=lambda r: (-r.evidence, r.signal))
        return _Node(self.told(n, bad), readings)

    def told(self, n: int, reasons: Sequence[Reading]) -> NodeScore:
        return NodeScore(
            node=self.names[n],
            score=self.score[n],
            hard=self.hard[n],
            reasons=tuple(reasons),
            soft_for=self.soft_for[n],
            sudden=self.sudden[n],
            known=self.known[n],
        )

    def reading(self, s: int, n: int) -> Reading:
        signal, evidence, value, bad = self.signals[s], self.evidence[s][n], self.values[s][n], self.bad[s][n]
        state: State3 = "unknown" if isnan(evidence) else "bad" if bad else "good"
        return Reading(
            node=self.names[n],
            signal=signal.id,
            state=state,
            evidence=evidence if bad else 0.0,
            value=None if isnan(value) else value,
            since=self.since[s][n] if bad else None,
            hard=bad and signal.hard,
            provenance=signal.provenance,
            known=self.known[n],
            text=words(signal, value, self.expected[n], self.usual[s][n] if s in self.usual else nan) if bad else "",
            begun=not bad or self.begun[s][n],
            muted=state == "unknown" and self.muted[s][n],
        )


def _began(on: Flags, off: Flags, axis: int) -> Numbers:
    """The row in which the last stretch of `on` began: the first `on` after the last `off`. Rows that are neither
    break nothing."""
    shape = [1] * on.ndim
    shape[axis] = -1
    row = np.arange(on.shape[axis]).reshape(shape)
    last_off = np.where(off, row, -1).max(axis=axis, keepdims=True)
    return np.asarray((on & (row > last_off)).argmax(axis=axis))
