"""Alarms against the truth. Pure.

Detected: an alarm begins on the node from 24 h before a failure to 5 min after its start, 30 min where it has no code.
Early: in the failure's category, and so long before that a save fits in. False: an alarm that would be posted and
condemns or warns of hardware, with no failure of that node from 24 h before it began until its end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from statistics import fmean, median

from bot.backtest import Alarm
from bot.backtest_files import Label, StorageLabel

HOUR, DAY = 3600, 86_400
BEFORE = DAY
AFTER, AFTER_SILENT = 300, 1800  # s; without a code it takes longer until anybody knows
MERGED = 1800  # s; alarms of one node that are closer are one
SAVE_EVERY, SAVE_TAKES = 2700, 300  # s, where no save is known
SHIFTS = 100  # random offsets: enough for the second digit of an average
HARDWARE = frozenset({"gpu_fault", "precursor"})


@dataclass(frozen=True, slots=True)
class Found:
    """One failure. lead_s: from the first alarm to its start, negative = after it; None = not detected."""

    label: Label
    alarm: Alarm | None
    early: bool

    @property
    def lead_s(self) -> int | None:
        return None if self.alarm is None else self.label.start - self.alarm.start


@dataclass(frozen=True, slots=True)
class StallFound:
    """One true stall and the first alarm within it."""

    label: StorageLabel
    alarm: Alarm | None

    @property
    def right(self) -> bool:
        found = self.alarm
        return found is not None and (found.category, found.node) == (self.label.verdict, self.label.node)


@dataclass(frozen=True, slots=True)
class Report:
    days: float
    found: tuple[Found, ...]
    false: tuple[Alarm, ...]
    alarms: tuple[Alarm, ...]
    chance: float
    peak_held: int
    stopped: Mapping[str, int]
    stalls: tuple[StallFound, ...] = ()

    @property
    def detected(self) -> list[Found]:
        return [found for found in self.found if found.alarm]

    def as_json(self) -> dict[str, object]:
        leads = [found.lead_s for found in self.detected if found.lead_s is not None]
        figures: dict[str, object] = {
            "failures": len(self.found),
            "detected": len(self.detected),
            "early": sum(found.early for found in self.found),
            "median_lead_s": median(leads) if leads else None,
            "false_per_day": round(len(self.false) / self.days, 3),
            "messages_per_day": round(len(self.alarms) / self.days, 3),
            "chance_detected": round(self.chance, 2),
            "alarmed_node_hours": round(alarmed_seconds(self.alarms) / HOUR, 1),
            "peak_held": self.peak_held,
            "stopped": dict(self.stopped),
            "per_category": self._per_category(),
        }
        return figures | ({"storage": self._storage()} if self.stalls else {})

    def _storage(self) -> dict[str, int]:
        """stalls that were true, those that were found at all, those whose verdict (and node) was right, and alarms of
        a stall where there was none."""
        told = [alarm for alarm in self.alarms if alarm.kind == "checkpoint_stall"]
        labels = [found.label for found in self.stalls]
        return {
            "stalls": len(self.stalls),
            "found": sum(found.alarm is not None for found in self.stalls),
            "right": sum(found.right for found in self.stalls),
            "false": sum(not any(_overlap(alarm, label) for label in labels) for alarm in told),
        }

    def _per_category(self) -> dict[str, dict[str, int]]:
        names = sorted({f.label.category for f in self.found} | {alarm.category for alarm in self.false})
        return {
            name: {
                "failures": sum(f.label.category == name for f in self.found),
                "detected": sum(f.label.category == name for f in self.detected),
                "early": sum(f.label.category == name and f.early for f in self.found),
                "false": sum(alarm.category == name for alarm in self.false),
            }
            for name in names
        }


def report(
    alarms: Sequence[Alarm],
    labels: Sequence[Label],
    start: int,
    end: int,
    step: int,
    *,
    peak_held: int = 0,
    stopped: Mapping[str, int] | None = None,
    saves: Mapping[str, Sequence[int]] | None = None,
    stalls: Sequence[StorageLabel] = (),
) -> Report:
    """labels: those that begin within the range are counted. saves: node → when its session's saves completed."""
    inside = [label for label in labels if start <= label.start < end]
    return Report(
        days=(end - start) / DAY,
        found=tuple(_found(label, alarms, step, (saves or {}).get(label.node)) for label in inside),
        false=tuple(alarm for alarm in merged(alarms) if not any(_explains(label, alarm, end) for label in labels)),
        alarms=tuple(alarms),
        chance=_by_chance(alarms, inside, start, end),
        peak_held=peak_held,
        stopped=stopped or {},
        stalls=tuple(_stall_found(label, alarms) for label in stalls if start <= label.start < end),
    )


