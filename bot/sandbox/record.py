"""What a simulated Prometheus would have scraped: moments and spells, from which every metric's value at any time
follows. Nothing is sampled, so the past and what is already certain of the future are read alike."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

Moment = Literal["xid", "correctable", "uncorrectable", "double_bit"]
State = Literal["gpus_lost", "exporter_down", "silent", "remap_failed", "blind"]
EVERYWHERE = ""  # the node of a spell that concerns all of them


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened to a GPU. value: the Xid's code, or by how much a counter rose."""

    what: Moment
    node: str
    at: int
    value: float
    gpu: int = 0


@dataclass(frozen=True, slots=True)
class Spell:
    """Something that holds from `start` until `end` (not included); None: until somebody ends it."""

    what: State
    node: str
    start: int
    end: int | None = None
    value: float = 1

    def covers(self, at: int) -> bool:
        return self.start <= at and (self.end is None or at < self.end)


@dataclass
class Record:
    """version rises with every change: whoever looked ahead must look again."""

    marks: list[Mark] = field(default_factory=list)
    spells: list[Spell] = field(default_factory=list)
    version: int = 0

    def mark(self, what: Moment, node: str, at: int, value: float, gpu: int = 0) -> None:
        self.marks.append(Mark(what, node, at, value, gpu))
        self.version += 1

    def spell(self, what: State, node: str, start: int, end: int | None = None, value: float = 1) -> None:
        self.spells.append(Spell(what, node, start, end, value))
        self.version += 1

    def heal(self, node: str, at: int) -> None:
        """Repaired and booted: its counters and gauges begin anew, what held of it ends."""
        self.marks = [m for m in self.marks if m.node != node]
        self.spells = [replace(s, end=at) if s.node == node and s.covers(at) else s for s in self.spells]
        self.version += 1

    def forget(self, before: int) -> None:
        """Drop what no metric can show any more."""
        self.marks = [m for m in self.marks if m.at >= before]
        self.spells = [s for s in self.spells if s.end is None or s.end >= before]

    def during(self, what: State, at: int, node: str = EVERYWHERE) -> bool:
        return any(s.what == what and s.node == node and s.covers(at) for s in self.spells)
