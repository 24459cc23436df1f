"""Eyes for the past: days are scored at once and handed out row by row, the same rows however time is split."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from bot.app_xids import JUST, app_xids
from bot.app_xids import SIGNAL as APP_XID
from bot.backtest_files import Run
from bot.garbage import uncollected
from bot.model import Attempt, Cluster, Job, Node, Observation, SourceState
from bot.policy import Policy, Signal
from bot.ports import Matrix, MetricSource, XidSource
from bot.signals.peers import Stay
from bot.signals.progress import ProgressRows
from bot.signals.rows import Rows
from bot.signals.score import score
from bot.storage.replay import StorageReplay
from bot.storage.window import Span
from bot.window import Heard, past_times, times_back, window, with_past

DAY = 86_400
WORKERS = 4  # questions at once, as live
COARSE = 3600  # s between looks at how many GPUs a node has
SEEN = 3  # looks at which a count must be seen: fewer may be garbage
REMEMBERED = DAY  # s for which an attempt that ended still stands with its scheduler
CLUSTER = "replay"


@dataclass
class ReplayObserver:
    """Implements ports.Observer over a range that has passed. Raises SourceError when the metrics cannot be read.

    runs: who ran where, empty = nobody knows and no node has peers. chunk: seconds scored at once; memory grows with
    it, the answers do not change. storage: the mounts of the same time, None = not measured.
    """

    metrics: MetricSource
    runs: Sequence[Run]
    policy: Policy
    start: int
    end: int
    chunk: int = DAY
    storage: StorageReplay | None = None
    _span: range = range(0)
    _rows: Rows | None = None
    _paces: ProgressRows | None = None
    _gpus: dict[str, float] = field(default_factory=dict)
    _since: dict[str, int] = field(default_factory=dict)
    _jobs: tuple[tuple[tuple[tuple[str, int, bool], ...], frozenset[str]], Cluster] | None = None
    _turns: list[int] | None = None

    def observe(self, now: int) -> Observation:
        at = self.moment(now)
        rows = self._scored(at)
        row = rows.row(rows.at(at))
        sources = SourceState("scheduler"), SourceState("prometheus")
        seen = Observation(at, now, self._cluster(now), row.scores, row.readings, (), sources)
        seen = replace(seen, app_xids=app_xids(self.metrics, self.policy, row.readings, at, self._nodes()))
        stored = self.storage.views(at) if self.storage else ()
        return replace(seen, progress=self._paces.at(rows.at(at)) if self._paces else (), storage=stored)

    def _xids_may_come(self, rows: Rows, number: int) -> bool:
        """An application's Xid came up so lately that more GPUs may show it."""
        ids = [signal.id for signal in rows.scores.window.signals]
        if APP_XID not in ids:
            return False
        bad = rows.scores.bad[ids.index(APP_XID)]
        before = number - JUST // self.policy.numbers.time.step
        return bool((bad[number] & ~bad[before]).any() if before >= 0 else bad[number].any())

    def moment(self, now: int) -> int:
        """The moment that the data is of when one looks now."""
        time = self.policy.numbers.time
        return (now - time.lag) // time.step * time.step

    def striking(self, now: int, told: Collection[str]) -> bool:
        """Something counts that did not a step ago, or no more; an attempt began or ended; or the score of a node that
        is not `told` of yet stands at the line and only needs time."""
        at = self.moment(now)
        rows = self._scored(at)
        number, nodes = rows.at(at), rows.scores.window.nodes
        with np.errstate(invalid="ignore"):
            stands = np.flatnonzero(rows.scores.score[number] >= self.policy.numbers.score.open_at)
        if (self._paces and self._paces.worth_a_look(number)) or self._xids_may_come(rows, number):
            return True
        stored = self.storage is not None and self.storage.strikes(at, self.policy.numbers.time.step)
        return bool(rows.strikes[number]) or stored or self._rerun(now) or any(nodes[n] not in told for n in stands)

    def jobs_at(self, now: int) -> dict[str, str]:
        """Session as the recording names it → its newest job."""
        begun = sorted((run for run in self.runs if run.start <= now), key=lambda run: run.start)
        return {run.session: run.job for run in begun}

    # -- metrics -------------------------------------------------------------------------------------------------------

    def _scored(self, at: int) -> Rows:
        if self._rows is None or at not in self._span:
            step = self.policy.numbers.time.step
            chunk = max(self.chunk // step, 1) * step
            first = self.start + (at - self.start) // chunk * chunk
            self._span = range(first, min(first + chunk, self.end + step), step)
            with uncollected():
                self._rows = self._score(self._span[0], self._span[-1])
        return self._rows

    def _score(self, start: int, end: int) -> Rows:
        times = times_back(self.policy, start, end)
        matrices = self._asked([signal for signal in self.policy.signals.values() if signal.query], times)
        past = self._asked(with_past(self.policy), past_times(self.policy, start, end))
        heard = Heard(by_gpu=isinstance(self.metrics, XidSource))
        seen = window(self.policy, matrices, times, self._expected(), self._stays(), heard, past)
        scores = score(seen, self.policy)
        inside = (stay for stay in self._stays() if stay.start <= end and (stay.end is None or stay.end >= start))
        self._paces = ProgressRows(scores, inside, self.policy)
        return Rows(scores)

    def _asked(self, signals: Sequence[Signal], times: NDArray[np.int64]) -> dict[str, Matrix]:
        start, end, step = int(times[0]), int(times[-1]), int(times[1] - times[0])
        with ThreadPoolExecutor(WORKERS) as pool:
            answers = pool.map(lambda s: self.metrics.matrix(s, start, end, step, self._nodes()), signals)
            return {signal.id: matrix for signal, matrix in zip(signals, answers, strict=True)}

    def _stays(self) -> Iterator[Stay]:
        tries: Counter[str] = Counter()
        for run in sorted(self.runs, key=lambda run: run.start):  # as _job counts them
            yield Stay(f"{run.job}#{tries[run.job]}", run.nodes, run.start, run.end)
            tries[run.job] += 1

    def _nodes(self) -> Collection[str]:
        return {node for run in self.runs for node in run.nodes}

    def _expected(self) -> Mapping[str, float]:
        """GPUs that a node should have: the site's word, else the most that was ever seen on it."""
        if not self._gpus:
            signal = next((s for s in self.policy.signals.values() if s.evidence.kind == "missing"), None)
            counts = self._counts(signal) if signal else {}
            self._gpus = {**counts, **{node: float(gpus) for node, gpus in self.policy.gpus.items()}}
        return self._gpus

    def _counts(self, signal: Signal) -> dict[str, float]:
        looks = self.policy.numbers.time.step
        step = min(COARSE, max((self.end - self.start) // 24 // looks, 1) * looks)
        seen = self.metrics.matrix(signal, self.start, self.end, step, self._nodes())
        there = seen.values > 0
        first = {
            host: int(there[:, column].argmax()) for column, host in enumerate(seen.hosts) if there[:, column].any()
        }
        self._since = {host: int(seen.times[row]) for host, row in first.items() if row}
        return {host: _most(seen.values[:, column]) for column, host in enumerate(seen.hosts)}

    # -- the scheduler -------------------------------------------------------------------------------------------------

    def _rerun(self, now: int) -> bool:
        """An attempt began or ended since a step ago, or ended so long ago that nobody requeues it any more."""
        if self._turns is None:
            settle = self.policy.numbers.recovery.settle
            ends = [run.end for run in self.runs if run.end is not None]
            self._turns = sorted([*(run.start for run in self.runs), *ends, *(end + settle for end in ends)])
        step = self.policy.numbers.time.step
        return bisect_right(self._turns, now) > bisect_right(self._turns, now - step)

    def _cluster(self, now: int) -> Cluster:
        recent = [run for run in self.runs if run.start <= now and (run.end is None or run.end > now - REMEMBERED)]
        begun = tuple((run.job, run.start, run.end is not None and run.end <= now) for run in recent)
        key = begun, self._absent(now)
        if self._jobs is None or self._jobs[0] != key:
            jobs = {run.job: self._job(run.job, now) for run in recent}
            self._jobs = key, Cluster(CLUSTER, now, self._machines(now), jobs)
        return replace(self._jobs[1], at=now)

    def _job(self, name: str, now: int) -> Job:
        """A session's later jobs follow its first by their dependency."""
        mine = sorted((run for run in self.runs if run.job == name and run.start <= now), key=lambda run: run.start)
        attempts = tuple(_attempt(ordinal, run, now) for ordinal, run in enumerate(mine))
        return Job(
            id=name,
            name=mine[0].session,
            user="",
            state=attempts[-1].state,
            node_count=len(mine[-1].nodes),
            gpus_per_node=_whole(self._expected().get(mine[-1].nodes[0])) or 0 if mine[-1].nodes else 0,
            submit=mine[-1].start,
            first_submit=mine[0].start,
            dependency="singleton",
            attempts=attempts,
        )

    def _machines(self, now: int) -> dict[str, Node]:
        gpus, absent = self._expected(), self._absent(now)
        up = sorted({*gpus, *self._nodes()} - absent)
        here = {name: Node(name, "UP", up=True, open=True, gpus=_whole(gpus.get(name))) for name in up}
        return here | {name: Node(name, "DOWN", up=False, open=False) for name in sorted(absent)}

    def _absent(self, now: int) -> frozenset[str]:
        """Nodes of which nothing was ever seen yet, and on which nothing ran: they were added later."""
        self._expected()
        later = {name for name, since in self._since.items() if now < since}
        return frozenset(later.difference(*(run.nodes for run in self.runs if run.start <= now)) if later else ())


def spans(runs: Sequence[Run]) -> list[Span]:
    """Runs as the storage watch wants them, by the recording's names of their sessions."""
    return [Span(run.session, run.nodes, run.start, run.end) for run in runs if run.nodes]


def _most(counts: NDArray[np.float64]) -> float:
    """The highest count that was seen more than by chance; NaN where none was."""
    values, times = np.unique(counts[counts > 0], return_counts=True)
    often = values[times >= min(SEEN, times.max(initial=1))]
    return float(often.max()) if len(often) else np.nan


def _attempt(ordinal: int, run: Run, now: int) -> Attempt:
    ended = run.end is not None and run.end <= now
    state = (run.state if run.state not in ("", "RUNNING") else "COMPLETED") if ended else "RUNNING"
    return Attempt(run.job, ordinal, state, run.nodes, run.start, run.end if ended else None)


def _whole(count: float | None) -> int | None:
    return None if count is None or np.isnan(count) else int(count)
