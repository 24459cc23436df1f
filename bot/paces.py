"""How a run gets on by its own measure: since when it stands still, what its usual level is, since when it is below it.

What one look sees becomes what is remembered of the run; the same look again changes nothing. Pure.
"""

from __future__ import annotations

from dataclasses import replace

from bot.model import Pace, Progress, Session
from bot.policy import ProgressNumbers

SHORT = 180  # s; a shorter standstill is a step, a small save, a log line: not worth a record
CHANGED = 0.02  # of the usual level; below that nothing new is known


def paced(session: Session, progress: Progress, excuse: str, at: int, numbers: ProgressNumbers) -> Pace:
    """The run's pace after this look. excuse: why it may stand still now, empty = nothing explains it."""
    pace = _of(session.pace or Pace(progress.run), progress.run)
    pace = _excused(pace, excuse) if excuse else _stood(pace, session, progress, at, numbers)
    if progress.idle_since is not None:
        return replace(pace, slow_since=None)
    return pace if excuse else _learnt(pace, progress, at, numbers)


def _of(pace: Pace, attempt: str) -> Pace:
    """Another attempt does the same work: its level and its pauses are known, nothing else is."""
    if pace.attempt == attempt:
        return pace
    kept = Pace(attempt, usual=pace.usual, level_of=pace.level_of, pause=pace.pause)
    return replace(kept, learnt=pace.learnt if pace.usual is not None else None)


def _excused(pace: Pace, excuse: str) -> Pace:
    return replace(pace, excused=pace.excused or excuse, idle_since=None)


def _stood(pace: Pace, session: Session, progress: Progress, at: int, numbers: ProgressNumbers) -> Pace:
    """Since when it stands still, if it does. A save that was completed is progress too."""
    if pace.excused:
        pace = replace(pace, excused="", counts_from=at)
    pace = replace(pace, moved=tuple(sorted({*pace.moved, *progress.moves})))
    pace = _got_out(pace, progress, numbers)
    since, saved = progress.idle_since, session.checkpoint.completed if session.checkpoint else None
    if since is not None and saved is not None and saved > max(since, pace.counts_from):
        pace = replace(pace, counts_from=saved, idle_since=None)
    if pace.idle_since is None and since is not None and at - max(since, pace.counts_from) >= SHORT:
        pace = replace(pace, idle_since=max(since, pace.counts_from))
    return pace


def _got_out(pace: Pace, progress: Progress, numbers: ProgressNumbers) -> Pace:
    """It moved again by itself, and how long it had not is known from now on."""
    if pace.idle_since is None or progress.moved_at is None or progress.moved_at <= pace.idle_since:
        return pace
    lasted = min(progress.moved_at - pace.idle_since, numbers.pause_most)
    return replace(pace, idle_since=None, pause=max(pace.pause, lasted))


def _learnt(pace: Pace, progress: Progress, at: int, numbers: ProgressNumbers) -> Pace:
    level = progress.level
    if level is None or not progress.moves or level <= 0:
        return pace
    if pace.usual is None or pace.level_of != progress.level_of:
        little = progress.level_of == "activity" and level < numbers.learn_least
        if little or progress.age < numbers.learn_after:
            return pace
        return replace(pace, usual=level, level_of=progress.level_of, learnt=at, slow_since=None)
    if level < pace.usual * _line(progress, numbers):
        return _slow(pace, level, at, numbers)
    if pace.slow_since is not None:
        return replace(pace, slow_since=None) if level >= pace.usual * numbers.slow_recovered else pace
    usual = round(pace.usual + (level - pace.usual) / 4, 4)
    due = at - (pace.learnt or 0) >= numbers.learn_every
    return replace(pace, usual=usual, learnt=at) if due and abs(usual - pace.usual) > CHANGED * pace.usual else pace


def _slow(pace: Pace, level: float, at: int, numbers: ProgressNumbers) -> Pace:
    if pace.slow_since is None:
        return replace(pace, slow_since=at)
    if at - pace.slow_since >= numbers.accepted_after:
        return replace(pace, usual=level, learnt=at, slow_since=None)
    return pace


def _line(progress: Progress, numbers: ProgressNumbers) -> float:
    return numbers.slow_straggler if progress.straggler else numbers.slow
