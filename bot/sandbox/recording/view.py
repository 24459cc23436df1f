"""A stretch of a recording as a query sees it: the rows asked for, with the past before them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from bot.sandbox.recording import promql
from bot.sandbox.recording.effects import Floats
from bot.sandbox.recording.fleet import ROWS, STEP
from bot.sandbox.recording.kept import Kept
from bot.sandbox.recording.recording import Recording

MINUTES, HOURS = 60 // STEP, 3600 // STEP  # rows
ROOM = 192 * 2**20  # bytes
USUAL = HOURS + promql.LOOK_BACK  # rows of the past; one signal looks back over a day


@dataclass
class View:
    """The rows first … first + asked - 1 of a recording (row 0 = its start) with the past before them."""

    recording: Recording
    first: int
    asked: int
    _kept: Kept = field(default_factory=lambda: Kept(ROOM))

    def samples(self, name: str, back: int) -> Floats:
        """(back + asked, columns); before the recording's start there is nothing."""
        day = partial(self.recording.samples.day, name)
        if back > USUAL:
            return self._cut(day, back)
        return self._kept.get((name,), lambda: self._cut(day, USUAL))[USUAL - back :]

    def up(self, part: str) -> Floats:
        """(asked, nodes)."""
        return promql.instant(self._cut(partial(self.recording.samples.up, part), promql.LOOK_BACK), self.asked)

    def _cut(self, day: Callable[[int], Floats], back: int) -> Floats:
        first, last = self.first - back, self.first + self.asked  # not included
        days = [day(number) for number in range(max(first, 0) // ROWS, (last - 1) // ROWS + 1)]
        whole = np.concatenate(days) if len(days) > 1 else days[0]
        begin = max(first, 0) // ROWS * ROWS
        cut = whole[max(first, 0) - begin : last - begin]
        before = np.full((max(-first, 0), cut.shape[1]), np.nan)
        return np.concatenate([before, cut]) if len(before) else cut

    # -- what queries are made of --------------------------------------------------------------------------------------

    def now(self, name: str) -> Floats:
        """(asked, columns)."""
        look = self.samples(name, promql.LOOK_BACK)
        return self._kept.get(("now", name), lambda: promql.instant(look, self.asked))

    def newest(self, name: str, back: int) -> Floats:
        """As now, but of the last `back` rows before each."""
        return promql.instant(self.samples(name, back), self.asked, back)

    def grown(self, name: str, window: int) -> Floats:
        """(asked, columns): against the least of the window."""
        low = promql.least(self.samples(name, window), self.asked, window)
        return np.maximum(between(self.newest(name, BRIDGED), -np.inf, LARGEST_COUNT) - low, 0)

    def rate(self, name: str, window: int) -> Floats:
        return promql.rate(self.samples(name, window), self.asked, window)

    def by_node(self, values: Floats) -> Floats:
        """(rows, nodes, columns of a node)."""
        return values.reshape(len(values), len(self.recording.fleet), -1)

    def max(self, values: Floats) -> Floats:
        return np.asarray(np.fmax.reduce(self.by_node(values), axis=2))

    def min(self, values: Floats) -> Floats:
        return np.asarray(np.fmin.reduce(self.by_node(values), axis=2))

    def sum(self, values: Floats) -> Floats:
        """NaN where no column has a value."""
        parts = self.by_node(values)
        return np.where(np.isnan(parts).all(axis=2), np.nan, np.nansum(parts, axis=2))


LARGEST_COUNT, BRIDGED = 1e9, 6 * MINUTES  # as the catalogue has it


def between(values: Floats, low: float, high: float) -> Floats:
    """low ≤ value < high; what is not is no value."""
    with np.errstate(invalid="ignore"):
        return np.where((values >= low) & (values < high), values, np.nan)


def above(values: Floats, low: float, high: float) -> Floats:
    """low < value < high."""
    with np.errstate(invalid="ignore"):
        return np.where((values > low) & (values < high), values, np.nan)
