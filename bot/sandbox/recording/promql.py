"""What PromQL makes of samples that lie on the minutes, for all series at once. Arrays are (B + T, S): B rows of the
past and the T rows that are asked for; NaN = no sample. A window of w rows ends at each row and holds w + 1 samples,
because Prometheus 2 counts a sample that lies exactly on the window's left edge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.sandbox.recording.effects import Floats
from bot.sandbox.recording.fleet import STEP

Rows = NDArray[np.intp]
Flags = NDArray[np.bool_]
LOOK_BACK = 5  # rows for which a series' last sample stands in for one that is missing


def instant(values: Floats, asked: int, look_back: int = LOOK_BACK) -> Floats:
    """(T, S): the newest sample of each series."""
    shown = values[-asked:].copy()
    for column in np.flatnonzero(np.isnan(shown).any(axis=0)):
        for back in range(1, look_back + 1):
            lacks = np.isnan(shown[:, column])
            earlier = values[len(values) - asked - back : len(values) - back, column]
            shown[lacks, column] = earlier[lacks]
    return shown


def least(values: Floats, asked: int, window: int) -> Floats:
    return _folded(np.fmin, values, asked, window)


def most(values: Floats, asked: int, window: int) -> Floats:
    return _folded(np.fmax, values, asked, window)


def _folded(choose: np.ufunc, values: Floats, asked: int, window: int) -> Floats:
    end = len(values)
    found = values[end - asked :]
    for back in range(1, window + 1):
        found = choose(found, values[end - asked - back : end - back])
    return np.asarray(found)


def mean(values: Floats, asked: int, window: int) -> Floats:
    total, count = np.zeros((asked, values.shape[1])), np.zeros((asked, values.shape[1]))
    for back in range(window + 1):
        part = values[len(values) - asked - back : len(values) - back]
        known = ~np.isnan(part)
        total += np.where(known, part, 0)
        count += known
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def quantile(values: Floats, asked: int, window: int, q: float) -> Floats:
    """Between two samples in proportion, as Prometheus does."""
    windows = np.lib.stride_tricks.sliding_window_view(values[-asked - window :], window + 1, axis=0)
    ordered = np.sort(windows, axis=-1)  # NaN comes last
    count = (~np.isnan(ordered)).sum(axis=-1)
    rank = q * np.maximum(count - 1, 0)
    below = np.floor(rank).astype(np.intp)
    above = np.minimum(below + 1, np.maximum(count - 1, 0))
    low, high = (np.take_along_axis(ordered, at[..., None], axis=-1)[..., 0] for at in (below, above))
    return np.asarray(low * (1 - (rank - below)) + high * (rank - below))


@dataclass(frozen=True, slots=True)
class _Ends:
    """(T, S) each: the rows of the first and the last sample in each window, and how many there are."""

    first: Rows
    last: Rows
    count: Rows
    left: Rows  # (T, 1): the window's edges
    right: Rows


def _ends(values: Floats, asked: int, window: int) -> _Ends:
    known, row = ~np.isnan(values), np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(known, row, -1), axis=0)
    first = np.minimum.accumulate(np.where(known, row, len(values))[::-1], axis=0)[::-1]
    count = np.cumsum(known, axis=0)
    right = row[-asked:]
    left = right - window
    before = np.where(left > 0, count[np.maximum(left.ravel() - 1, 0)], 0)
    return _Ends(first[left.ravel()], last[right.ravel()], count[-asked:] - before, left, right)


def _taken(values: Floats, rows: Rows) -> Floats:
    return np.asarray(np.take_along_axis(values, np.clip(rows, 0, len(values) - 1), axis=0))


def _filled(values: Floats) -> Floats:
    """Each missing sample replaced by the last one before it."""
    row = np.arange(len(values))[:, None]
    last = np.maximum.accumulate(np.where(~np.isnan(values), row, 0), axis=0)
    return np.asarray(np.take_along_axis(values, last, axis=0))


def increase(values: Floats, asked: int, window: int) -> Floats:
    """With Prometheus's extrapolation to the window's edges; NaN where fewer than two samples are."""
    values = values[len(values) - asked - window :]
    with np.errstate(invalid="ignore"):
        steps: Floats = np.asarray(np.diff(values, axis=0))
        odd: Flags = np.less(steps, 0) | np.isnan(steps)  # a sample is missing, or the counter has begun anew
    grown = values[window:] - values[:asked]
    columns = np.flatnonzero(odd.any(axis=0))
    for start, end in _stretches(_reached(odd[:, columns], asked, window)):
        grown[start:end, columns] = _increase(values[start : end + window][:, columns], end - start, window)
    return np.asarray(grown)


def _reached(odd: Flags, asked: int, window: int) -> Flags:
    """(T,): whose window holds one of the odd steps from one sample to the next."""
    count = np.concatenate([[0], np.cumsum(odd.any(axis=1))])
    return np.asarray(count[window : window + asked] > count[:asked])


def _stretches(flags: Flags) -> Iterator[tuple[int, int]]:
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flags.astype(np.int8), [0]])))
    yield from zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True)


def _increase(values: Floats, asked: int, window: int) -> Floats:
    ends, filled = _ends(values, asked, window), _filled(values)
    earlier = np.concatenate([filled[:1], filled[:-1]])
    with np.errstate(invalid="ignore"):
        lost = np.where(filled < earlier, earlier, 0)
    risen = np.nan_to_num(filled) + np.cumsum(lost, axis=0)  # as if the counter had never begun anew
    grown = _taken(risen, ends.last) - _taken(risen, ends.first)
    return np.where(ends.count > 1, grown * _stretch(ends, _taken(values, ends.first), grown), np.nan)


def _stretch(ends: _Ends, first: Floats, grown: Floats) -> Floats:
    """By how much the growth between the first and the last sample is stretched to the window."""
    sampled = np.maximum(ends.last - ends.first, 1).astype(np.float64)
    usual = sampled / np.maximum(ends.count - 1, 1)
    begin, end = (ends.first - ends.left).astype(np.float64), (ends.right - ends.last).astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        from_zero = np.where((grown > 0) & (first >= 0), sampled * first / grown, np.inf)
    begin = np.minimum(begin, from_zero)
    whole = sampled + np.where(begin < usual * 1.1, begin, usual / 2) + np.where(end < usual * 1.1, end, usual / 2)
    return np.asarray(whole / sampled)


def rate(values: Floats, asked: int, window: int) -> Floats:
    return increase(values, asked, window) / (window * STEP)


def changes(values: Floats, asked: int, window: int) -> Floats:
    """How often a sample differs from the one before it; NaN where there is no sample."""
    ends, filled = _ends(values, asked, window), _filled(values)
    differs = np.zeros(values.shape)
    differs[1:] = (filled[1:] != filled[:-1]) & ~np.isnan(filled[:-1]) & ~np.isnan(values[1:])
    count = np.cumsum(differs, axis=0)
    return np.where(ends.count > 0, _taken(count, ends.last) - _taken(count, ends.first), np.nan)
