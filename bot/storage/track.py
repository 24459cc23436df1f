"""One run on one mount: its phase, and the rules by which it stalls. Pure; row by row: any split is the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from bot.model import Burst, SessionStorage, StallRule, StoragePhase
from bot.storage.bursts import Course
from bot.storage.current import Current
from bot.storage.lanes import Lane
from bot.storage.numbers import StorageNumbers
from bot.storage.past import Past, Usual, spread
from bot.storage.window import Flags

SHOWN = 20  # saves that a view carries
DUE_FROM = 0.6  # of the usual gap: what is written earlier is no save that was waited for
ALONE, MOST = 3, 0.5  # most of more nodes than these at once in the middle of a burst: one sample is enough
ORDER: tuple[StallRule, ...] = ("hang", "slow_save", "slow_load", "overdue_save")


@dataclass
class Tracker:
    """One run on one mount."""

    session: str
    numbers: StorageNumbers
    save: Course = field(init=False)
    load: Course = field(init=False)
    rule: StallRule | None = None
    onset: int | None = None
    hung: Flags | None = None
    usual: int | None = None
    beyond: int = 0
    normal_saves: int = 0
    calm_since: int | None = None
    began: int = 0
    known: bool = False
    _scrape: float = 0.0
    _base: int | None = None
    _starts: list[int] = field(default_factory=list)
    _gaps: list[tuple[int, int]] = field(default_factory=list)
    _gap: float | None = None
    _loads: list[Past] = field(default_factory=list)
    _unknown_since: int | None = None
    _view: SessionStorage | None = None

    def __post_init__(self) -> None:
        self.save, self.load = Course(self.numbers), Course(self.numbers, reads=True)
        self._scrape = float(self.numbers.step)

    # -- looks ---------------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> StoragePhase:
        if not self.known:
            return "unknown"
        if self.save.current:
            return "save"
        return "load" if self.load.current else "quiet"

    @property
    def gap(self) -> float | None:
        """The usual seconds from one save's start to the next one's; None where there is no rhythm."""
        return self._gap

    def compared(self, course: Course) -> Usual | None:
        """What its burst under way is compared with: fewer loads than make a usual are better than nothing."""
        return course.usual or (Usual(self._loads) if course is self.load and self._loads else None)

    def _rhythm(self) -> float | None:
        """Like gaps between saves of like size: anything else may just come later."""
        gaps = [gap for _, gap in self._gaps]
        if len(gaps) < self.numbers.known_after - 1 or not self._is_even(gaps):
            return None
        sizes = [p.bytes for p in self.save.normal()]
        return float(np.percentile(gaps, 90)) if not sizes or self._is_even(sizes) else None

    def _is_even(self, values: Sequence[float]) -> bool:
        return spread(values) <= self.numbers.regular

    @property
    def due(self) -> int | None:
        """When the next save is overdue."""
        gap = self.gap
        return None if gap is None or self._base is None else round(self._base + self.numbers.overdue * gap)

    def view(self) -> SessionStorage:
        found = SessionStorage(
            session=self.session,
            phase=self.phase,
            stalled=self.rule or "",
            onset=self.onset,
            usual=self.usual,
            beyond=self.beyond,
            normal_saves=self.normal_saves,
            calm_since=self.calm_since,
            cadence=self.gap is not None,
            saves=self._saves(),
        )
        if self._view != found:
            self._view = found
        return self._view or found

    def _saves(self) -> tuple[Burst, ...]:
        done = tuple(p.told() for p in list(self.save.past)[-SHOWN:] if self.save.is_alike(p))
        c = self.save.current
        return (*done, Burst(c.start, None, c.bytes, 0, c.slow_since is not None)) if c else done

    # -- rows ----------------------------------------------------------------------------------------------------------

    def begin(self, start: int) -> None:
        """Another attempt of the run: nothing is due until it has saved."""
        self.began, self._base, self._unknown_since = start, None, None
        self._starts.clear()
        if self.onset is not None:
            self.rule, self.onset, self.normal_saves, self.calm_since = None, None, 0, start
        for course in (self.save, self.load):
            course.current = None

    def row(self, lane: Lane, i: int) -> None:
        at = int(lane.times[i])
        self.known = bool(lane.known[i])
        if not self.known:
            self._miss(at)
            return
        self._found(at)
        if lane.scrape[i] > 0:
            self._scrape = float(min(lane.scrape[i], self.numbers.gap))
        if self.calm_since is None and self.onset is None:
            self.calm_since = at
        self.hung = self._hung(lane, i)
        stuck = self.hung is not None and bool(self.hung.any())
        for course, side in ((self.save, lane.save), (self.load, lane.load)):
            course.row(lane, side, i, self._scrape, stuck and course.current is not None)
        self._count()
        self._judge(at, self._rules(lane, i, at, stuck))

    def _miss(self, at: int) -> None:
        if self._unknown_since is None:
            self._unknown_since = at

    def _found(self, at: int) -> None:
        """Whatever was missed may have been a save, and the one under way was not seen whole."""
        since, self._unknown_since = self._unknown_since, None
        if since is None or at - since <= self.numbers.gap:
            return
        for course in (self.save, self.load):
            if course.current:
                course.current.sure = False
        self._starts.clear()
        if self._base is not None:
            self._base = max(self._base, at)

    def _hung(self, lane: Lane, i: int) -> Flags | None:
        """Nodes on which nothing completes although requests wait, in a burst or while more is sent."""
        if lane.stuck is None or lane.stuck_samples is None or lane.wanted is None:
            return None
        busy = self._busy()
        long = (lane.stuck_samples[i] >= 2) & (lane.stuck[i] >= self.numbers.frozen_for)
        once = lane.stuck_samples[i] >= 1
        if busy and len(once) > ALONE and once.mean() >= MOST:
            return np.asarray(once)
        return np.asarray(long & (lane.wanted[i] | busy))

    def _busy(self) -> bool:
        """In the middle of a burst: what stands still now did not come to its natural end."""
        for course in (self.save, self.load):
            if course.current:
                usual = course.usual
                if usual is None or course.current.bytes < self.numbers.busy_share * usual.bytes:
                    return True
        return False

    def _count(self) -> None:
        """Saves that began and ended."""
        loaded = self.load.ended
        if loaded and loaded.sure and not loaded.slow and self._is_early(loaded):
            since = loaded.end - self.numbers.history
            self._loads = [*(load for load in self._loads if load.end >= since), loaded]
        ended = self.save.ended
        if ended and self.save.is_alike(ended):
            self._begun(ended.start)
            if not ended.slow:
                self.normal_saves += 1
            elif self._base is not None and self.save.usual:  # the next is waited for from its end, late as that was
                self._base = max(self._base, ended.end - round(self.save.usual.seconds))

    def _begun(self, start: int) -> None:
        """A save that pauses is one: the next is not so near."""
        if self._starts and start <= self._starts[-1] + self.numbers.least:
            return
        if self._starts:
            self._gaps.append((start, start - self._starts[-1]))
            while self._gaps and (
                len(self._gaps) > self.numbers.kept or self._gaps[0][0] < start - self.numbers.history
            ):
                self._gaps.pop(0)
            self._gap = self._rhythm()
        self._starts.append(start)
        self._base = max(start, self._base or 0)

    # -- rules ---------------------------------------------------------------------------------------------------------

    def _rules(self, lane: Lane, i: int, at: int, stuck: bool) -> dict[StallRule, int]:
        """Those that hold now, with the moment since when."""
        held: dict[StallRule, int] = {}
        if stuck:
            held["hang"] = at
            self._spoil(at)
        if self._slow(self.save, lane, i, at, self._expected(), self.numbers.save_limit):
            held["slow_save"] = at
        if self._slow_load(lane, i, at):
            held["slow_load"] = at
        due = self.due
        if due is not None and not self.save.current and at >= due + self._scrape:
            held["overdue_save"] = due
        return held

    def _spoil(self, at: int) -> None:
        """A burst in which requests hung is late, however fast the rest goes."""
        for course in (self.save, self.load):
            if course.current and course.current.slow_since is None:
                course.current.slow_since = at

    def _expected(self) -> bool:
        """A save could be waited for when the burst began: what comes long before is something else."""
        c, gap = self.save.current, self.gap
        last = self._starts[-1] if self._starts else None
        return c is None or gap is None or last is None or c.start - last >= DUE_FROM * gap

    def _slow(self, course: Course, lane: Lane, i: int, at: int, due: bool, limit: int) -> bool:
        c = course.current
        if c is None:
            return False
        side = lane.save if course is self.save else lane.load
        if c.slow_since is None:
            slow = course.is_slow(lane, side, i, self._scrape, due) or course.is_past_limit(lane, side, i, limit)
            c.slow_since = at if slow else None
        return c.slow_since is not None

    def _slow_load(self, lane: Lane, i: int, at: int) -> bool:
        c, early = self.load.current, self._is_early(self.load.current)
        if early and c and c.slow_since is None and self.load.is_far_behind(lane, lane.load, i, self._loads):
            c.slow_since = at
        limit = self.numbers.load_limit if early and not self.save.past else 1 << 40
        return self._slow(self.load, lane, i, at, True, limit)

    def _is_early(self, load: Current | Past | None) -> bool:
        """It begins with the attempt: what is read later is the data of the training."""
        return load is not None and self.began <= load.start <= self.began + self.numbers.load_within

    def _judge(self, at: int, held: dict[StallRule, int]) -> None:
        if held:
            rule = next(r for r in ORDER if r in held)
            if self.onset is None:
                self.onset, self.beyond, self.normal_saves, self.calm_since = held[rule], 0, 0, None
            self.rule = rule
            self.usual = round(self._gap) if rule == "overdue_save" and self._gap else None
            self._cost(at)
        elif self.onset is not None:
            end = self._over(at)
            self._cost(end)
            self.rule, self.onset, self.normal_saves, self.calm_since = None, None, 0, end

    def _over(self, at: int) -> int:
        """That a burst has ended is known some time later."""
        ended = [c.ended.end for c in (self.save, self.load) if c.ended and c.ended.slow]
        return max(ended, default=at)

    def _cost(self, at: int) -> None:
        """Seconds beyond the usual: of a burst since it should have been over, of a silence since the onset."""
        assert self.onset is not None
        for course in (self.save, self.load):
            burst: Past | None = course.ended
            start = course.current.start if course.current else burst.start if burst else None
            usual = self.compared(course)
            if start is not None and usual:
                self.usual = round(usual.seconds)
                self.beyond = max(self.beyond, round(at - start - usual.seconds))
                return
        self.beyond = max(self.beyond, at - self.onset)
