"""Live eyes: one look at everything. A source that cannot be read is a part of what is seen, never an exception."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from bot.app_xids import app_xids
from bot.errors import SourceError, Unreachable
from bot.model import (
    AppXid,
    Cluster,
    Job,
    JobNote,
    JobSave,
    LogGrowth,
    Mark,
    NodeScore,
    Observation,
    Progress,
    Reading,
    SourceState,
    StorageView,
)
from bot.policy import Policy, Signal
from bot.ports import CheckpointSource, MarkSource, Matrix, MetricSource, Scheduler, StorageSource, XidSource
from bot.repeats import SIGNAL as REPEATED
from bot.signals.progress import ProgressRows
from bot.signals.rows import row_of
from bot.signals.score import Scores, score
from bot.storage.window import Span
from bot.window import Heard, health_marks, past_times, stays_of, times_back, told_texts, window, with_past

T = TypeVar("T")
WORKERS = 4  # questions at once; Prometheus answers 20 at a time for all who ask it

Watch = Callable[[], Mapping[str, Sequence[str]]]


class Details(Protocol):
    """Which GPUs a signal is bad on: node → text (PrometheusSource.details)."""

    def __call__(self, signal: Signal, at: int, nodes: Collection[str]) -> Mapping[str, str]: ...


@runtime_checkable
class TellsGpus(Protocol):
    """A log that tells of application Xids with their GPUs (KernelLog): what its `marks` read last."""

    def application(self, since: int, now: int, nodes: Collection[str]) -> Sequence[Any]: ...


@dataclass(frozen=True, slots=True)
class Metrics:
    """What the metrics told of one moment. problem: what could not be read of them. scores None: nothing could."""

    at: int
    scores: Mapping[str, NodeScore] | None
    readings: tuple[Reading, ...]
    problem: str
    progress: tuple[Progress, ...] = ()


@dataclass(frozen=True, slots=True)
class Made:
    """What a look at the metrics was made of, for those who ask why. unread: signal → what was wrong with its query."""

    matrices: Mapping[str, Matrix]
    unread: Mapping[str, str]
    heard: Heard
    scores: Scores | None = None


@dataclass
class LiveObserver:
    """Implements ports.Observer. watch: job id → the names it may be known by, for the jobs that must be looked after.
    details: asked once for each bad reading.

    It remembers the last metrics, which another look at the same moment gets again, and the last cluster, whose nodes
    stand in while the scheduler cannot be read. One thread at a time.
    """

    metrics: MetricSource
    scheduler: Scheduler
    checkpoints: CheckpointSource
    policy: Policy
    watch: Watch
    details: Details | None = None
    logs: Sequence[MarkSource] = ()
    notes: Callable[[int], Sequence[JobNote]] | None = None
    growth: Callable[[], Sequence[LogGrowth]] = field(default=lambda: ())
    storage: StorageSource | None = None
    spans: Callable[[int], Sequence[Span]] = field(default=lambda since: ())
    saved: Callable[[], Sequence[JobSave]] = field(default=lambda: ())
    made: Made | None = None
    _cluster: Cluster | None = None
    _last: Metrics | None = None
    _past: tuple[tuple[int, int], Mapping[str, Matrix]] | None = None
    _told: dict[tuple[str, str, float | None], str] = field(default_factory=dict)

    def observe(self, now: int) -> Observation:
        time = self.policy.numbers.time
        at = (now - time.lag) // time.step * time.step
        watched = self.watch()
        with ThreadPoolExecutor(WORKERS) as pool:
            looking = pool.submit(self.scheduler.snapshot, now, tuple(watched))
            saving = pool.submit(self.checkpoints.checkpoints, at, watched)
            if self._cluster is None:  # without nodes every host would be a stranger, so the first look waits
                self._cluster, _ = _outcome(looking.result)
            storing = pool.submit(self._stored, at)
            heard, xids, unheard = self._listen(now)
            metrics = self._measure(at, pool, heard)
        cluster, unscheduled = _outcome(looking.result)
        saves, unsaved = _outcome(saving.result)
        mounts, unstored = _outcome(storing.result)
        self._cluster = cluster or self._cluster
        unread = metrics.problem or unsaved or unstored
        sources = SourceState("scheduler", unscheduled), SourceState("prometheus", unread), *unheard
        xids = xids or self._shown_xids(metrics)
        notes = tuple(self.notes(now)) if self.notes else ()
        saved, (scores, readings) = tuple(saves or ()), (metrics.scores, metrics.readings)
        seen = Observation(at, now, cluster, scores, readings, saved, sources, notes=notes, app_xids=xids)
        seen = replace(seen, progress=metrics.progress, logs=tuple(self.growth()))
        return replace(seen, storage=tuple(mounts or ()), saves=tuple(self.saved()))

    def _stored(self, at: int) -> Sequence[StorageView]:
        if self.storage is None:
            return ()
        return self.storage.look(at, self.spans(at - self.policy.storage.history), self._nodes())

    @property
    def jobs(self) -> Sequence[Job]:
        """Those of the cluster as it was seen last."""
        return tuple(self._cluster.jobs.values()) if self._cluster else ()

    # -- logs and other tools ------------------------------------------------------------------------------------------

    def _listen(self, now: int) -> tuple[Heard, tuple[AppXid, ...], list[SourceState]]:
        """What they tell of the last window. One that cannot be read tells nothing, which is not: nothing happened."""
        since = now - self.policy.numbers.time.window
        marks: list[Mark] = []
        signals: list[str] = []
        states: list[SourceState] = []
        xids: list[AppXid] = []
        for source in self.logs:
            told, problem = _outcome(partial(source.marks, since, now, self._nodes()))
            marks += told or ()
            signals += source.signals if not problem else ()
            if isinstance(source, TellsGpus) and not problem:
                xids += _of_gpus(source.application(since, now, self._nodes()))
                signals.append(REPEATED)
            states.append(SourceState(source.name, problem or getattr(source, "problem", "")))
        if self._cluster:
            marks += health_marks(self._cluster)
            signals.append("health_check")
        return Heard(marks, signals, isinstance(self.metrics, XidSource)), tuple(xids), states

    def _shown_xids(self, metrics: Metrics) -> tuple[AppXid, ...]:
        """By the exporters, where no log tells. What cannot be read now is asked for again."""
        if any(isinstance(source, TellsGpus) for source in self.logs):
            return ()
        with suppress(SourceError):
            return app_xids(self.metrics, self.policy, metrics.readings, metrics.at, self._nodes())
        return ()

    # -- metrics -------------------------------------------------------------------------------------------------------

    def _measure(self, at: int, pool: ThreadPoolExecutor, heard: Heard) -> Metrics:
        """Asked again for the same moment only if something failed."""
        if self._last is None or self._last.at != at or self._last.problem:
            matrices, problem = self._ask(at, pool)
            self._last = self._judge(at, matrices, heard, problem) if matrices else Metrics(at, None, (), problem)
        return self._last

    def _ask(self, at: int, pool: ThreadPoolExecutor) -> tuple[dict[str, Matrix], str]:
        """The signals that could be read, and why the others could not. Once nothing answers, the rest is not asked:
        a dozen deadlines in a row would make a tick last a minute."""
        nodes, times, past = self._nodes(), times_back(self.policy, at, at), past_times(self.policy, at, at)
        gone: list[Unreachable] = []

        def matrix(signal: Signal, times: NDArray[np.int64]) -> Matrix:
            if gone:
                raise gone[0]
            try:
                return self.metrics.matrix(signal, int(times[0]), int(times[-1]), int(times[1] - times[0]), nodes)
            except Unreachable as error:
                gone.append(error)
                raise

        asked = {
            name: pool.submit(matrix, signal, times) for name, signal in self.policy.signals.items() if signal.query
        }
        span = int(past[0]), int(past[-1])
        if not self._past or self._past[0] != span:  # it moves on in coarser steps
            earlier = {signal.id: pool.submit(matrix, signal, past) for signal in with_past(self.policy)}
            told = {name: _outcome(answer.result)[0] for name, answer in earlier.items()}
            self._past = span, {name: found for name, found in told.items() if found}
        answers = {name: _outcome(answer.result) for name, answer in asked.items()}
        problems = {name: problem for name, (_, problem) in answers.items() if problem}
        found = {name: matrix for name, (matrix, _) in answers.items() if matrix}
        self.made = Made(found, problems, Heard())
        return found, _summary(problems, len(answers))

    def _judge(self, at: int, matrices: Mapping[str, Matrix], heard: Heard, problem: str) -> Metrics:
        expected = {node: self._expected(node) for node in self._nodes()}
        stays = stays_of(self._cluster) if self._cluster else ()
        past = self._past[1] if self._past else {}
        seen = window(self.policy, matrices, times_back(self.policy, at, at), expected, stays, heard, past)
        scores = score(seen, self.policy)
        self.made = Made(matrices, self.made.unread if self.made else {}, heard, scores)
        row = row_of(scores, len(scores.window.times) - 1)
        metrics = Metrics(at, row.scores, row.readings, problem, self._progress(scores))
        return self._detailed(metrics, told_texts(heard.marks, self.policy.signals, at))

    def _progress(self, scores: Scores) -> tuple[Progress, ...]:
        """Of the runs that must be looked after and still run."""
        watched = self.watch()
        stays = [stay for stay in stays_of(self._cluster) if stay.end is None] if self._cluster else []
        mine = [stay for stay in stays if stay.run.rpartition("#")[0] in watched]
        return ProgressRows(scores, mine, self.policy).at(len(scores.window.times) - 1)

    def _nodes(self) -> Collection[str]:
        return self._cluster.nodes if self._cluster else ()

    def _expected(self, node: str) -> float:
        """GPUs: the site's word, else the scheduler's; NaN where nobody knows."""
        told = self._cluster.nodes[node].gpus if self._cluster else None
        expected = self.policy.gpus.get(node, told)
        return np.nan if expected is None else expected

    # -- which GPU -----------------------------------------------------------------------------------------------------

    def _detailed(self, metrics: Metrics, told: Mapping[tuple[str, str], str]) -> Metrics:
        """The same with texts that name the GPUs, kept for as long as a reading stays bad at its value. told: (signal,
        node) → the words of a log, which names them itself."""
        bad = {(r.signal, r.node, r.value): r for r in metrics.readings if r.state == "bad"}
        self._told |= {key: told[key[:2]] for key in bad if key[:2] in told}
        fresh = [reading for key, reading in bad.items() if key not in self._told]
        if self.details is not None:
            with suppress(SourceError):  # an incident does not wait for it; asked again next time
                new = self._asked_for(fresh, metrics.at, self.details)
                self._told |= {(r.signal, r.node, r.value): text for r, text in new}
        self._told = {key: text for key, text in self._told.items() if key in bad}
        return replace(
            metrics,
            readings=tuple(map(self._worded, metrics.readings)),
            scores={
                node: replace(found, reasons=tuple(map(self._worded, found.reasons)))
                for node, found in (metrics.scores or {}).items()
            },
        )

    def _asked_for(self, fresh: Sequence[Reading], at: int, details: Details) -> Iterator[tuple[Reading, str]]:
        """One question per signal: now, and for what has passed by then, when it began."""
        for name in sorted({reading.signal for reading in fresh}):
            mine = [reading for reading in fresh if reading.signal == name]
            ask = partial(details, self.policy.signals[name], nodes=self._nodes())
            told = ask(at)
            earlier = {r.since for r in mine if r.node not in told and r.since is not None}
            before = {since: ask(since) for since in earlier}
            for reading in mine:
                found = told.get(reading.node) or before.get(reading.since or 0, {}).get(reading.node)
                yield reading, found or reading.text

    def _worded(self, reading: Reading) -> Reading:
        text = self._told.get((reading.signal, reading.node, reading.value))
        return replace(reading, text=text) if text and reading.state == "bad" else reading


def _of_gpus(told: Iterable[Any]) -> Iterator[AppXid]:
    """Those on a node of the scheduler and on a GPU that is named."""
    for x in told:
        gpu = x.pci or x.uuid
        if x.known and gpu:
            yield AppXid(x.node, gpu, x.code, x.at, x.uuid or "", x.provenance)


def _outcome(read: Callable[[], T]) -> tuple[T | None, str]:
    """(result, "") or (None, what was wrong)."""
    try:
        return read(), ""
    except SourceError as error:
        return None, str(error).removeprefix(f"{error.source}: ")


def _summary(problems: Mapping[str, str], asked: int) -> str:
    """`why`, or `signal, signal: why` where other signals could be read."""
    by_problem: dict[str, list[str]] = {}
    for name, problem in problems.items():
        by_problem.setdefault(problem, []).append(name)
    if len(problems) == asked:
        return "; ".join(by_problem)
    return "; ".join(f"{', '.join(names)}: {problem}" for problem, names in by_problem.items())
