"""Whether a run gets on, and how fast."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Progress:
    """How one attempt gets on, by what all its nodes show together. run: the attempt's id; age: s since it began.
    phase: start, boot, save, load, empty = none. measured: enough was known to tell. moves: the signals that moved
    lately, moved_at: the last of them. idle_since: since when nothing has moved (the look back's begin at the latest),
    told by `by`; None = it moves, is in a phase, or nobody knows. pause: its log has been as silent before, for so
    long (s). signs: (signal, in words). level: steps a minute or
    tensor activity (level_of `steps`, `activity`), None = not known. straggler: the one node that stands out."""

    run: str
    age: int
    phase: str = ""
    measured: bool = False
    moves: tuple[str, ...] = ()
    moved_at: int | None = None
    idle_since: int | None = None
    by: tuple[str, ...] = ()
    signs: tuple[tuple[str, str], ...] = ()
    pause: int = 0
    level: float | None = None
    level_of: str = ""
    straggler: str = ""
    straggler_why: str = ""


@dataclass(frozen=True, slots=True)
class LogGrowth:
    """How an attempt (run: its id) gets on by its log, as it was at `looked`. moved: when it told a new step, or where
    it tells no steps (step None) was written, last. times: how often it did since it is followed; longest: the longest
    time (s) between."""

    run: str
    looked: int
    moved: int
    times: int
    longest: int
    step: int | None = None


@dataclass(frozen=True, slots=True)
class Pace:
    """What is known of how a run gets on. attempt: for which `moved`, `idle_since` and `slow_since` are true. moved:
    the signals that have moved in it. usual: the learnt level, of what level_of says; learnt: when. pause: the longest
    standstill (s) that it got out of by itself. counts_from: what stood still before that is explained. excused: by
    what, while it is."""

    attempt: str
    moved: tuple[str, ...] = ()
    usual: float | None = None
    level_of: str = ""
    learnt: int | None = None
    pause: int = 0
    counts_from: int = 0
    excused: str = ""
    idle_since: int | None = None
    slow_since: int | None = None
