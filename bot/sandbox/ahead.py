"""Eyes that look ahead: many steps are scored at once and handed out one by one, for as long as nothing that was not
known when they were scored changes the cluster. Row for row the same as looking each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bot.model import NodeScore, Observation, Reading, SourceState
from bot.policy import Policy
from bot.ports import Scheduler
from bot.sandbox.metrics import SimulatedCheckpoints, SimulatedMetrics
from bot.signals.score import Scores, Window, node_scores, readings, score

AHEAD = 120  # steps; the next change is seldom further away


@dataclass(frozen=True, slots=True)
class _Row:
    """What is seen at one moment."""

    scores: Mapping[str, NodeScore]
    readings: tuple[Reading, ...]


@dataclass
class _Block:
    """Steps scored at once. version: of the record they are true for."""

    scores: Scores
    version: int

    def row_of(self, at: int) -> int:
        """Its number; -1 when it lies outside."""
        times = self.scores.window.times
        row = (at - int(times[0])) // self.scores.window.step
        return row if row < len(times) else -1


class AheadObserver:
    """Implements ports.Observer for the simulation. version: of what the metrics show now."""

    def __init__(
        self,
        metrics: SimulatedMetrics,
        scheduler: Scheduler,
        checkpoints: SimulatedCheckpoints,
        policy: Policy,
        watch: Callable[[], Mapping[str, Sequence[str]]],
        version: Callable[[], int],
    ) -> None:
        self._metrics, self._scheduler, self._checkpoints = metrics, scheduler, checkpoints
        self._policy, self._watch, self._version = policy, watch, version
        self._block: _Block | None = None
        self._last: tuple[_Block, int, _Row] | None = None

    def observe(self, now: int) -> Observation:
        time = self._policy.numbers.time
        at = (now - time.lag) // time.step * time.step
        watched = self._watch()
        cluster = self._scheduler.snapshot(now, tuple(watched))
        problem = self._metrics.problem
        sources = SourceState("scheduler"), SourceState("prometheus", problem)
        if problem:
            return Observation(at, now, cluster, None, (), (), sources)
        row = self._row(at)
        saves = tuple(self._checkpoints.checkpoints(at, watched))
        return Observation(at, now, cluster, row.scores, row.readings, saves, sources)

    def _row(self, at: int) -> _Row:
        if self._block is None or self._block.version != self._version() or self._block.row_of(at) < 0:
            self._block = self._score(at)
        number = self._block.row_of(at)
        known = self._last
        if known and known[0] is self._block and known[1] == number - 1 and _same(self._block.scores, number):
            row = _a_step_later(known[2], self._block.scores)
        else:
            row = self._told(number)
        self._last = (self._block, number, row)
        return row

    def _score(self, at: int) -> _Block:
        time, signals = self._policy.numbers.time, tuple(self._policy.signals.values())
        back = -(-max([time.window, *(s.persistence for s in signals)]) // time.step)
        start, end = at - back * time.step, at + AHEAD * time.step
        nodes = self._scheduler.snapshot(at).nodes
        asked = [self._metrics.matrix(signal, start, end, time.step, nodes) for signal in signals]
        window = Window(
            signals=signals,
            nodes=asked[0].hosts,
            times=asked[0].times,
            values=np.stack([matrix.values for matrix in asked]),
            expected=np.array([nodes[host].gpus or 0 for host in asked[0].hosts], dtype=np.float64),
            known=np.array(asked[0].known, dtype=bool),
        )
        return _Block(score(window, self._policy), self._version())

    def _told(self, number: int) -> _Row:
        assert self._block is not None
        scores = self._block.scores
        at = int(scores.window.times[number])
        texts = dict(self._texts(scores, number, at))
        told = {node: replace(s, reasons=_worded(s.reasons, texts)) for node, s in node_scores(scores, number).items()}
        return _Row(told, _worded(readings(scores, number), texts))

    def _texts(self, scores: Scores, number: int, at: int) -> Iterator[tuple[tuple[str, str], str]]:
        """Which GPU, for what is bad."""
        nodes = scores.window.nodes
        for index in np.flatnonzero(scores.bad[:, number].any(axis=1)).tolist():
            signal = scores.window.signals[index]
            reach = range(at, at - signal.evidence.lasts - 1, -scores.window.step)
            for moment in reversed(reach):
                for node, text in self._metrics.details(signal, moment, nodes).items():
                    yield (node, signal.id), text


def _worded(given: Sequence[Reading], texts: Mapping[tuple[str, str], str]) -> tuple[Reading, ...]:
    return tuple(
        replace(r, text=texts[r.node, r.signal]) if r.state == "bad" and (r.node, r.signal) in texts else r
        for r in given
    )


def _same(scores: Scores, number: int) -> bool:
    """The row before reads the same: nothing became bad, good or unknown, and what is bad has the same value."""
    bad = scores.bad[:, number]
    return (
        np.array_equal(bad, scores.bad[:, number - 1])
        and np.array_equal(scores.evidence[:, number], scores.evidence[:, number - 1], equal_nan=True)
        and np.array_equal(scores.values[:, number][bad], scores.values[:, number - 1][bad])
    )


def _a_step_later(row: _Row, scores: Scores) -> _Row:
    """Only time has passed: what stands, stands longer."""
    step, line = scores.window.step, scores.numbers.open_at
    if all(s.score < line for s in row.scores.values()):
        return row
    later = {n: replace(s, soft_for=s.soft_for + step) if s.score >= line else s for n, s in row.scores.items()}
    return _Row(later, row.readings)
