"""Everything that differs from the normal level of a metric: rare, so it is kept as a list and laid over the arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bot.sandbox.recording.fleet import GPUS, ROWS, STEP

Floats = NDArray[np.float64]
How = Literal["scale", "add", "set", "bit"]
Part = Literal["dcgm", "node", "scrape"]  # scrape: Prometheus did not look, so that `up` is missing as well
Restart = Literal["exporter", "driver", "boot"]


@dataclass(frozen=True, slots=True)
class Change:
    """From start until end (not included) the level is scaled, raised, replaced, or has a bit set. ramp: seconds until
    it is in full force."""

    columns: tuple[int, ...]
    start: int
    end: int
    how: How
    value: float
    ramp: int = 0


@dataclass(frozen=True, slots=True)
class Rise:
    """A counter of rare events goes up."""

    column: int
    at: int
    amount: float


@dataclass(frozen=True, slots=True)
class Held:
    """What the exporter says instead of the truth: blanks, garbage."""

    columns: tuple[int, ...]
    start: int
    end: int
    value: float


@dataclass(frozen=True, slots=True)
class Spell:
    """columns: nodes, or GPUs where GPUs are gone."""

    columns: tuple[int, ...]
    start: int
    end: int


@dataclass
class Effects:
    nodes: int
    changes: dict[str, list[Change]] = field(default_factory=lambda: defaultdict(list))
    rises: dict[str, list[Rise]] = field(default_factory=lambda: defaultdict(list))
    held: dict[str, list[Held]] = field(default_factory=lambda: defaultdict(list))
    xids: list[Rise] = field(default_factory=list)  # amount = code
    outages: dict[str, list[Spell]] = field(default_factory=lambda: defaultdict(list))
    frozen: dict[str, list[Spell]] = field(default_factory=lambda: defaultdict(list))
    gone: list[Spell] = field(default_factory=list)
    restarts: list[tuple[int, int, Restart]] = field(default_factory=list)  # at, node, what
    _resets: dict[tuple[int, tuple[Restart, ...]], list[int]] = field(default_factory=dict)  # once all is put down

    # -- putting down --------------------------------------------------------------------------------------------------

    def change(
        self, metric: str, columns: Sequence[int], start: int, end: int, how: How, value: float, ramp: int = 0
    ) -> None:
        if end > start:
            self.changes[metric].append(Change(tuple(columns), start, end, how, value, ramp))

    def rise(self, metric: str, column: int, at: int, amount: float = 1) -> None:
        self.rises[metric].append(Rise(column, at, amount))

    def hold(self, metric: str, columns: Sequence[int], start: int, end: int, value: float) -> None:
        self.held[metric].append(Held(tuple(columns), start, end, value))

    def xid(self, gpu: int, at: int, code: int) -> None:
        self.xids.append(Rise(gpu, at, code))

    def lose(self, gpus: Sequence[int], start: int, end: int) -> None:
        self.gone.append(Spell(tuple(gpus), start, end))

    def silence(self, part: Part, nodes: Sequence[int], start: int, end: int) -> None:
        self.outages[part].append(Spell(tuple(nodes), start, end))

    def freeze(self, part: Part, nodes: Sequence[int], start: int, end: int) -> None:
        self.frozen[part].append(Spell(tuple(nodes), start, end))

    def restart(self, what: Restart, node: int, at: int) -> None:
        self.restarts.append((at, node, what))

    def reboot(self, node: int, start: int, seconds: int) -> None:
        """Off the net for so long, and everything that counts from the boot begins anew."""
        self.silence("dcgm", [node], start, start + seconds + 60)
        self.silence("node", [node], start, start + seconds)
        self.restart("boot", node, start + seconds)

    # -- laying over ---------------------------------------------------------------------------------------------------

    def lay(self, metric: str, values: Floats, begin: int) -> None:
        """values (ROWS, columns) of the day that begins at `begin`, changed in place."""
        for change in self.changes.get(metric, ()):
            rows = span(change.start, change.end, begin)
            if rows.stop > rows.start:
                _apply(change, values, rows, begin)

    def total(self, metric: str, columns: int, begin: int, reset_by: Collection[Restart]) -> Floats:
        """(ROWS, columns): the counter of rare events."""
        values = np.zeros((ROWS, columns))
        for rise in self.rises.get(metric, ()):
            stop = self._reset(rise.column // (columns // self.nodes), rise.at, reset_by)
            rows = span(rise.at, stop, begin)
            values[rows, rise.column] += rise.amount
        return values

    def _reset(self, node: int, after: int, by: Collection[Restart]) -> int:
        """When what was counted at `after` is forgotten."""
        key = (node, tuple(by))
        if key not in self._resets:
            self._resets[key] = sorted(at for at, who, what in self.restarts if who == node and what in by)
        later = bisect_right(self._resets[key], after)
        return self._resets[key][later] if later < len(self._resets[key]) else 2**62

    def last_xid(self, begin: int) -> Floats:
        """(ROWS, GPUs): the gauge keeps the last code until its exporter begins anew (dcgm-exporter 500)."""
        values = np.zeros((ROWS, self.nodes * GPUS))
        for rise in sorted(self.xids, key=lambda r: r.at):
            stop = self._reset(rise.column // GPUS, rise.at, ("exporter", "driver", "boot"))
            values[span(rise.at, stop, begin), rise.column] = rise.amount
        return values


def span(start: int, end: int, begin: int) -> slice:
    """The rows of the day that begins at `begin` from start until end (not included)."""
    first, last = (-(-(moment - begin) // STEP) for moment in (start, end))
    return slice(min(max(first, 0), ROWS), min(max(last, 0), ROWS))


def _apply(change: Change, values: Floats, rows: slice, begin: int) -> None:
    part = values[rows][:, list(change.columns)]
    if change.how == "bit":
        part = (part.astype(np.int64) | int(change.value)).astype(np.float64)
    else:
        force = np.ones((len(part), 1))
        if change.ramp:
            since = begin + np.arange(rows.start, rows.stop) * STEP - change.start
            force = np.clip(since / change.ramp, 0, 1)[:, None]
        part = _forced(change, part, force)
    values[rows, list(change.columns)] = part


def _forced(change: Change, part: Floats, force: Floats) -> Floats:
    if change.how == "scale":
        return part * (1 + (change.value - 1) * force)
    if change.how == "add":
        return part + change.value * force
    return part * (1 - force) + change.value * force
