"""One recording: the story and its samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from random import Random

import numpy as np

from bot.backtest_files import Label, Run, StorageLabel
from bot.errors import UsageError
from bot.sandbox.recording import bigrun, nuisances, smalljobs
from bot.sandbox.recording.effects import Effects, Floats
from bot.sandbox.recording.families import FAMILIES, Family
from bot.sandbox.recording.fleet import DAY, ROWS, STEP, Fleet
from bot.sandbox.recording.samples import Samples
from bot.sandbox.recording.story import Story
from bot.sandbox.recording.truth import ApplicationFault, Failure, Nuisance, Save

DAYS, NODES = 55, 63  # what the study recorded (arXiv 2605.09370)
START = int(datetime(2026, 3, 2, tzinfo=UTC).timestamp())  # a Monday; fixed, so that a seed is always the same
FEWEST_NODES = 4  # three peers beside each node


class Recording:
    """The same arguments make the same recording. start: midnight in UTC. Raises UsageError."""

    def __init__(self, seed: int, days: int = DAYS, nodes: int = NODES, start: int = START) -> None:
        if days < 1 or nodes < FEWEST_NODES:
            raise UsageError(f"{days} days of {nodes} nodes", f"at least 1 day and {FEWEST_NODES} nodes")
        if start % DAY:
            raise UsageError("a recording begins at midnight in UTC")
        self.seed, self.days, self.start, self.end = seed, days, start, start + days * DAY
        self.fleet = Fleet.of(nodes)
        self.story = _told(seed, self.fleet, self.start, self.end)
        self.samples = Samples(self.story, seed)

    @property
    def runs(self) -> Sequence[Run]:
        return sorted(self.story.runs, key=lambda run: (run.start, run.job))

    @property
    def failures(self) -> Sequence[Failure]:
        return sorted(self.story.failures, key=lambda failure: failure.start)

    @property
    def labels(self) -> Sequence[Label]:
        return [failure.label for failure in self.failures]

    @property
    def application(self) -> Sequence[ApplicationFault]:
        return self.story.application

    @property
    def storage_labels(self) -> Sequence[StorageLabel]:
        return self.story.stalls

    @property
    def nuisances(self) -> Sequence[Nuisance]:
        return sorted(self.story.nuisances, key=lambda nuisance: nuisance.start)

    @property
    def saves(self) -> Sequence[Save]:
        return [save for save in self.story.saves if save.end < self.end]

    def times(self, day: int) -> Sequence[int]:
        return range(self.start + day * DAY, self.start + (day + 1) * DAY, STEP)

    def day(self, day: int) -> Iterator[tuple[str, bool, list[dict[str, str]], Floats]]:
        """(name, is a counter, labels of each column, samples (ROWS, columns)) of every metric of one day."""
        for part in ("dcgm", "node"):
            shown = Family("up", "node", part, "up")
            yield "up", False, list(shown.series(self.fleet)), self.samples.up(part, day)
        for name, family in FAMILIES.items():
            yield name, family.counter, list(family.series(self.fleet)), self.samples.day(name, day)
        yield from self._trainer(day)

    def _trainer(self, day: int) -> Iterator[tuple[str, bool, list[dict[str, str]], Floats]]:
        """The gauges of the jobs that save, for as long as each job runs."""
        times = np.array(self.times(day))
        active = [run for run in self.runs if run.start <= times[-1] and (run.end or self.end) > times[0]]
        jobs = [run for run in active if any(save.job == run.job for save in self.saves)]
        labels = [{"instance": "trainer:9200", "job": run.job} for run in jobs]
        for what in ("step", "started_timestamp", "completed_timestamp"):
            columns = [self._gauge(run, what, times) for run in jobs]
            yield f"train_checkpoint_{what}", False, labels, np.array(columns).reshape(-1, ROWS).T

    def _gauge(self, run: Run, what: str, times: np.typing.NDArray[np.int64]) -> Floats:
        values = np.full(len(times), np.nan)
        for save in self.saves:
            if save.job == run.job:
                shown = {"step": (save.end, save.step), "started_timestamp": (save.start, save.start),
                         "completed_timestamp": (save.end, save.end)}[what]  # fmt: skip
                values[(times >= shown[0]) & (times < (run.end or self.end))] = shown[1]
        return values


def _told(seed: int, fleet: Fleet, start: int, end: int) -> Story:
    story = Story(fleet, start, end, Random(seed), Effects(len(fleet)))
    nuisances.newcomers(story)
    bigrun.BigRun(story).play()
    smalljobs.play(story)
    nuisances.disturb(story)
    return story
