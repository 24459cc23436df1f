"""Times as others write them, as Unix seconds. Pure."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone, tzinfo

AHEAD = 2 * 86_400  # s: no time zone, and hardly a clock, is further ahead of another

Hms = tuple[int, int, int]


def rfc3339(text: str, other: str = "") -> float:
    """Raises ValueError for what is none, and without a zone: nobody knows which is meant. other: what would do too."""
    try:
        found = datetime.fromisoformat(text.upper())
    except ValueError as error:
        raise ValueError(f"{text[:40]!r} is no time; write 2026-11-30T20:35:01Z{other}") from error
    if found.tzinfo is None:
        raise ValueError(f"{text[:40]!r} names no time zone; append Z or an offset such as +09:00")
    return found.timestamp()


def offset(text: str) -> tzinfo | None:
    """`Z`, `UTC`, `GMT`, `+09:00`, `-0330`; None for a zone's other names, and for what is none."""
    if text in ("Z", "UTC", "GMT"):
        return UTC
    if text[:1] not in ("+", "-"):
        return None
    away = timedelta(hours=int(text[1:3]), minutes=int(text[-2:]))
    return timezone(away if text[0] == "+" else -away) if away < timedelta(days=1) else None


def moment(year: int | None, month: int, day: int, clock: Hms, near: int, zone: tzinfo) -> int | None:
    """Without a year, and within the hour that the clock is set back over: whichever lies nearest to `near`. What would
    lie further ahead than clocks differ is of a year before, because a log that nobody rotates reaches back that far.
    None for a day that is none."""
    this = datetime.fromtimestamp(near, UTC).year
    if year is not None:
        found = _moments((year,), month, day, clock, zone)
    else:
        found = [at for at in _moments((this - 1, this, this + 1), month, day, clock, zone) if at <= near + AHEAD]
    return min(found, key=lambda at: abs(at - near), default=None)


def _moments(years: tuple[int, ...], month: int, day: int, clock: Hms, zone: tzinfo) -> list[int]:
    found = []
    for year in years:
        for fold in (0, 1):
            try:
                found.append(int(datetime(year, month, day, *clock, tzinfo=zone, fold=fold).timestamp()))
            except (ValueError, OverflowError):  # 29 February, a month that is none
                continue
    return found
