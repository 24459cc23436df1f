"""Recorded storage for a replay: fed piece by piece, asked moment by moment, in order. Only `window` reads anything.

Row by row what a live watch would have seen that began `history` before the first moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bot.model import StorageView
from bot.storage.numbers import MountFacts, StorageNumbers
from bot.storage.watch import Row, StorageWatch, Views
from bot.storage.window import Span, StorageWindow

PIECE = 6 * 3600  # s read at once: 63 nodes take some hundred megabytes


@dataclass
class StorageReplay:
    """window: the counters from start to end, both included. spans: all runs of the recording. Moments must not go back
    by more than a piece; rows that are not there yet are empty. Raises whatever `window` raises."""

    window: Callable[[int, int], StorageWindow]
    spans: Sequence[Span]
    numbers: StorageNumbers
    start: int
    end: int
    facts: MountFacts = field(default_factory=MountFacts)
    _watch: StorageWatch = field(init=False)
    _rows: dict[int, Row] = field(default_factory=dict)
    _next: int = 0

    def __post_init__(self) -> None:
        step = self.numbers.step
        self._watch = StorageWatch(self.numbers, self.facts)
        self._next = (self.start - self.numbers.history) // step * step

    def views(self, at: int) -> Views:
        row = self._row(at)
        return row.views if row else ()

    def strikes(self, at: int, step: int) -> bool:
        """Something may have to be decided that needed not a step ago."""
        return [_told(v) for v in self.views(at)] != [_told(v) for v in self.views(at - step)]

    def _row(self, at: int) -> Row | None:
        at = at // self.numbers.step * self.numbers.step
        while self._next <= min(at, self.end):
            last = min(self._next + PIECE - self.numbers.step, self.end)
            self._rows = {t: row for t, row in self._rows.items() if t >= self._next - PIECE}
            self._rows |= {row.at: row for row in self._watch.feed(self.window(self._next, last), self.spans)}
            self._next = last // self.numbers.step * self.numbers.step + self.numbers.step
        return self._rows.get(at)


def _told(view: StorageView) -> tuple[object, ...]:
    """What a decision depends on; numbers alone move all the time."""
    stall = view.stall and (view.stall.rule, view.stall.verdict, view.stall.node)
    return view.export, view.known, stall, tuple((s.session, s.stalled, s.normal_saves) for s in view.sessions)
