"""The last hour of each mount, minute by minute, for a picture. Pure; any split into pieces gives the same."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bot.model import StoragePoint
from bot.storage.flows import Flows
from bot.storage.waiting import Wait
from bot.storage.window import Floats

MINUTE = 60
BACK = 3600  # s

Row = tuple[int, Flows, Wait | None, int]


@dataclass
class Trace:
    """Keeps the rows of the last hour; points are only made when somebody asks."""

    _rows: deque[Row] = field(default_factory=deque)
    _whole: dict[tuple[str, int], StoragePoint] = field(default_factory=dict)  # minutes that are over

    def add(self, flows: Flows, wait: Wait | None, row: int) -> None:
        at = int(flows.times[row])
        self._rows.append((at, flows, wait, row))
        while self._rows[0][0] < at - BACK - MINUTE:
            self._rows.popleft()

    def of(self, export: str, mount: int, columns: NDArray[np.intp]) -> tuple[StoragePoint, ...]:
        """What these nodes do on it, oldest first; minutes without a sample are left out."""
        first, last = self._rows[0][0] // MINUTE, self._rows[-1][0] // MINUTE
        self._whole = {key: point for key, point in self._whole.items() if key[1] >= first}
        points = []
        for minute, rows in self._minutes():
            if minute * MINUTE < self._rows[-1][0] - BACK:
                continue  # only its end is kept
            point = self._whole.get((export, minute))
            if point is None:
                point = _point(minute * MINUTE, rows, mount, columns)
                if minute < last:
                    self._whole[export, minute] = point
            points.append(point)
        return tuple(p for p in points if p.rate is not None)

    def _minutes(self) -> Iterator[tuple[int, list[Row]]]:
        found: dict[int, list[Row]] = {}
        for row in self._rows:
            found.setdefault(row[0] // MINUTE, []).append(row)
        yield from found.items()


def _point(at: int, rows: Sequence[Row], mount: int, columns: NDArray[np.intp]) -> StoragePoint:
    """Of the nodes with a sample in that minute; the others are taken to do as much."""
    columns = columns[columns < len(rows[-1][1].nodes)]  # some came later
    if mount >= len(rows[-1][1].exports):
        return StoragePoint(at)
    seconds = _total(rows, lambda f, r: np.nan_to_num(np.where(f.fresh[r], f.elapsed[r], 0.0)))[columns]
    known = seconds > 0
    if not known.any():
        return StoragePoint(at)
    sums = {
        name: _sum(rows, mount, (f"write{name}", f"read{name}"))[columns] for name in ("", "_rtt", "_queue", "_wait")
    }
    rate = float((sums[""][known] / seconds[known]).sum()) * len(seconds) / int(known.sum())
    whole = sums["_wait"].sum() or sums["_queue"].sum() + sums["_rtt"].sum()
    queued = "write_queue" in rows[-1][1].sums and whole > 0
    return StoragePoint(
        at,
        round(rate),
        round(min(1.0, float(sums["_queue"].sum() / whole)), 3) if queued else None,
        _in_flight(rows, mount, columns, sums["_rtt"] / np.maximum(seconds, 1)),
    )


def _in_flight(rows: Sequence[Row], mount: int, columns: NDArray[np.intp], answered: Floats) -> float | None:
    """Of a node that is busy, by Little's law; where nothing is answered, what waits."""
    _, flows, wait, row = rows[-1]
    if "write_rtt" not in flows.sums and wait is None:
        return None
    waits = wait.pending[row][columns, mount] if wait else np.zeros(0)
    busy = answered[answered > 0] if (answered > 0).any() else waits[waits >= 1]
    return round(float(np.median(busy)), 1) if len(busy) else 0.0


def _sum(rows: Sequence[Row], mount: int, names: Sequence[str]) -> Floats:
    def of(flows: Flows, row: int) -> Floats:
        found = [flows.sums[name][row][:, mount] for name in names if name in flows.sums and mount < len(flows.exports)]
        return np.asarray(sum(found)) if found else np.zeros(len(flows.nodes))

    return _total(rows, of)


def _total(rows: Sequence[Row], of: Callable[[Flows, int], Floats]) -> Floats:
    """(N,) over rows, of which earlier ones may know fewer nodes and mounts."""
    total = np.zeros(len(rows[-1][1].nodes))
    for _, flows, _, row in rows:
        total[: len(flows.nodes)] += of(flows, row)
    return total
