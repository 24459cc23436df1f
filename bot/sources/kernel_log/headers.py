"""What stands before a log line's message: when, which host, which program. Pure.

Known forms: RFC 3164 and its kin (with a year, with fractions, in a locale's month names), RFC 5424, ISO times
(rsyslog's file format, journalctl -o short-iso and short-full, dmesg --time-format iso), Unix seconds (journalctl -o
short-unix), dmesg and dmesg -T, /dev/kmsg.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from functools import lru_cache

from bot.moments import moment, offset

MONTHS = {  # English, and what journalctl and dmesg print in other locales; rsyslog always writes English
    name: number
    for number, names in enumerate(
        (
            "jan january janv ene gen",
            "feb february févr fev",
            "mar march mär mrz mars mrt",
            "apr april avr avril abr",
            "may mai maj mag mei maio",
            "jun june juin giu",
            "jul july juil lug",
            "aug august août ago",
            "sep sept september set",
            "oct october okt out ott",
            "nov november",
            "dec december dez déc dic des",
        ),
        start=1,
    )
    for name in names.split()
}

_CLOCK = r"(?P<clock>\d\d:\d\d:\d\d)(?:[.,]\d+)?"
_PRIORITY = re.compile(r"<\d{1,3}>(?:\d{1,2} (?=\S))?")
_FACILITY = re.compile(r"[a-z0-9]+\s*:[a-z]+\s*: ?(?=\S)")  # dmesg -x: `kern  :warn  : `
_KMSG = re.compile(r"\d{1,3},\d+,\d+,[^;\s]*;")
_ISO = re.compile(
    rf"(?:[A-Za-z]{{3}} )?(?P<date>\d{{4}}-\d\d-\d\d)[T ]{_CLOCK}"
    r"\s?(?P<zone>Z|[+-]\d\d:?\d\d|[A-Z]{3,5}(?=\s))?(?=\s|$)"
)
_BSD = re.compile(
    r"(?:(?:[A-Za-z]{3}|(?P<early>\d{4})) )?"  # a weekday, or syslog-ng's FULLDATE
    rf"(?P<month>[^\W\d_]{{3,9}}\.?|\d{{1,2}}[월月])\s+(?P<day>\d{{1,2}})\s+(?:(?P<year>\d{{4}}) )?{_CLOCK}"
    r"(?: (?P<late>\d{4})(?=\s))?(?=\s|$)"
)
_DMESG = re.compile(
    rf"\[(?:[^\W\d_]{{2,4}}\.? )?\s*(?P<month>[^\W\d_]{{3,9}}\.?|\d{{1,2}}[월月])\s+(?P<day>\d{{1,2}})\s+{_CLOCK}"
    r" (?:(?P<zone>[A-Z]{3,5}) )?(?P<year>\d{4})\]"
)
_UNIX = re.compile(r"(?P<unix>\d{9,11})\.\d+(?=\s)")
_UPTIME = re.compile(r"\[\s*\d+\.\d+\](?:\s*\[\s*[TC]\d+\])?")
_HOST = re.compile(r"(?P<host>[A-Za-z0-9_][\w.:/@-]*[\w]|\w)\s+(?=[^\s:]+(?:\[\d+\])?:(?:\s|$)|NVRM:|nvidia-nvswitch)")
_TAG = re.compile(r"(?!NVRM:|nvidia-nvswitch|nvidia )(?P<tag>[^\s:\[\]]{1,48})(?:\[\d+\])?:(?=\s|$)")
_STRUCTURED = re.compile(
    r"(?P<host>\S+) (?P<tag>\S+) (?:\S+) (?:\S+) (?:-|(?:\[(?:[^\]\\]|\\.)*\])+)(?: \ufeff?|$)"
)  # RFC 5424: HOSTNAME APP-NAME PROCID MSGID [structured data]


@dataclass(frozen=True, slots=True)
class Header:
    """at: Unix seconds, None where no date is told. host, tag: None and empty where they are not told."""

    at: int | None
    host: str | None
    tag: str
    rest: str


def split(line: str, now: int, zone: tzinfo) -> Header:
    """zone: of times that tell none. now: for the year of those that tell none."""
    versioned = _PRIORITY.match(line)
    rest = line[versioned.end() :] if versioned else line
    for prefix in (_FACILITY, _KMSG):
        if found := prefix.match(rest):
            rest = rest[found.end() :]
    at, rest, stamped = _time(rest.lstrip(), now, zone)
    if versioned and versioned[0].endswith(" ") and rest.startswith("- "):  # RFC 5424 of who knows no time
        rest, stamped = rest[2:], True
    if stamped and versioned and versioned[0].endswith(" ") and (found := _STRUCTURED.match(rest)):
        host = None if found["host"] == "-" else found["host"]
        return Header(at, host, found["tag"].strip("-"), rest[found.end() :])
    host_found = _HOST.match(rest) if stamped else None
    rest = rest[host_found.end() :] if host_found else rest
    tag = _TAG.match(rest)
    rest = rest[tag.end() :].lstrip() if tag else rest
    return Header(at, host_found["host"] if host_found else None, tag["tag"] if tag else "", rest)


def quoted_time(lead: str, now: int, zone: tzinfo) -> int | None:
    """When a program quotes the kernel's line with its date, that is when it happened."""
    found = _DMESG.search(lead)
    return _bsd(found, now, zone) if found else None


def _time(rest: str, now: int, zone: tzinfo) -> tuple[int | None, str, bool]:
    """(when, what follows, there was a stamp)"""
    if found := _ISO.match(rest):
        at = _iso(found, zone)
    elif found := _BSD.match(rest) or _DMESG.match(rest):
        at = _bsd(found, now, zone)
    elif found := _UNIX.match(rest):
        at = int(found["unix"])
    elif found := _UPTIME.match(rest):
        at = None
    else:
        return None, rest, False
    return at, rest[found.end() :].lstrip(), True


def _iso(found: re.Match[str], zone: tzinfo) -> int | None:
    """ISO 8601 with whatever offset; a zone's name other than UTC's is the site's."""
    told = found["zone"] or ""
    try:
        told_at = datetime.strptime(f"{found['date']} {found['clock']}", "%Y-%m-%d %H:%M:%S")
        return int(told_at.replace(tzinfo=offset(told) or zone).timestamp())
    except (ValueError, OverflowError):
        return None


def _bsd(found: re.Match[str], now: int, zone: tzinfo) -> int | None:
    parts = found.groupdict()
    year = parts.get("year") or parts.get("late") or parts.get("early")
    zone = UTC if parts.get("zone") in ("UTC", "GMT") else zone
    return _moment(year, _month(parts["month"]), int(parts["day"]), parts["clock"], now, zone)


@lru_cache(maxsize=1024)  # a busy log has many lines with the same second
def _moment(told: str | None, month: int, day: int, clock: str, now: int, zone: tzinfo) -> int | None:
    hour, minute, second = map(int, clock.split(":"))
    return moment(int(told) if told else None, month, day, (hour, minute, min(second, 59)), now, zone)


def _month(text: str) -> int:
    """0 for what is no month."""
    return int(text[:-1]) if text[-1] in "월月" else MONTHS.get(text.rstrip(".").lower(), 0)
