"""Bursts that are over, and what the normal ones of a run have in common. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bot.model import Burst


@dataclass(frozen=True, slots=True)
class Past:
    """A burst that is over. each: bytes/s of a node that took part; waiting, pending: requests of such a node; meta:
    the time of requests that move no data against that of those that do; dip: the longest time (s) for which it ran at
    less than half its own pace. sure: nothing of it was missed."""

    start: int
    end: int
    bytes: float
    writers: float
    rtt: float
    waiting: float
    pending: float
    meta: float
    dip: float
    slow: bool
    sure: bool

    @property
    def seconds(self) -> int:
        return max(1, self.end - self.start)

    @property
    def rate(self) -> float:
        return self.bytes / self.seconds

    def told(self) -> Burst:
        return Burst(self.start, self.end, self.bytes, round(self.writers), self.slow)


@dataclass
class Usual:
    """What the normal bursts of a run have in common. Medians, but for the 90th percentile of the time taken."""

    bursts: Sequence[Past]

    def _median(self, name: str) -> float:
        values = [getattr(b, name) for b in self.bursts]
        known = [v for v in values if not np.isnan(v)]
        return float(np.median(known)) if known else float("nan")

    @cached_property
    def bytes(self) -> float:
        return self._median("bytes")

    @cached_property
    def seconds(self) -> float:
        return self._median("seconds")

    @cached_property
    def seconds_p90(self) -> float:
        return float(np.percentile([b.seconds for b in self.bursts], 90))

    @cached_property
    def rate(self) -> float:
        return self._median("rate")

    @cached_property
    def each(self) -> float:
        return float(np.median([b.rate / max(1.0, b.writers) for b in self.bursts]))

    @cached_property
    def rtt(self) -> float:
        return self._median("rtt")

    @cached_property
    def waiting(self) -> float:
        return self._median("waiting")

    @cached_property
    def pending(self) -> float:
        return self._median("pending")

    @cached_property
    def meta(self) -> float:
        return self._median("meta")

    @cached_property
    def dip(self) -> float:
        return max(b.dip for b in self.bursts)


def spread(values: Sequence[float]) -> float:
    """From the 10th to the 90th percentile, over the median."""
    low, middle, high = np.percentile(values, (10, 50, 90)).tolist()
    return float((high - low) / middle) if middle > 0 else float("inf")
