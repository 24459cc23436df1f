"""Saves and loads as bursts of bytes, what is usual for a run, and when one is late. Pure; row by row."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bot.storage.current import WRITES_TOO, Current, dip, median_rtt, writers
from bot.storage.lanes import OTHERS, Lane, Side
from bot.storage.numbers import StorageNumbers
from bot.storage.past import Past, Usual
from bot.storage.window import Floats

BACKGROUND = 240  # rows outside bursts that make the background: two hours of them
LOOK_AGAIN = 8  # rows between two looks at the background
RELUCTANT = 0.7  # of the usual rate of a node that takes part: less is slow for a save that is late already


@dataclass
class Course:
    """The bursts of one run on one mount in one direction. `ended`: the burst that ended with the newest row."""

    numbers: StorageNumbers
    reads: bool = False
    past: deque[Past] = field(default_factory=deque)
    current: Current | None = None
    ended: Past | None = None
    _background: deque[float] = field(default_factory=lambda: deque(maxlen=BACKGROUND))
    _level: float = 0.0
    _rows: int = 0
    _usual: Usual | None = None
    _slowest: float = 0.0

    # -- what is usual -------------------------------------------------------------------------------------------------

    @property
    def usual(self) -> Usual | None:
        """None before there are enough bursts."""
        return self._usual

    def normal(self) -> list[Past]:
        """Those that count: nothing was missed of them, nothing was slow, and not much smaller than the large ones."""
        good = [p for p in self.past if p.sure and not p.slow]
        if not good:
            return []
        large = float(np.percentile([p.bytes for p in good], 90))
        return [p for p in good if p.bytes >= self.numbers.alike * large][-self.numbers.kept :]

    def is_alike(self, past: Past) -> bool:
        return self._usual is None or past.bytes >= self.numbers.alike * self._usual.bytes

    def _learn(self, at: int) -> None:
        while self.past and self.past[0].end < at - self.numbers.history:
            self.past.popleft()
        normal = self.normal()
        self._usual = Usual(normal) if len(normal) >= self.numbers.known_after else None
        self._slowest = min((p.rate for p in normal), default=0.0)

    @property
    def line(self) -> float:
        """bytes/s at which a burst begins."""
        usual = self._usual.rate if self._usual else self._slowest if self.reads else 0.0
        return max(
            self.numbers.floor_bytes, self.numbers.over_background * self._level, usual * self.numbers.over_usual
        )

    # -- rows ----------------------------------------------------------------------------------------------------------

    def row(self, lane: Lane, side: Side, i: int, scrape: float, stuck: bool) -> None:
        """stuck: requests hang on some nodes, so silence is not its end."""
        self.ended = None
        at, total = int(lane.times[i]), float(side.total[i])
        if self.current is None:
            if total < self.line:
                self._rest(total)
                return
            self._learn(at)
            self.current = Current(first=at, opening=total, last=at, scrape=scrape)
        if self.reads and not stuck and self._is_background(self.current, side, i, at):
            return
        self._go_on(self.current, lane, side, i, scrape, stuck)

    def _is_background(self, c: Current, side: Side, i: int, at: int) -> bool:
        """What is read for minutes without one request that waits is the training's data, which the node reads all the
        time: no load has begun, and what it reads counts as the background."""
        if waits(i, side.waits) is not False:
            c.idle_since = None
            return False
        c.idle_since = at if c.idle_since is None else c.idle_since
        if at - c.idle_since < self.numbers.judged_over:
            return False
        self._background.extend(total for t, total, _ in c.totals if t >= c.idle_since)
        self._level = float(np.median(self._background)) if self._background else self._level
        self.current = None
        return True

    def _rest(self, total: float) -> None:
        self._background.append(total)
        self._rows += 1
        if self._rows % LOOK_AGAIN == 0:
            self._level = float(np.median(self._background))

    def _go_on(self, c: Current, lane: Lane, side: Side, i: int, scrape: float, stuck: bool) -> None:
        at, total = int(lane.times[i]), float(side.total[i])
        c.scrape = scrape
        c.lay_out(lane.nodes)
        for name in (*side.names, *OTHERS):
            if name in lane.sums:
                c.add(name, lane.sums[name][i])
        c.bytes = float(c.sums[side.names[0]].sum())
        c.peak = max(c.peak, total)
        enough = max(self.line / 2, self.numbers.falls_to * c.peak)
        moved = total >= enough and bool(lane.sums[side.names[0]][i].any())  # else a rate that is only held
        if moved or stuck or self._unfinished(c, lane, side, i):
            c.last = at
            c.totals.append((at, total, c.bytes))
            c.writers.append(writers(side.each[i]))
            if lane.pending is not None:
                c.pending.append(float(lane.pending[i].sum()))
        elif at - c.last >= self.numbers.settle:
            self._end(c, side)

    def _unfinished(self, c: Current, lane: Lane, side: Side, i: int) -> bool:
        """Little is written, but much is waiting: everywhere before the save is as large as usual, or on nodes that are
        behind the others."""
        usual = self._usual
        if usual is None:
            return self._as_before(c, side, i)
        if not self.pressing(lane, side, i):
            return False
        if c.bytes < self.numbers.done * usual.bytes:
            return True
        each = c.sums[side.names[0]]
        if not each.any():
            return False
        half = np.median(each[each > WRITES_TOO * each.max()])
        behind = (each > 0) & (each < self.numbers.done * half)
        return bool((behind & (self._pressure(lane, side, i) >= self.numbers.pressing)).any())

    def _as_before(self, c: Current, side: Side, i: int) -> bool:
        """Before anything is usual: as much is waiting as there was so far, and it is more than logs."""
        wait = side.names[4]
        if side.waits is None or wait not in c.sums or float(side.total[i]) < self.line / 2:
            return False
        each = float(c.sums[wait].max(initial=0)) / max(1, c.last - c.start)
        return each > 0 and float(side.waits[i].max(initial=0)) >= self.numbers.pressing * each

    def _end(self, c: Current, side: Side) -> None:
        _, requests, rtt, _, wait = side.names
        writing = max(1.0, float(np.median(c.writers)))
        seconds = c.end - c.start
        waited = {name: float(c.sums[name].sum()) for name in (wait, "meta_wait") if name in c.sums}
        counted = (wait, "meta_wait") if side.names[0] == "write" else (wait,)
        waits = [waited[name] for name in counted if name in waited]
        past = Past(
            start=c.start,
            end=c.end,
            bytes=c.bytes,
            writers=writing,
            rtt=median_rtt(c.sums, requests, rtt),
            waiting=sum(waits) / seconds / writing if waits else float("nan"),
            pending=float(np.mean(c.pending)) / writing if c.pending else float("nan"),
            meta=waited["meta_wait"] / waited[wait] if len(waited) == 2 and waited[wait] > 0 else float("nan"),
            dip=dip(c, self.numbers),
            slow=c.slow_since is not None,
            sure=c.sure,
        )
        self.past.append(past)
        self.current, self.ended = None, past
        self._learn(c.last)

    # -- late ----------------------------------------------------------------------------------------------------------

    def _pressure(self, lane: Lane, side: Side, i: int) -> Floats:
        """(n,) requests that wait on a node against those of a node in the usual burst."""
        usual = self._usual
        found = np.zeros(side.each.shape[1])
        if usual and side.waits is not None and usual.waiting > 0:
            found = np.maximum(found, side.waits[i] / usual.waiting)
        if usual and lane.pending is not None and usual.pending > 0:
            found = np.maximum(found, lane.pending[i] / usual.pending)
        if side.meta is not None and side.waits is not None:  # a process that always waits for metadata writes nothing
            meta = side.meta[i]
            found = np.where((meta >= 1) & (meta >= self.numbers.metadata_share * side.waits[i]), 1.0, found)
        return found

    def pressing(self, lane: Lane, side: Side, i: int) -> bool:
        """Some node has about as many requests waiting as in any save: it wants to go faster. True where nobody
        measures it."""
        waiting = waits(i, side.waits, lane.pending)
        if not waiting:
            return waiting is None  # most of the time nothing waits at all
        return bool(self._pressure(lane, side, i).max(initial=0) >= self.numbers.pressing)

    def is_slow(self, lane: Lane, side: Side, i: int, scrape: float, due: bool) -> bool:
        """The burst under way is late, or far below its usual rate. due: one could be expected when it began."""
        c, usual, n = self.current, self._usual, self.numbers
        if c is None:
            return False
        at, total = int(lane.times[i]), float(side.total[i])
        each = total / max(1, writers(side.each[i]))
        if usual is None:
            c.low_since = (c.low_since or at) if total < n.slow * c.peak else None
            return False
        low = total < n.slow * usual.rate and each < n.slow * usual.each and at >= c.first + scrape
        c.low_since = (c.low_since or at) if low else None
        limit = max(n.late * usual.seconds_p90, float(n.least)) * max(1.0, c.bytes / usual.bytes)
        late = c.last - c.start > limit and each < RELUCTANT * usual.each
        if not self.pressing(lane, side, i):  # a save that was due and crawls: the job itself writes slowly
            return late and low and due and c.last == at and c.bytes < n.done * usual.bytes
        if late:
            return True
        return (
            due
            and c.low_since is not None
            and at - c.low_since >= scrape + usual.dip
            and c.bytes < n.done * usual.bytes
        )

    def is_past_limit(self, lane: Lane, side: Side, i: int, limit: int) -> bool:
        """Before anything is usual: longer than any tuned site's, for minutes slower than it was itself (no tail is),
        and requests wait."""
        c, at = self.current, int(lane.times[i])
        if c is None or self._usual is not None or c.low_since is None or at - c.start <= limit:
            return False
        return at - c.low_since >= self.numbers.judged_over and waits(i, side.waits, lane.pending) is not False

    def is_far_behind(self, lane: Lane, side: Side, i: int, known: Sequence[Past]) -> bool:
        """Fewer of its kind are known than make a usual: it takes far longer than the longest of them, goes on far more
        slowly than the slowest, and requests wait."""
        c, at, n = self.current, int(lane.times[i]), self.numbers
        if c is None or self._usual is not None or not known:
            return False
        took = at - c.start
        limit = max(n.few * max(p.seconds for p in known), float(n.least))
        more = max(1.0, c.bytes / max(p.bytes for p in known))
        slow = c.bytes / max(took, 1) < n.slow * min(p.rate for p in known)
        return took > limit * more and slow and waits(i, side.waits) is not False


def waits(i: int, *measured: Floats | None) -> bool | None:
    """Some node has a request that waits; None where nobody measures it."""
    known = [float(values[i].max(initial=0)) for values in measured if values is not None]
    return max(known) >= 1 if known else None
