"""Whether a run moves, and how fast: from what all its nodes show together. Pure; shapes as in score.py.

GPU_UTIL stays at 100 % in the usual hang, so that is no sign of work. What is: tensor cores that are active on any GPU,
bytes over the fabric, the trainer's own step. A run stands still while nothing of this moves on any of its nodes; one
GPU that works, as in an evaluation on one rank, is enough to move.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.model import Progress
from bot.policy import Policy
from bot.signals.peers import Groups, Stay
from bot.signals.phases import phases
from bot.signals.score import ENOUGH, Scores, words

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BUSIEST, ACTIVITY, FABRIC, STEP = "tensor_busiest", "tensor_activity", "fabric_bytes", "train_step"
USE, POWER, GETATTR = "gpu_utilisation", "gpu_power", "getattr_latency"
MUTED = ("start", "boot", "save", "load")
STANDS_OUT = frozenset(
    {"progress", "thermal", "power", "fabric", "bus", "nvlink"}
)  # categories in which a node holds the others up
LEAD = 0.10  # evidence by which one node must stand before the next to be named alone
SWING, SWINGS = 0.10, 0.2  # power that moves by a tenth in every fifth look is not flat: a GPU that waits draws evenly
STEPS = 5  # a rate needs as many steps: with fewer, where they fall decides it


@dataclass(frozen=True, slots=True)
class _Channel:
    """(T,) of one run. value: what is shown; moves: it does; known: enough of its nodes tell."""

    value: Floats
    moves: Flags
    known: Flags


@dataclass(frozen=True, slots=True)
class _Run:
    """phase: (T,) number in MUTED, -1 for none; speed: (T,) median of the nodes' tensor activity;
    power, use, getattr: the same of W, % and ms."""

    stay: Stay
    columns: NDArray[np.intp]
    channels: dict[str, _Channel]
    phase: NDArray[np.int8]
    speed: Floats
    power: Floats
    use: Floats
    getattr: Floats


class ProgressRows:
    """The rows of one block of scores, for these runs. at(row): no further back than one look sees."""

    def __init__(self, scores: Scores, stays: Iterable[Stay], policy: Policy) -> None:
        self._scores, self._policy, self._numbers = scores, policy, policy.numbers.progress
        self._rows = {signal.id: row for row, signal in enumerate(scores.window.signals)}
        self._runs = list(self._each(stays))

    def at(self, row: int) -> tuple[Progress, ...]:
        moment = int(self._scores.window.times[row])
        return tuple(self._progress(run, row) for run in self._runs if _covers(run.stay, moment))

    def worth_a_look(self, row: int) -> bool:
        """Something about a run may be decided: its level is learnt each `learn_every`, one that stands still is
        looked at each five minutes."""
        moment, step = int(self._scores.window.times[row]), self._scores.window.step
        running = [run for run in self._runs if _covers(run.stay, moment)]
        if running and moment % self._numbers.learn_every < step:
            return True
        return moment % 300 < step and any(not _moved(run, row - 300 // step, row) for run in running)

    # -- what is measured ----------------------------------------------------------------------------------------------

    def _each(self, stays: Iterable[Stay]) -> Iterator[_Run]:
        window = self._scores.window
        column = {node: number for number, node in enumerate(window.nodes)}
        muting = self._muting()
        for stay in stays:
            mine = np.array([column[node] for node in stay.nodes if node in column], dtype=np.intp)
            if len(mine):
                yield self._run(stay, mine, muting)

    def _muting(self) -> list[Flags]:
        window = self._scores.window
        groups = window.groups or Groups.none(*window.values.shape[1:])
        context = {name: window.values[row] for name, row in self._rows.items()}
        found = phases(context, groups, window.step, self._policy.numbers.phases)
        return [found[name] for name in MUTED]  # type: ignore[index]

    def _run(self, stay: Stay, columns: NDArray[np.intp], muting: Sequence[Flags]) -> _Run:
        phase = np.full(len(self._scores.window.times), -1, dtype=np.int8)
        for number, flags in reversed(list(enumerate(muting))):
            phase[flags[:, columns].any(axis=1)] = number
        channels = {BUSIEST: self._most(BUSIEST, columns, self._numbers.still_activity)}
        if len(stay.nodes) > 1:
            channels[FABRIC] = self._most(FABRIC, columns, self._numbers.still_bytes)
        channels[STEP] = self._step(columns)
        speed, power, use, getattr = (self._median(name, columns) for name in (ACTIVITY, POWER, USE, GETATTR))
        return _Run(stay, columns, channels, phase, speed, power, use, getattr)

    def _values(self, name: str, columns: NDArray[np.intp]) -> Floats:
        """(T, n). What a frozen exporter shows is old: nobody knows."""
        window = self._scores.window
        if name not in self._rows:
            return np.full((len(window.times), len(columns)), np.nan)
        values = window.values[self._rows[name]][:, columns]
        frozen = self._rows.get(f"{window.signals[self._rows[name]].exporter}_frozen")
        if frozen is None:
            return np.asarray(values)
        with np.errstate(invalid="ignore"):
            return np.where(window.values[frozen][:, columns] >= 1, np.nan, values)

    def _most(self, name: str, columns: NDArray[np.intp], still: float) -> _Channel:
        """It moves where any node does; that it does not needs enough of them to tell."""
        values = self._values(name, columns)
        there = ~np.isnan(values)
        most = np.where(there, values, -np.inf).max(axis=1)
        moves = most >= still
        return _Channel(most, moves, moves | (there.mean(axis=1) >= ENOUGH))

    def _step(self, columns: NDArray[np.intp]) -> _Channel:
        """The trainer's step, on whichever node it is told; it moves in the row in which it changes."""
        values = self._values(STEP, columns)
        there = ~np.isnan(values)
        known: Flags = np.asarray(there.any(axis=1))
        step = np.where(known, np.where(there, values, -np.inf).max(axis=1), np.nan)
        last = np.maximum.accumulate(np.where(known, np.arange(len(step)), -1))
        before = np.concatenate([[-1], last[:-1]])
        moves = known & (before >= 0) & (step != step[np.maximum(before, 0)])
        return _Channel(step, moves, known)

    def _median(self, name: str, columns: NDArray[np.intp]) -> Floats:
        """Of the nodes that tell, where enough of them do."""
        values = np.sort(self._values(name, columns), axis=1)  # NaN last
        count = (~np.isnan(values)).sum(axis=1, keepdims=True)
        last = np.maximum(count - 1, 0)
        low, high = (np.take_along_axis(values, place, 1) for place in (last // 2, (last + 1) // 2))
        return np.where(count >= ENOUGH * len(columns), (low + high) / 2, np.nan)[:, 0]

    # -- one row -------------------------------------------------------------------------------------------------------

    def _progress(self, run: _Run, row: int) -> Progress:
        times, step = self._scores.window.times, self._scores.window.step
        settle = -(-self._policy.numbers.phases.settle // step)  # before that, a phase that began earlier is not seen
        started = int(np.searchsorted(times, run.stay.start))
        first = max(row - self._scores.back + settle, started, 0)
        phase = MUTED[run.phase[row]] if run.phase[row] >= 0 else ""
        still = self._still(run, first, row) if not phase else None
        by = self._by(run, still, row) if still is not None else ()
        if still is not None and POWER not in by and self._swings(run, still, row):
            by, still = (), None
        level, level_of = self._level(run, first, row)
        straggler, why = self._straggler(run, row)
        moved = dict(self._moved(run, first, row))
        return Progress(
            run=run.stay.run,
            age=int(times[row]) - run.stay.start,
            phase=phase,
            measured=any(bool(c.known[first : row + 1].mean() >= ENOUGH) for c in run.channels.values()),
            moves=tuple(sorted(moved)),
            moved_at=max(moved.values(), default=None),
            idle_since=int(times[still]) if by and still is not None else None,
            by=by,
            signs=tuple(self._signs(run, by, row)),
            level=level,
            level_of=level_of,
            straggler=straggler,
            straggler_why=why,
        )

    def _still(self, run: _Run, first: int, row: int) -> int | None:
        """The row since which nothing has moved and no phase excused it."""
        breaks = run.phase[first : row + 1] >= 0
        for channel in run.channels.values():
            breaks |= channel.moves[first : row + 1]
        last = np.flatnonzero(breaks)
        since = first + (int(last[-1]) + 1 if len(last) else 0)
        return since if since <= row else None

    def _moved(self, run: _Run, first: int, row: int) -> Iterator[tuple[str, int]]:
        """(signal, when it moved last), outside of phases."""
        for name, channel in run.channels.items():
            rows = np.flatnonzero((channel.moves & (run.phase < 0))[first : row + 1])
            if len(rows):
                yield name, int(self._scores.window.times[first + rows[-1]])

    def _by(self, run: _Run, since: int, row: int) -> tuple[str, ...]:
        """What says so: what could be read in enough of these rows, the newest too."""
        told = {name: c.known[since : row + 1] for name, c in run.channels.items()}
        return tuple(name for name, known in told.items() if known[-2:].any() and known.mean() >= ENOUGH)

    def _swings(self, run: _Run, since: int, row: int) -> bool:
        power = run.power[since : row + 1]
        power = power[~np.isnan(power)]
        if len(power) < 8:
            return False
        return bool((np.abs(np.diff(power)) > SWING * power[:-1]).mean() >= SWINGS)

    def _level(self, run: _Run, first: int, row: int) -> tuple[float | None, str]:
        """The trainer's steps a minute, else the median tensor activity; only of rows without a phase."""
        step, span = run.channels[STEP], slice(first, row + 1)
        if step.known[span].mean() >= ENOUGH:
            rate = None if (run.phase[span] >= 0).any() else self._rate(step, first, row)
            return rate, "steps" if rate is not None else ""
        short = max(row - self._numbers.level_over // self._scores.window.step, first)
        speed = run.speed[short : row + 1]
        known = ~np.isnan(speed)
        if (run.phase[short : row + 1] >= 0).any() or known.mean() < ENOUGH or row - short < 4:
            return None, ""
        return round(float(speed[known].mean()), 4), "activity"

    def _rate(self, step: _Channel, first: int, row: int) -> float | None:
        """Between the first change and the last, so that it does not matter where the window cuts a step."""
        changes = first + np.flatnonzero(step.moves[first : row + 1])
        if len(changes) < STEPS:
            return None
        made = step.value[changes[-1]] - step.value[changes[0]]
        minutes = (self._scores.window.times[changes[-1]] - self._scores.window.times[changes[0]]) / 60
        return round(float(made / minutes), 4) if made > 0 else None

    def _straggler(self, run: _Run, row: int) -> tuple[str, str]:
        """(node, why) where one node alone stands out."""
        window, evidence = self._scores.window, self._scores.evidence
        mine = [s for s, signal in enumerate(window.signals) if signal.category in STANDS_OUT]
        told = np.nan_to_num(
            np.where(self._scores.bad[mine, row][:, run.columns], evidence[mine, row][:, run.columns], 0)
        )
        if not told.size or len(run.columns) < 2:
            return "", ""
        strongest = told.max(axis=0)
        second, best = np.sort(strongest)[-2:]
        if best <= 0 or best - second < LEAD:
            return "", ""
        place = int(strongest.argmax())
        signal, column = mine[int(told[:, place].argmax())], int(run.columns[place])
        peers = self._scores.usual[signal][row, column] if signal in self._scores.usual else np.nan
        value = float(self._scores.values[signal, row, column])
        return window.nodes[column], words(window.signals[signal], value, peers=float(peers))

    def _signs(self, run: _Run, by: Sequence[str], row: int) -> Iterator[tuple[str, str]]:
        """(signal, in words), what counts first; then what goes with the usual hang."""
        shown = {name: _newest(run.channels[name].value, row) for name in by}
        for name in by:
            yield name, _words(name, shown[name], len(run.columns))
        use, power, getattr = (_newest(values, row) for values in (run.use, run.power, run.getattr))
        if by and getattr is not None and getattr >= self._numbers.slow_getattr * 1000:
            yield GETATTR, f"its storage is slow: a GETATTR takes {getattr / 1000:.1f} s"
        if by and use is not None and use >= 50:
            yield USE, f"GPU use stays at {use:.0f} %"
        if by and power is not None:
            yield POWER, f"power flat at {power:.0f} W a GPU"


def _covers(stay: Stay, moment: int) -> bool:
    return stay.start <= moment and (stay.end is None or moment < stay.end)


def _moved(run: _Run, first: int, row: int) -> bool:
    span = slice(max(first, 0), row + 1)
    return any(bool(channel.moves[span].any()) for channel in run.channels.values())


def _newest(values: Floats, row: int) -> float | None:
    known = values[max(row - 4, 0) : row + 1]
    known = known[np.isfinite(known)]
    return float(known[-1]) if len(known) else None


def _words(name: str, value: float | None, nodes: int) -> str:
    if value is None:
        return name
    where = f"any of its {nodes} nodes" if nodes > 1 else "its node"
    if name == BUSIEST:
        return f"no tensor core is active on {where}" + (f" (at most {value:.3f})" if value >= 0.0005 else "")
    if name == FABRIC:
        return "nothing moves over the fabric" + (f" (at most {value / 1e6:.1f} MB/s a node)" if value >= 5e4 else "")
    return f"the trainer's step stays at {value:,.0f}"
