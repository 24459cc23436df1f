"""In which phase a node's run is: what is odd at any other time is usual then. Pure.

Saves and loads are told from the file system's own counters, because few trainers tell them: the mean over the nodes of
a run, so that it does not matter which ranks write. Rates over minutes contain a burst for as long after it.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from bot.policy import Phase, PhaseNumbers
from bot.signals.peers import NOBODY, Groups

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

WRITES, READS, UPTIME = "storage_write", "storage_read", "uptime"  # the catalogue's context signals


def phases(context: Mapping[str, Floats], groups: Groups, step: int, numbers: PhaseNumbers) -> dict[Phase, Flags]:
    """(T, N) per phase. context: signal id → (T, N); one that is missing tells of no phase."""
    unknown = np.full(groups.run.shape, np.nan)
    settle = -(-numbers.settle // step)
    with np.errstate(invalid="ignore"):
        return {
            "idle": groups.run == NOBODY,
            "start": groups.age < numbers.start,
            "save": _lengthened(_mean(context.get(WRITES, unknown), groups) >= numbers.save_bytes, settle),
            "load": _lengthened(_mean(context.get(READS, unknown), groups) >= numbers.load_bytes, settle),
            "boot": context.get(UPTIME, unknown) < numbers.boot,
        }


def _mean(values: Floats, groups: Groups) -> Floats:
    """Over the nodes of each run; a node without a run speaks for itself."""
    means = values.copy()
    for rows, columns, there in groups.each():
        block = np.where(there, values[rows][:, columns], np.nan)
        known = ~np.isnan(block)
        total = np.where(known, block, 0).sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
        part = means[rows]
        part[:, columns] = np.where(there, total, part[:, columns])
    return means


def _lengthened(flags: Flags, rows: int) -> Flags:
    """Also true for this many rows after."""
    row = np.arange(flags.shape[0])[:, None]
    last = np.maximum.accumulate(np.where(flags, row, -rows - 1), axis=0)
    return np.asarray(row - last <= rows)
