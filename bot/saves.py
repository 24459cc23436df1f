"""Every save of a run, told by whoever tells: one row each, however many sources tell of it. Pure.

A source tells the same save again at every look and after a restart, so what is known already is never recorded again.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import get_args

from bot import events as ev
from bot.errors import UsageError
from bot.model import JobSave, KnownSave, Observation, SaveHistory, SaveSource, Session
from bot.policy import Policy
from bot.state import Draft, State

ONE_SAVE = 600  # s: two clocks and two ways to look at one save differ by less; a save made again comes later
SAME_TELLER = 30  # s: ranks that each tell of one save; nobody saves that often
RANK = {source: i for i, source in enumerate(get_args(SaveSource))}

Batch = tuple[str, SaveSource, Iterable[KnownSave]]


def see_saves(draft: Draft, seen: Observation, policy: Policy) -> None:
    """What is new in what each source tells."""
    near, kept = policy.storage.least, policy.storage.saves_kept
    for session, source, newest_first in _told(draft.state, seen):
        for save in newest_first:
            if not _see(draft, session, source, replace(save, sources=(source,), seen=draft.at), near, kept):
                break  # a source tells in order: what is older was recorded with it


def _told(state: State, seen: Observation) -> Iterator[Batch]:
    """Batches of one source for one session (and mount), the newest save first."""
    told: dict[tuple[str, SaveSource], list[KnownSave]] = {}
    for item in seen.saves or _newest(seen):
        session = state.session_of(item.job)
        if session:
            told.setdefault((session.key, item.save.sources[0]), []).append(item.save)
    for (key, source), saves in told.items():
        yield key, source, sorted(saves, key=lambda s: s.at, reverse=True)
    for view in seen.storage:
        for run in view.sessions if view.known else ():
            if state.find(Session, run.session):
                bursts = (b for b in reversed(run.saves) if b.end is not None)
                yield (
                    run.session,
                    "counters",
                    (KnownSave(b.start, b.end, bytes=int(b.bytes), slow=b.slow) for b in bursts),
                )


def _newest(seen: Observation) -> Iterator[JobSave]:
    """Where nobody tells more than the newest checkpoint of each job."""
    for c in seen.checkpoints:
        yield JobSave(c.job, KnownSave(c.started, c.completed, c.step, completed=True, sources=("trainer",)))


def _see(draft: Draft, session: str, source: SaveSource, told: KnownSave, near: int, kept: int) -> bool:
    """Whether it is news of this round."""
    history = draft.state.saves_of(session)
    rows = _rows_of(history, told, source, near)
    if not rows:
        if len(history.saves) >= kept and told.at <= history.saves[0].at:
            return False
        draft.emit(ev.SaveSeen(draft.at, session, replace(told, number=history.made + 1), kept))
        return True
    row, gone = rows[0], tuple(r.number for r in rows[1:] if _is_part(r, told))
    known = _merged(row, told, source)
    if known == row and not gone:
        return row.seen == draft.at
    draft.emit(ev.SaveSeen(draft.at, session, known, kept, gone))
    return True


# -- which are one ------------------------------------------------------------------------------------------------


def _rows_of(history: SaveHistory, told: KnownSave, source: SaveSource, near: int) -> list[KnownSave]:
    """The rows that are this save: first those that this source told itself, then the nearest."""
    if told.started is None and told.ended is None:
        last = next((r for r in reversed(history.saves) if source in r.sources), None)
        if last and last.step == told.step:
            return [last]
    first = _span(told)[0] - ONE_SAVE
    found = []
    for row in reversed(history.saves):
        if row.at < first:
            break
        if _is_same(row, told, source, near):
            found.append(row)
    return sorted(found, key=lambda r: (source not in r.sources, abs(r.at - told.at)))


def _span(save: KnownSave) -> tuple[int, int]:
    low, high = save.started or save.at, save.at
    return min(low, high), high


def _is_same(row: KnownSave, told: KnownSave, source: SaveSource, near: int) -> bool:
    if row.step is not None and told.step is not None:
        return row.step == told.step and _is_close(row, told)
    slack = SAME_TELLER if source in row.sources else near
    (first, last), (begins, ends) = _span(row), _span(told)
    return begins <= last + slack and first <= ends + slack


def _is_close(one: KnownSave, other: KnownSave) -> bool:
    """By their ends, or by their beginnings while one of them is under way."""
    if one.ended is not None and other.ended is not None:
        return abs(one.ended - other.ended) <= ONE_SAVE
    if one.started is not None and other.started is not None:
        return abs(one.started - other.started) <= ONE_SAVE
    return abs(one.at - other.at) <= ONE_SAVE


def _is_part(row: KnownSave, told: KnownSave) -> bool:
    """A burst within the time of a save that is told: its writes paused."""
    (first, last), (begins, ends) = _span(row), _span(told)
    return row.sources == ("counters",) and told.sources != ("counters",) and begins <= last and first <= ends


def _merged(row: KnownSave, told: KnownSave, source: SaveSource) -> KnownSave:
    """The better source's word, its gaps filled by the other; what the same source tells again changes nothing."""
    better = source not in row.sources and RANK[source] < RANK[row.sources[0]]
    one, other = (told, row) if better else (row, told)
    whole = next((s for s in (one, other) if s.completed), one)
    ended = whole.ended if whole.ended is not None else _first(one.ended, other.ended)
    sources = tuple(sorted({*row.sources, source}, key=lambda s: RANK[s]))
    return KnownSave(
        started=next(
            (s for s in (one.started, other.started) if s is not None and (ended is None or s <= ended)), None
        ),
        ended=ended,
        step=_first(one.step, other.step),
        bytes=_first(one.bytes, other.bytes),
        completed=row.completed or told.completed,
        slow=row.slow or told.slow,
        sources=sources,
        number=row.number,
        seen=row.seen,
    )


def _first(one: int | None, other: int | None) -> int | None:
    return one if one is not None else other


# -- looks ---------------------------------------------------------------------------------------------------------


def quantile(values: Iterable[float], share: float) -> float | None:
    """Between the two nearest; None without a value."""
    found = sorted(values)
    if not found:
        return None
    place = share * (len(found) - 1)
    low = int(place)
    high = min(low + 1, len(found) - 1)
    return found[low] + (found[high] - found[low]) * (place - low)


def durations(saves: Iterable[KnownSave]) -> list[int]:
    return [s.seconds for s in saves if s.seconds is not None]


def gaps(saves: Sequence[KnownSave]) -> list[int | None]:
    """Seconds from the save before to each, start to start, or end to end where a start is not told."""
    return [None, *(_gap(a, b) for a, b in zip(saves, saves[1:], strict=False))][: len(saves)]


def _gap(before: KnownSave, save: KnownSave) -> int | None:
    for a, b in ((before.started, save.started), (before.ended, save.ended)):
        if a is not None and b is not None:
            return b - a
    return None


def run_named(state: State, word: str) -> Session:
    """`session-123` or one of a run's job ids, ended or not; of several the newest. Raises UsageError."""
    job = word.removeprefix("session-")
    found = [s for s in state.all(Session) if word in (s.name, s.key) or job in s.jobs]
    if found:
        return max(found, key=lambda s: (s.ended_at is None, s.first_submit))
    names = sorted({s.name for s in state.all(Session)})
    near = difflib.get_close_matches(word, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"known are {', '.join(names[-5:]) or 'none yet'}"
    raise UsageError(f"no run `{word[:60]}` is known", hint)
