"""When a line of a job's log was written, by what stands in it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from datetime import UTC, tzinfo

from bot.moments import moment, offset

HMS = r"(?P<h>[01]\d|2[0-3]):(?P<mi>[0-5]\d):(?P<s>[0-5]\d|60)"
ZONE = r"(?:[.,]\d+)?\s?(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?(?![\d:])"
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
# In the order of trust. The forms with a year first; glog writes the month without a leading zero, the day with one.
FORMS = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        rf"(?<!\d)(?P<y>20\d\d)[-/](?P<mo>\d\d)[-/](?P<d>\d\d)[ T_]{HMS}{ZONE}",
        rf"(?<!\d)(?P<mo>\d\d)/(?P<d>\d\d)/(?P<y>20\d\d) {HMS}{ZONE}",
        rf"(?:^|[\s\[:])[IWEFD](?P<mo>\d{{1,2}})(?P<d>\d\d) {HMS}",
        rf"\b(?P<mon>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) {{1,2}}(?P<d>\d{{1,2}}) {HMS}(?: (?P<y>20\d\d))?",
        rf"(?<![\d/-])(?P<mo>\d\d)[-/](?P<d>\d\d) {HMS}{ZONE}",
    )
)
EPOCH = re.compile(r"^\W{0,3}(?P<epoch>1\d{9})(?:\.\d+)?(?=[\s\]|,:])", re.ASCII)
LOOK = 400  # characters: a time stands at a line's beginning, or in the short lines of a scheduler
NEAR = 900  # s: a zone must explain the last line this well, else the site's is kept


def when(text: str, near: int, zone: tzinfo) -> int | None:
    """Unix seconds of the first time in a line; None where there is none. near: about when it was written, which
    tells the year where the line does not. zone: where the line names none."""
    head = text[:LOOK]
    for form in FORMS:
        if found := form.search(head):
            return _seconds(found, near, zone)
    epoch = EPOCH.search(head)
    return int(epoch["epoch"]) if epoch else None


def _seconds(found: re.Match[str], near: int, zone: tzinfo) -> int | None:
    parts = found.groupdict()
    month = int(parts["mo"]) if parts.get("mo") else MONTHS.index(parts["mon"].lower()) + 1
    clock = int(parts["h"]), int(parts["mi"]), min(59, int(parts["s"]))
    year = int(parts["y"]) if parts.get("y") else None
    return moment(year, month, int(parts["d"]), clock, near, offset(parts.get("zone") or "") or zone)


def zone_of(lines: Iterable[str], written: int, zones: Sequence[tzinfo]) -> tzinfo:
    """In which of these zones the times are. Containers run in UTC whatever the site's zone is, so the last line that
    tells a time is compared with when the file was last written. zones[0] where that does not tell."""
    last = next((line for line in lines if when(line, written, UTC) is not None), None)
    if last is None:
        return zones[0]
    away = [abs(written - (when(last, written, zone) or 0)) for zone in zones]
    return zones[away.index(min(away))] if min(away) <= NEAR else zones[0]
