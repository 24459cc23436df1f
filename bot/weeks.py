"""Calendar weeks in the site's zone, and when the digest of one is due. Pure: `now` is given."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from bot.errors import UsageError
from bot.events import DigestPosted

DUE_AT = time(9)  # local, on Monday
LATE_AFTER = 300  # s; a bot that runs is never this late
TEXT = re.compile(r"(\d{4})-W(\d{2})", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Week:
    """A calendar week (ISO 8601). Its borders are Unix seconds; where the clock changes it has 167 or 169 hours."""

    monday: date
    tz: str

    @property
    def name(self) -> str:
        return f"{self.monday:%G-W%V}"

    @property
    def start(self) -> int:
        return self._at(0)

    @property
    def end(self) -> int:
        """The first second that is not in it."""
        return self._at(7)

    @property
    def days(self) -> tuple[int, ...]:
        """The 8 local midnights from Monday to Monday."""
        return tuple(self._at(day) for day in range(8))

    @property
    def due(self) -> int:
        """When its digest is to be posted."""
        return self._at(7, DUE_AT)

    def moved(self, weeks: int) -> Week:
        return Week(self.monday + timedelta(weeks=weeks), self.tz)

    def _at(self, day: int, hour: time = time.min) -> int:
        local = datetime.combine(self.monday + timedelta(days=day), hour, ZoneInfo(self.tz))
        return int(local.timestamp())


def week_of(text: str, tz: str) -> Week:
    """`2026-W48`. Raises UsageError."""
    found = TEXT.fullmatch(text.strip())
    try:
        if found:
            return Week(date.fromisocalendar(int(found[1]), int(found[2]), 1), tz)
    except ValueError:
        pass  # the year has no such week
    raise UsageError(f"`{text[:40]}` is no calendar week", "for example `2026-W48`")


def week_at(at: int, tz: str) -> Week:
    day = datetime.fromtimestamp(at, ZoneInfo(tz)).date()
    return Week(day - timedelta(days=day.weekday()), tz)


def last_week(now: int, tz: str) -> Week:
    """The newest one that is over."""
    return week_at(now, tz).moved(-1)


def due_digest(posted: Collection[str], began: int | None, now: int, tz: str) -> DigestPosted | None:
    """What has the digest posted, once per week. posted: the weeks that were. began: when the log begins.

    After any time down only the newest week is told, marked late; a week before the log began has nothing to tell.
    """
    week = last_week(now, tz)
    if now < week.due:
        week = week.moved(-1)
    if began is None or began >= week.end or week.name in posted:
        return None
    return DigestPosted(now, week.name, late=now - week.due > LATE_AFTER)
