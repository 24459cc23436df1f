"""Eyes that look ahead: many steps are scored at once and handed out one by one, for as long as nothing that was not
known when they were scored changes the cluster. Row for row the same as looking each time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bot.model import Observation, Reading, SourceState
from bot.policy import Policy
from bot.ports import Scheduler
from bot.sandbox.metrics import SimulatedCheckpoints, SimulatedMetrics
from bot.signals.rows import Row, Rows
from bot.signals.score import Scores, score
from bot.window import Heard, health_marks, stays_of, times_back, window

AHEAD = 120  # steps; the next change is seldom further away


@dataclass
class _Block:
    """Steps scored at once. version: of the record they are true for."""

    rows: Rows
    version: int


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
        self._told: tuple[Row, Row] | None = None

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

    def _row(self, at: int) -> Row:
        if self._block is None or self._block.version != self._version() or self._block.rows.at(at) < 0:
            self._block = self._score(at)
        rows = self._block.rows
        bare = rows.row(rows.at(at))
        if self._told is None or self._told[0].readings is not bare.readings:
            texts = dict(self._texts(rows.scores, rows.at(at), at))
            worded = {node: replace(s, reasons=_worded(s.reasons, texts)) for node, s in bare.scores.items()}
            self._told = bare, Row(worded, _worded(bare.readings, texts))
        elif self._told[0] is not bare:
            stood = {n: replace(s, soft_for=bare.scores[n].soft_for) for n, s in self._told[1].scores.items()}
            self._told = bare, replace(self._told[1], scores=stood)
        return self._told[1]

    def _score(self, at: int) -> _Block:
        step, signals = self._policy.numbers.time.step, self._policy.signals
        times = times_back(self._policy, at, at + AHEAD * step)
        start, end = int(times[0]), int(times[-1])
        cluster = self._scheduler.snapshot(at)
        nodes = cluster.nodes
        asked = {id: self._metrics.matrix(s, start, end, step, nodes) for id, s in signals.items() if s.query}
        expected = {name: float(node.gpus or 0) for name, node in nodes.items()}
        heard = Heard(tuple(health_marks(cluster)), ("health_check",))
        seen = window(self._policy, asked, times, expected, stays_of(cluster), heard)
        return _Block(Rows(score(seen, self._policy)), self._version())

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