def _stall_found(label: StorageLabel, alarms: Iterable[Alarm]) -> StallFound:
    mine = [alarm for alarm in alarms if alarm.kind == "checkpoint_stall" and _overlap(alarm, label)]
    return StallFound(label, min(mine, key=lambda alarm: alarm.start, default=None))


def _overlap(alarm: Alarm, label: StorageLabel) -> bool:
    """A stall is known as one when its save takes too long, perhaps shortly after its cause has ended."""
    return alarm.start <= (label.end or alarm.start) + MERGED and alarm.end >= label.start


def merged(alarms: Iterable[Alarm], apart: int = MERGED) -> list[Alarm]:
    """Alarms about a node's hardware, those of one node with no more than this between them as one: the first's, with
    the highest score."""
    found: list[Alarm] = []
    for alarm in sorted((a for a in alarms if a.kind in HARDWARE), key=_order):
        last = found[-1] if found else None
        if last and last.node == alarm.node and alarm.start - last.end <= apart:
            found[-1] = replace(last, end=max(last.end, alarm.end), score=max(last.score, alarm.score))
        else:
            found.append(alarm)
    return found


def _order(alarm: Alarm) -> tuple[str, int, str, str]:
    """Of two that begin together the same one comes first, in whatever order they were told."""
    return alarm.node, alarm.start, alarm.kind, alarm.category


def alarmed_seconds(alarms: Iterable[Alarm]) -> int:
    """Node time under an alarm about the node, each moment once and the time between two alarms not at all."""
    return sum(alarm.end - alarm.start for alarm in merged(alarms, apart=0))


def _found(label: Label, alarms: Iterable[Alarm], step: int, saves: Sequence[int] | None) -> Found:
    mine = sorted((alarm for alarm in alarms if _detects(alarm, label)), key=lambda alarm: alarm.start)
    same = [alarm for alarm in mine if alarm.category == label.category]
    early = any(_a_save_fits(alarm.start + step, label.start, saves) for alarm in same)
    return Found(label, mine[0] if mine else None, early)


def _detects(alarm: Alarm, label: Label) -> bool:
    after = AFTER if label.xid else AFTER_SILENT
    return alarm.node == label.node and label.start - BEFORE <= alarm.start <= label.start + after


def _a_save_fits(since: int, until: int, saves: Sequence[int] | None) -> bool:
    """A save that began after the one moment has completed before the other."""
    if saves is None:
        return until - since >= SAVE_EVERY + SAVE_TAKES
    return any(since + SAVE_TAKES <= save < until for save in saves)


def _explains(label: Label, alarm: Alarm, end: int) -> bool:
    after = AFTER if label.xid else AFTER_SILENT
    last = max(label.end if label.end is not None else end, label.start + after)
    return alarm.node == label.node and label.start - BEFORE <= alarm.start <= last


def _by_chance(alarms: Sequence[Alarm], labels: Sequence[Label], start: int, end: int) -> float:
    """How many of the same failures would be detected had they been at any other time."""
    dice = Random(end - start)
    if not labels or end <= start:
        return 0.0

    def shifted() -> int:
        by = dice.randrange(end - start)
        moved = [replace(label, start=start + (label.start - start + by) % (end - start)) for label in labels]
        return sum(any(_detects(alarm, label) for alarm in alarms) for label in moved)

    return fmean(shifted() for _ in range(SHIFTS))
