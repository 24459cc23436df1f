"""All runs on all mounts, row by row: the same code looks live, after a restart and over recorded days.

A restarted watch is fed the last `history` again, so it knows every save under way and every stall as before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bot.model import SessionStorage, Stall, StallRule, StoragePoint, StorageView, Verdict
from bot.storage.flows import FlowMaker, Flows
from bot.storage.lanes import LOAD, SAVE, Lane, lane
from bot.storage.numbers import MountFacts, StorageNumbers
from bot.storage.trace import Trace
from bot.storage.track import ORDER, Tracker
from bot.storage.verdict import Case, Judge
from bot.storage.waiting import Wait, Waiting
from bot.storage.window import LINK_IN, LINK_OUT, RETRANSMITTED, Flags, Floats, Span, StorageWindow

PIECE = 120  # rows at once: an hour of 63 nodes is about ten megabytes per mount
LATELY = 60  # s: two scrapes

Views = tuple[StorageView, ...]


@dataclass(frozen=True, slots=True)
class Row:
    """What is to be seen at one moment."""

    at: int
    views: Views


@dataclass
class _Open:
    """The verdict on a stall while it lasts: another one must hold for a while."""

    onset: int
    stall: Stall
    other: tuple[Verdict, str] | None = None
    other_since: int = 0


@dataclass(frozen=True, slots=True)
class _Seen:
    """A row of flows, kept for the verdict."""

    flows: Flows
    wait: Wait | None
    row: int


@dataclass
class StorageWatch:
    """Every mount of every run, row by row."""

    numbers: StorageNumbers
    facts: MountFacts = field(default_factory=MountFacts)
    last: int | None = None
    _maker: FlowMaker = field(init=False)
    _waiting: Waiting = field(default_factory=Waiting)
    _trackers: dict[tuple[str, int, str], Tracker] = field(default_factory=dict)
    _attempts: dict[tuple[str, int, str], int] = field(default_factory=dict)
    _open: dict[str, _Open] = field(default_factory=dict)
    _newest: deque[_Seen] = field(default_factory=deque)
    _trace: Trace = field(default_factory=Trace)
    _stalled_at: dict[str, int] = field(default_factory=dict)
    _slots: Floats = field(default_factory=lambda: np.empty((0, 0)))

    def __post_init__(self) -> None:
        self._maker = FlowMaker(self.numbers.gap)
        self._newest = deque(maxlen=max(2, self.numbers.judged_over // self.numbers.step + 1))

    # -- feeding -------------------------------------------------------------------------------------------------------

    def feed(self, window: StorageWindow, spans: Sequence[Span]) -> Iterator[Row]:
        """The next rows, in order; they must follow those before. spans: runs that were on their nodes in that time."""
        for first in range(0, len(window.times), PIECE):
            yield from self._piece(window.part(first, first + PIECE), spans)

    def _piece(self, window: StorageWindow, spans: Sequence[Span]) -> Iterator[Row]:
        flows = self._maker.flows(window)
        wait = self._waiting.see(flows)
        lanes = self._lanes(flows, wait, spans)
        self._widen_slots(flows)
        for i, at in enumerate(flows.times.tolist()):
            if flows.slots is not None:
                self._slots = np.where(np.isnan(flows.slots[i]), self._slots, flows.slots[i])
            self._newest.append(_Seen(flows, wait, i))
            self._trace.add(flows, wait, i)
            self.last = at
            yield self._row(lanes, i, at)

    def _lanes(self, flows: Flows, wait: Wait | None, spans: Sequence[Span]) -> list[tuple[Span, Lane]]:
        """Of every run whose time overlaps the piece, on every mount that its nodes show."""
        first, last = int(flows.times[0]), int(flows.times[-1])
        columns = {name: i for i, name in enumerate(flows.nodes)}
        made = []
        for span in spans:
            mine = np.array([columns[n] for n in span.nodes if n in columns], dtype=np.intp)
            if span.start > last or (span.end is not None and span.end <= first) or not len(mine):
                continue
            for mount in range(len(flows.exports)):
                made.append((span, lane(flows, wait, mine, mount)))
        return made

    def _widen_slots(self, flows: Flows) -> None:
        shape = (len(flows.nodes), len(flows.exports))
        if self._slots.shape != shape:
            wide = np.full(shape, np.nan)
            wide[: self._slots.shape[0], : self._slots.shape[1]] = self._slots
            self._slots = wide

    # -- a row ---------------------------------------------------------------------------------------------------------

    def _row(self, lanes: Sequence[tuple[Span, Lane]], i: int, at: int) -> Row:
        running: dict[str, list[tuple[Tracker, Lane]]] = {}
        for span, cut in lanes:
            if span.start <= at and (span.end is None or at < span.end):
                tracker = self._tracker(span, cut.export)
                tracker.row(cut, i)
                running.setdefault(cut.export, []).append((tracker, cut))
        return Row(at, tuple(self._view(export, found, at) for export, found in running.items()))

    def _tracker(self, span: Span, export: str) -> Tracker:
        """A run's usual is that on as many nodes; each attempt goes on from there."""
        key = (span.session, len(span.nodes), export)
        if key not in self._trackers:
            self._trackers[key] = Tracker(span.session, self.numbers)
            self._attempts[key] = span.start
            self._trackers[key].began = span.start
        elif self._attempts[key] != span.start:
            self._attempts[key] = span.start
            self._trackers[key].begin(span.start)
        return self._trackers[key]

    # -- views and verdicts --------------------------------------------------------------------------------------------

    def _view(self, export: str, running: Sequence[tuple[Tracker, Lane]], at: int) -> StorageView:
        shown: list[SessionStorage] = [tracker.view() for tracker, _ in running]
        stalled = [(tracker, cut) for tracker, cut in running if tracker.rule is not None]
        if not stalled:
            self._open.pop(export, None)
            known = any(tracker.known for tracker, _ in running)
            return StorageView(export, tuple(shown), None, known, self._lately(export, running, at))
        self._stalled_at[export] = at
        stall = self._stall(export, stalled, at)
        return StorageView(export, tuple(shown), stall, True, self._lately(export, running, at))

    def _lately(self, export: str, running: Sequence[tuple[Tracker, Lane]], at: int) -> tuple[StoragePoint, ...]:
        """Only while it is of interest: a replay keeps rows by the thousand."""
        since = self._stalled_at.get(export)
        if since is None or at - since > self.numbers.judged_over:
            return ()
        nodes = dict.fromkeys(n for _, cut in running for n in cut.nodes)
        columns = np.array([self._maker.nodes.index(n) for n in nodes], dtype=np.intp)
        return self._trace.of(export, self._maker.exports.index(export), columns)

    def _stall(self, export: str, stalled: Sequence[tuple[Tracker, Lane]], at: int) -> Stall:
        rules: list[StallRule] = [t.rule for t, _ in stalled if t.rule is not None]
        rule = min(rules, key=ORDER.index)
        onset = min(t.onset for t, _ in stalled if t.onset is not None)
        case = self._case(export, stalled)
        verdict, node, measures = Judge(self.numbers, self.facts).judge(case)
        verdict, node = self._settled(export, onset, verdict, node, at)
        main = max(stalled, key=lambda pair: len(pair[1].nodes))[0]
        stall = Stall(
            export=export,
            rule=rule,
            verdict=verdict,
            onset=onset,
            node=node,
            usual=main.usual,
            measures=measures,
            beyond=tuple(sorted((t.session, t.beyond) for t, _ in stalled)),
        )
        self._open[export].stall = stall
        return stall

    def _settled(self, export: str, onset: int, verdict: Verdict, node: str, at: int) -> tuple[Verdict, str]:
        """Named as soon as it can be; then only another verdict that holds replaces it."""
        new = (verdict, node)
        known = self._open.get(export)
        if known is None or known.onset != onset:
            self._open[export] = _Open(onset, Stall(export, "hang", verdict, onset, node))
            return new
        old = (known.stall.verdict, known.stall.node)
        if new == old or verdict == "unknown":
            known.other = None
            return old
        if known.other != new:
            known.other, known.other_since = new, at
        if old[0] == "unknown" or at - known.other_since >= self.numbers.verdict_for:
            known.other = None
            return new
        return old

    def _case(self, export: str, stalled: Sequence[tuple[Tracker, Lane]]) -> Case:
        """The nodes of all runs that stall on it, over the newest samples."""
        main, _ = max(stalled, key=lambda pair: len(pair[1].nodes))
        nodes = tuple(dict.fromkeys(n for _, cut in stalled for n in cut.nodes))
        mount = self._maker.exports.index(export)
        course = main.load if main.load.current and not main.save.current else main.save
        names = LOAD if course is main.load else SAVE
        since = course.current.low_since if course.current and course.current.low_since else None
        rows = [s for s in self._newest if since is None or int(s.flows.times[s.row]) >= since]
        columns = np.array([self._maker.nodes.index(n) for n in nodes], dtype=np.intp)
        rows = [seen for seen in rows if _knows(seen.flows, columns, mount)] or rows[-1:]
        sums, mix, seconds = self._summed(rows, columns, mount)
        wait, row, alive = rows[-1].wait, rows[-1].row, self._alive(rows, mount)
        hung = {n for t, cut in stalled if t.hung is not None for n, bad in zip(cut.nodes, t.hung, strict=True) if bad}
        alone = len(stalled) == 1 and course.current is not None
        return Case(
            export=export,
            names=names,
            nodes=nodes,
            sums=sums,
            whole=course.current.sums if alone and course.current else {},
            seconds=seconds,
            mix=mix,
            usual=main.compared(course),
            hung=np.array([n in hung for n in nodes], dtype=bool),
            pending=wait.pending[row][columns, mount] if wait else np.zeros(len(nodes)),
            slots=self._slots[columns, mount],
            link=self._links(rows, columns, names),
            alive=alive[columns],
            elsewhere=bool(np.delete(alive, columns).any()),
        )

    def _summed(
        self, rows: Sequence[_Seen], columns: NDArray[np.intp], mount: int
    ) -> tuple[dict[str, Floats], dict[str, float], Floats]:
        """(name → (n,), operation → request time of all, seconds between the samples that made them (n,)). Added up in
        the order of the rows, so that pieces of another size give the very same."""
        sums: dict[str, list[Floats]] = {}
        mix: dict[str, list[Floats]] = {}
        seconds = []
        for flows, first, last in _runs(rows):
            here = slice(first, last)
            for name, values in flows.sums.items():
                sums.setdefault(name, []).append(values[here, columns, mount])
            if RETRANSMITTED in flows.hosts:
                sums.setdefault("lost", []).append(flows.hosts[RETRANSMITTED][here, columns])
            for name, values in flows.mix.items():
                mix.setdefault(name, []).append(values[here, columns, mount])
            seconds.append(np.nan_to_num(np.where(flows.fresh[here, columns], flows.elapsed[here, columns], 0.0)))
        return (
            {name: np.concatenate(parts).sum(axis=0) for name, parts in sums.items()},
            {name: float(np.concatenate(parts).sum(axis=0).sum()) for name, parts in mix.items()},
            np.maximum(np.concatenate(seconds).sum(axis=0), 1.0),
        )

    def _links(self, rows: Sequence[_Seen], columns: NDArray[np.intp], names: tuple[str, ...]) -> Floats:
        """Mean use of each node's busiest link, in the direction in which the data goes."""
        name = LINK_IN if names is LOAD else LINK_OUT
        found = [s.flows.hosts[name][s.row][columns] for s in rows if name in s.flows.hosts]
        if not found:
            return np.full(len(columns), np.nan)
        stacked = np.array(found)
        known = ~np.isnan(stacked)
        total = np.where(known, stacked, 0.0).sum(axis=0)
        return np.where(known.any(axis=0), total / np.maximum(known.sum(axis=0), 1), np.nan)

    def _alive(self, rows: Sequence[_Seen], mount: int) -> Flags:
        """(N,) nodes whose newest sample completed something."""
        wait, row = rows[-1].wait, rows[-1].row
        found = np.zeros(len(self._maker.nodes), dtype=bool)
        newest = [s for s in rows if self.last is not None and self.last - int(s.flows.times[s.row]) <= LATELY]
        for flows, first, last in _runs(newest):
            if "done" in flows.sums:
                found[: len(flows.nodes)] |= (flows.sums["done"][first:last, :, mount] > 0).any(axis=0)
        return found & (wait.samples[row][:, mount] == 0) if wait else found


def _knows(flows: Flows, columns: NDArray[np.intp], mount: int) -> bool:
    """Nodes and mounts that came later are not in what was measured before; they are added at the end."""
    shape = next((values.shape for values in flows.sums.values()), (0, 0, 0))
    return bool(shape[1] > columns.max(initial=-1) and shape[2] > mount)


def _runs(rows: Sequence[_Seen]) -> Iterator[tuple[Flows, int, int]]:
    """(piece, first row, row after the last) of rows in order."""
    first = 0
    for i, seen in enumerate(rows):
        if i + 1 == len(rows) or rows[i + 1].flows is not seen.flows:
            yield seen.flows, rows[first].row, seen.row + 1
            first = i + 1


def storage_day(
    window: StorageWindow,
    spans: Sequence[Span],
    numbers: StorageNumbers,
    facts: MountFacts | None = None,
) -> Iterator[Row]:
    """A recorded stretch at once: a row for each of its times, the same that a live watch would have seen."""
    return StorageWatch(numbers, facts or MountFacts()).feed(window, spans)
