"""A run's saves as people read them: aligned text, the newest last. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from bot.model import KnownSave, SaveHistory, Session
from bot.saves import durations, gaps, quantile

NOT_TOLD = "–"
HEAD = ("start", "end", "step", "size", "took", "gap", "whole", "told by")
SIZES = (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3))


def told(session: Session, history: SaveHistory, tz: str, last: int, under_way: Iterable[KnownSave] = ()) -> str:
    """last: rows shown. under_way: saves that have not ended. Times are those of tz."""
    if not history.saves:
        return f"{session.name}: no save is known; not measured, or none was made yet."
    saves = (*history.saves, *under_way)
    rows = list(_rows(saves, ZoneInfo(tz)))[-last:]
    return f"{summary(session, history)}\n{_table([HEAD, *rows])}\ntimes in {tz}; – = nobody told"


def summary(session: Session, history: SaveHistory) -> str:
    """`session-123: 200 saves known, took median 2 min, p90 4 min, every 30 min`."""
    took, between = durations(history.saves), [g for g in gaps(history.saves) if g is not None]
    parts = [f"{len(history.saves)} save{'s' if len(history.saves) > 1 else ''} known"]
    if took:
        parts.append(f"took median {seconds(quantile(took, 0.5))}, p90 {seconds(quantile(took, 0.9))}")
    else:
        parts.append("durations not measured")
    parts += [f"one every {seconds(quantile(between, 0.5))}"] if between else []
    slow = sum(s.slow for s in history.saves)
    parts += [f"{slow} of them stalled"] if slow else []
    return f"{session.name}: {', '.join(parts)}"


def as_json(session: Session, history: SaveHistory) -> dict[str, Any]:
    """Times are Unix seconds, durations seconds; null = nobody told."""
    took = durations(history.saves)
    return {
        "session": session.name,
        "median_s": quantile(took, 0.5),
        "p90_s": quantile(took, 0.9),
        "saves": [_json(s, gap) for s, gap in zip(history.saves, gaps(history.saves), strict=True)],
    }


def _json(s: KnownSave, gap: int | None) -> dict[str, Any]:
    facts = {name: getattr(s, name) for name in ("started", "ended", "step", "bytes", "seconds")}
    return {**facts, "gap": gap, "completed": is_whole(s), "slow": s.slow, "sources": list(s.sources)}


def is_whole(save: KnownSave) -> bool | None:
    """None where only the counters tell: they see bytes, not whether the last one arrived."""
    return None if save.sources == ("counters",) else save.completed


def _rows(saves: Sequence[KnownSave], zone: ZoneInfo) -> Iterator[tuple[str, ...]]:
    for s, gap in zip(saves, gaps(saves), strict=True):
        yield (
            _clock(s.started, zone),
            _clock(s.ended, zone) if s.ended is not None or s.completed else "under way" if not s.number else NOT_TOLD,
            f"{s.step:,}" if s.step is not None else NOT_TOLD,
            size(s.bytes),
            seconds(s.seconds) + (" !" if s.slow else ""),
            seconds(gap),
            {True: "yes", False: "no", None: NOT_TOLD}[is_whole(s)],
            ", ".join(s.sources),
        )


def _clock(at: int | None, zone: ZoneInfo) -> str:
    return f"{datetime.fromtimestamp(at, zone):%d %b %H:%M:%S}" if at is not None else NOT_TOLD


def _table(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows)


def size(count: float | None) -> str:
    """`1.4 TB`."""
    if count is None:
        return NOT_TOLD
    return next((f"{count / unit:,.1f} {name}" for name, unit in SIZES if count >= unit), f"{count:.0f} B")


def seconds(value: float | None) -> str:
    """`45 s`, `2:05 min`, `3 h 10 min`: seconds matter for a save, and not for a gap of hours."""
    if value is None:
        return NOT_TOLD
    whole = round(value)
    if whole < 120:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    minutes = round(value / 60)
    return f"{minutes // 60} h {minutes % 60} min"
