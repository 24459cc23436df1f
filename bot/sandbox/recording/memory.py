"""The recording's Prometheus, in memory: what ReplayObserver asks, from the same samples that the files hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from bot.errors import BadReply
from bot.model import AppXid, Checkpoint
from bot.policy import Signal
from bot.ports import Matrix
from bot.sandbox.recording.effects import Floats
from bot.sandbox.recording.fleet import GPUS, ROWS, STEP
from bot.sandbox.recording.recording import Recording
from bot.sandbox.recording.signals import SIGNALS, changed_xids
from bot.sandbox.recording.view import HOURS, View
from bot.signals.xid import xid

PART = ROWS + 4 * HOURS  # rows worked out at once: a day and what a replay looks back before it


class RecordedMetrics:
    """Implements ports.MetricSource over a recording. Times must lie on its minutes. Any thread may ask; one is served
    at a time, since all share the samples."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._lock = Lock()
        self._question: tuple[int, int] | None = None
        self._views: dict[int, View] = {}

    def matrix(self, signal: Signal, start: int, end: int, step: int, nodes: Collection[str]) -> Matrix:
        """A row for each step from start to end, both included. Raises BadReply for times between the samples."""
        if start % STEP or step % STEP:
            raise BadReply("recording", f"there is a sample every {STEP} s, none between")
        times = np.arange(start, end + 1, step, dtype=np.int64)
        hosts = self._recording.fleet.names
        values = np.full((len(times), len(hosts)), np.nan)
        inside = (times >= self._recording.start) & (times < self._recording.end)
        if inside.any() and signal.id in SIGNALS:
            with self._lock:
                values[inside] = self._rows(signal, (times[inside] - self._recording.start) // STEP)
        possible = (values >= signal.blank_below) & (values <= signal.blank_above)
        return Matrix(hosts, tuple(host in nodes for host in hosts), times, np.where(possible, values, np.nan))

    def xids(self, signal: Signal, at: int, nodes: Collection[str]) -> list[AppXid]:
        """Implements ports.XidSource."""
        row = (at - self._recording.start) // STEP
        if at % STEP or not 0 <= row < (self._recording.end - self._recording.start) // STEP:
            return []
        with self._lock:
            shown = changed_xids(View(self._recording, row, 1), signal)[0]
        fleet, found = self._recording.fleet, []
        for column in np.flatnonzero(shown > 0):
            node, gpu = divmod(int(column), GPUS)
            labels, code = fleet.gpu_labels(node, gpu), int(shown[column])
            if fleet.names[node] in nodes and xid(code).application:
                found.append(AppXid(fleet.names[node], labels["gpu"], code, at, labels["UUID"]))
        return found

    def _rows(self, signal: Signal, rows: NDArray[np.int64]) -> Floats:
        """A day and its past at once, so that a long range needs no more memory."""
        first, last = int(rows[0]), int(rows[-1])
        if self._question != (first, last):
            self._question, self._views = (first, last), {}
        parts = []
        for begin in range(first, last + 1, PART):
            part = rows[(rows >= begin) & (rows < begin + PART)]
            parts.append(SIGNALS[signal.id](self._view(begin, last), signal)[part - begin])
        return np.concatenate(parts)

    def _view(self, begin: int, last: int) -> View:
        """The newest is kept: all signals of a question share its samples."""
        if begin not in self._views:
            self._views = {begin: View(self._recording, begin, min(PART, last + 1 - begin))}
        return self._views[begin]


class RecordedCheckpoints:
    """Implements ports.CheckpointSource: the trainer's gauges."""

    def __init__(self, recording: Recording) -> None:
        self._saves = recording.saves

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        newest = {save.job: save for save in self._saves if save.end <= at}
        return [Checkpoint(job, newest[job].step, newest[job].start, newest[job].end) for job in jobs if job in newest]
