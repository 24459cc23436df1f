"""Saves that are late by what trainers, pushes and directories tell, where no file system's counters show the run's
saves: any file system. Pure; all that is known stands in the histories of saves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from bot.model import KnownSave, Measures, Observation, Session, SessionStorage, Stall, StallRule, StorageView
from bot.state import State
from bot.storage.numbers import StorageNumbers
from bot.storage.past import spread

NEEDED = "the storage clients' counters (for NFS: node_exporter's mountstats collector)"


@dataclass(frozen=True, slots=True)
class Usual:
    """What the run's saves have in common. gap: from one's end to the next one's; seconds: of a save. None: there is no
    rhythm; nobody tells when saves begin."""

    gap: float | None
    seconds: float | None


def told_views(state: State, seen: Observation, numbers: StorageNumbers) -> Iterator[StorageView]:
    """One for each run whose saves somebody still tells of and no counters show, or showed when it stalled. Its name
    stands for the mount."""
    told = {(incident.kind, incident.subject) for incident in state.open_incidents()}
    shown = {run.session for view in seen.storage for run in view.sessions if run.cadence or run.stalled}
    heard = {session.key for save in seen.saves if (session := state.session_of(save.job))}
    for session in state.live_sessions():
        ours = session.key not in shown or ("checkpoint_stall", session.name) in told
        runs = session.latest is not None and session.latest.state == "RUNNING"
        if session.key in heard and ours and runs and ("session_hung", session.name) not in told:
            yield _view(session, state.saves_of(session.key).saves, seen.at, numbers)


def _view(session: Session, saves: Sequence[KnownSave], at: int, numbers: StorageNumbers) -> StorageView:
    told = [save for save in saves if save.sources != ("counters",) and save.at <= at]
    usual = _usual(session, told, numbers)
    rule, onset = _late(session, told, usual, at, numbers)
    last = _last_late(session, told, usual, numbers)
    normal = [save for save in told if _done(save) and save.at > (last.at if last else 0)]
    run = SessionStorage(
        session=session.key,
        phase="quiet" if not told or _done(told[-1]) else "save",
        stalled=rule or "",
        onset=onset,
        usual=_whole(usual.gap if rule == "overdue_save" else usual.seconds),
        beyond=at - onset if onset is not None else 0,
        normal_saves=len(normal),
        calm_since=last.at if last else None,
        cadence=usual.gap is not None,
    )
    return StorageView(session.name, (run,), _stall(session, run) if rule else None)


def _stall(session: Session, run: SessionStorage) -> Stall:
    assert run.stalled and run.onset is not None
    nodes = len(session.latest.nodes) if session.latest else 0
    known = Measures(nodes=nodes, missing=(NEEDED,))
    beyond = ((session.key, run.beyond),)
    return Stall(session.name, run.stalled, "unknown", run.onset, usual=run.usual, measures=known, beyond=beyond)


# -- what is usual -----------------------------------------------------------------------------------------------------


def _usual(session: Session, told: Sequence[KnownSave], numbers: StorageNumbers) -> Usual:
    gaps = [gap for _, gap in _gaps(session, told)][-numbers.kept :]
    lengths = [save.seconds for save in told if save.seconds is not None][-numbers.kept :]
    gap, seconds = _normal(gaps, numbers.overdue), _normal(lengths, numbers.late)
    even = len(gap) >= numbers.known_after - 1 and spread(gap) <= numbers.regular
    return Usual(
        gap=float(np.percentile(gap, 90)) if even else None,
        seconds=float(np.percentile(seconds, 90)) if len(seconds) >= numbers.known_after else None,
    )


def _normal(lengths: Sequence[int], most: float) -> list[int]:
    """Without the late ones: a stall of the past is not usual."""
    middle = float(np.median(lengths)) if lengths else 0.0
    return [length for length in lengths if length <= most * middle]


def _done(save: KnownSave) -> bool:
    """A save that is told without any time is told when it is complete."""
    return save.ended is not None or save.started is None


def _gaps(session: Session, told: Sequence[KnownSave]) -> Iterator[tuple[KnownSave, int]]:
    """(save, seconds since the one before it). What lies between two attempts is no gap between saves."""
    starts = [attempt.start for attempt in session.attempts if attempt.start is not None]
    for before, save in pairwise(save for save in told if _done(save)):
        if not any(before.at < start <= save.at for start in starts):
            yield save, save.at - before.at


def _whole(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds)


# -- what is late ------------------------------------------------------------------------------------------------------


def _late(
    session: Session, told: Sequence[KnownSave], usual: Usual, at: int, numbers: StorageNumbers
) -> tuple[StallRule | None, int | None]:
    """The rule that holds now, and since when. An attempt that has not saved yet owes no save."""
    began = session.latest.start if session.latest else None
    mine = [save for save in told if began is not None and save.at >= began]
    if not mine:
        return None, None
    newest = mine[-1]
    if newest.started is not None and not _done(newest):
        due = newest.started + round(_limit(usual, numbers))
        return ("slow_save", due) if usual.seconds is not None and at >= due else (None, None)
    due = newest.at + round(numbers.overdue * (usual.gap or 0))
    return ("overdue_save", due) if usual.gap is not None and at >= due + numbers.settle else (None, None)


def _limit(usual: Usual, numbers: StorageNumbers) -> float:
    return max(numbers.late * (usual.seconds or 0), float(numbers.least))


def _last_late(session: Session, told: Sequence[KnownSave], usual: Usual, numbers: StorageNumbers) -> KnownSave | None:
    """The newest save that came or took too long."""
    late = [save for save, gap in _gaps(session, told) if usual.gap is not None and gap > numbers.overdue * usual.gap]
    slow = [s for s in told if s.seconds is not None and usual.seconds and s.seconds > _limit(usual, numbers)]
    return max((*late, *slow), key=lambda save: save.at, default=None)
