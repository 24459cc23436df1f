"""Who ran with whom, and how far a node stands from the others. Pure.

Shapes: S signals, T times, N nodes. A synchronous job makes its nodes alike, so that one which is not is suspicious
(Minder, NSDI'25); nodes of different jobs say nothing about each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

NOBODY = -1
LEAST = 3  # live peers besides the node itself; with fewer, nobody knows which of them is the odd one
NORMAL = 1.4826  # makes the median of absolute deviations a standard deviation where the noise is normal


@dataclass(frozen=True, slots=True)
class Stay:
    """A run on its nodes. end None: it still runs."""

    run: str
    nodes: tuple[str, ...]
    start: int
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Groups:
    """run: (T, N) number of the run that a node belonged to, NOBODY for none. age: (T, N) seconds since that began."""

    run: NDArray[np.int32]
    age: Floats

    @classmethod
    def none(cls, times: int, nodes: int) -> Groups:
        return cls(np.full((times, nodes), NOBODY, dtype=np.int32), np.full((times, nodes), np.inf))

    @classmethod
    def of(cls, stays: Iterable[Stay], times: NDArray[np.int64], nodes: Sequence[str]) -> Groups:
        """A node that two runs share belongs to the one that has more nodes: the one with peers."""
        groups = cls.none(len(times), len(nodes))
        columns = {node: column for column, node in enumerate(nodes)}
        for number, stay in enumerate(sorted(stays, key=lambda stay: len(stay.nodes))):
            rows = slice(*np.searchsorted(times, (stay.start, times[-1] + 1 if stay.end is None else stay.end)))
            mine = [columns[node] for node in stay.nodes if node in columns]
            groups.run[rows, mine] = number
            groups.age[rows, mine] = (times[rows] - stay.start)[:, None]
        return groups

    def each(self) -> Iterator[tuple[slice, NDArray[np.intp], Flags]]:
        """(rows, columns, in it) of each run: the block of the table that it spans, and where in there it is."""
        for number in np.unique(self.run):
            if number != NOBODY:
                there = self.run == number
                rows = np.flatnonzero(there.any(axis=1))
                columns = np.flatnonzero(there.any(axis=0))
                block = slice(int(rows[0]), int(rows[-1]) + 1)
                yield block, columns, there[block][:, columns]


def deviations(values: Floats, groups: Groups, floor: Floats, floor_abs: Floats) -> tuple[Floats, Floats]:
    """(spreads above the median, median) for values (S, T, N); NaN without LEAST known peers. floor, floor_abs:
    (S, 1, 1), the least spread as a share of the median and in the value's own unit."""
    away, middle = np.full(values.shape, np.nan), np.full(values.shape, np.nan)
    for rows, columns, there in groups.each():
        if len(columns) <= LEAST:
            continue
        block = np.where(there, values[:, rows][:, :, columns], np.nan)
        median, count = _median(block)
        spread, _ = _median(np.abs(block - median))
        spread = np.maximum(NORMAL * spread, np.maximum(floor * np.abs(median), floor_abs))
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.where((count > LEAST) & (spread > 0), (block - median) / spread, np.nan)
        _place(away, rows, columns, there, found)
        _place(middle, rows, columns, there, np.broadcast_to(median, block.shape))
    return away, middle


@dataclass(frozen=True, slots=True)
class Past:
    """What was measured earlier, in coarser steps. times: (C,), multiples of the step; values: (P, C, N) of the signals
    that are compared with their own past; groups: of these times."""

    times: NDArray[np.int64]
    values: Floats
    groups: Groups


def usual_deviations(
    away: Floats, past: Past, times: NDArray[np.int64], groups: Groups, first: int, last: int
) -> Floats:
    """(P, T, N): the median of what stood in `past` (deviations (P, C, N)) from `first` to `last` seconds before each
    moment, while the node was on the same run; NaN where it was not."""
    step = int(past.times[1] - past.times[0]) if len(past.times) > 1 else 1
    newest = np.searchsorted(past.times, times - last, side="right") - 1
    shifts = range((first - last) // step + 1)
    found = np.full((len(shifts), away.shape[0], len(times), away.shape[2]), np.nan)
    for number, shift in enumerate(shifts):
        rows = newest - shift
        there = rows >= 0
        same = there[:, None] & (past.groups.run[np.maximum(rows, 0)] == groups.run)
        # a run is told by its number, which both groups take from the same stays
        found[number] = np.where(same, away[:, np.maximum(rows, 0)], np.nan)
    ordered, count = _median(np.moveaxis(found, 0, -1))
    return np.asarray(np.where(count[..., 0] > 0, ordered[..., 0], np.nan))


def _median(block: Floats) -> tuple[Floats, NDArray[np.intp]]:
    """Over the last axis, kept, without the NaNs, and how many were left; sorting puts NaN last."""
    ordered = np.sort(block, axis=-1)
    count = (~np.isnan(block)).sum(axis=-1, keepdims=True)
    last = np.maximum(count - 1, 0)
    low, high = np.take_along_axis(ordered, last // 2, -1), np.take_along_axis(ordered, (last + 1) // 2, -1)
    return (low + high) / 2, count


def _place(into: Floats, rows: slice, columns: NDArray[np.intp], there: Flags, found: Floats) -> None:
    part = into[:, rows]
    part[:, :, columns] = np.where(there, found, part[:, :, columns])
