"""A burst under way: what it has moved so far, and on which nodes. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from bot.storage.numbers import StorageNumbers
from bot.storage.window import Floats

WRITES_TOO = 0.1  # of the busiest node's rate: that node takes part


@dataclass
class Current:
    """A burst under way. first: its first row, whose sample holds time before it. sums: name → (n,) since it began, of
    these nodes. low_since: since when it runs far below its usual rate."""

    first: int
    opening: float
    last: int
    nodes: tuple[str, ...] = ()
    bytes: float = 0.0
    peak: float = 0.0
    sums: dict[str, Floats] = field(default_factory=dict)
    totals: list[tuple[int, float, float]] = field(default_factory=list)
    writers: list[int] = field(default_factory=list)
    pending: list[float] = field(default_factory=list)
    low_since: int | None = None
    slow_since: int | None = None
    sure: bool = True
    scrape: float = 0.0
    idle_since: int | None = None

    def add(self, name: str, grown: Floats) -> None:
        self.sums[name] = self.sums[name] + grown if name in self.sums else grown

    def lay_out(self, nodes: tuple[str, ...]) -> None:
        """A node of the run that is first seen now has moved nothing so far."""
        if nodes != self.nodes:
            places = [nodes.index(name) for name in self.nodes if name in nodes]
            kept = [i for i, name in enumerate(self.nodes) if name in nodes]
            for name, values in self.sums.items():
                wide = np.zeros(len(nodes))
                wide[places] = values[kept]
                self.sums[name] = wide
            self.nodes = nodes

    @property
    def start(self) -> int:
        """The first sample tells by its rate how much of its time was before."""
        return round(self.first - self.scrape * min(1.0, self.opening / max(self.peak, 1.0)))

    @property
    def end(self) -> int:
        """The same of the last sample."""
        pace = float(np.median([total for _, total, _ in self.totals])) if self.totals else 1.0
        lost = 1.0 - min(1.0, self.totals[-1][1] / max(pace, 1.0)) if len(self.totals) > 1 else 0.0
        return max(self.start + 1, round(self.last - self.scrape * lost))


def writers(each: Floats) -> int:
    """Nodes that take part."""
    rates = np.nan_to_num(each)
    top = float(rates.max(initial=0))
    return int((rates >= WRITES_TOO * top).sum()) if top > 0 else 0


def median_rtt(sums: dict[str, Floats], requests: str, rtt: str) -> float:
    """s, of the nodes that completed something; NaN where it is not measured."""
    if requests not in sums or rtt not in sums:
        return float("nan")
    busy = sums[requests] > 0
    return float(np.median(sums[rtt][busy] / sums[requests][busy])) if busy.any() else float("nan")


def dip(c: Current, numbers: StorageNumbers) -> float:
    """The first sample holds time before the burst, and its tail is slow in every one: neither counts."""
    pace, scrape = c.bytes / (c.end - c.start), c.scrape
    longest, since = 0.0, None
    for at, total, written in c.totals:
        if at < c.first + scrape or written >= numbers.done * c.bytes:
            continue
        if total < numbers.slow * pace:
            since = at if since is None else since
            longest = max(longest, at - since + scrape)
        else:
            since = None
    return longest
