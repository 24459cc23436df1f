"""What people read. Templates write Slack's mrkdwn, never JSON; blocks.py makes blocks of it.

Every value put into a template is escaped unless it is Mrkdwn, and a misspelt name is an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, tzinfo
from functools import cache
from itertools import groupby
from math import isfinite
from pathlib import Path
from typing import Any, Self
from zoneinfo import ZoneInfo

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from templates.cut import cut_middle

UNKNOWN = "unknown"
CODE_CHARACTERS = 2_400  # of a log that a message shows: one section holds it with its heading
NODE_GROUPS = 20

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
_INVISIBLE = re.compile(r"[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")
_MENTION = re.compile(r"(?<!\w)@(?=\w)")
_NUMBERED = re.compile(r"^(.*?)(\d{1,9})$")
_PERSON = re.compile(r"[UW](?=[A-Z]*\d)[A-Z0-9]+")
_GROUP = re.compile(r"S(?=[A-Z]*\d)[A-Z0-9]+")


class Mrkdwn(Markup):
    """Text that is mrkdwn already. Whatever is formatted into it or joined with it is escaped."""

    @classmethod
    def escape(cls, value: Any, /) -> Self:
        return cls(escape(value))


def escape(value: object) -> str:
    """One line of mrkdwn that shows the value and does nothing else: no mention, no link, no end of code.

    A backtick cannot be escaped in mrkdwn, so a look-alike stands for it. None reads "unknown".
    """
    if isinstance(value, Markup):
        return str(value)
    text = UNKNOWN if value is None else _CONTROL.sub(" ", str(value))
    return _escape_line(text)


def _escape_line(text: str) -> str:
    text = _INVISIBLE.sub("", text).replace("`", "\u02cb")
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MENTION.sub("@\u2060", text)  # Slack also reads a bare @here as a mention in some places


def code(value: object) -> Mrkdwn:
    """`value` as code; nothing for an empty one, because two bare backticks show as themselves."""
    text = escape(value).strip()
    return Mrkdwn(f"`{text}`" if text else "")


def codeblock(value: object, limit: int = CODE_CHARACTERS) -> Mrkdwn:
    """Several lines as they are, head and tail kept when there are more than `limit` characters."""
    lines = (_escape_line(_CONTROL.sub(" ", line)) for line in str(value).splitlines())
    text = cut_middle("\n".join(lines).strip("\n"), limit)
    return Mrkdwn(f"```\n{text}\n```" if text.strip() else "")


def person(value: str) -> Mrkdwn:
    """A Slack user or user group as a mention, anybody else (`os:alice`, `xidbot`) by name."""
    if _PERSON.fullmatch(value):
        return Mrkdwn(f"<@{value}>")
    if _GROUP.fullmatch(value):
        return Mrkdwn(f"<!subteam^{value}>")
    return Mrkdwn(escape(value.removeprefix("os:")))


def duration(seconds: float | None) -> str:
    """`90 s`, `51 min`, `3 h 10 min`, `2 d 4 h`: two units at most. Less than nothing is 0 s."""
    if seconds is None or not isfinite(seconds):
        return UNKNOWN
    if seconds < 120:
        return f"{max(0, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 48 * 60:
        return _two(minutes // 60, "h", minutes % 60, "min")
    hours = round(seconds / 3600)
    return _two(hours // 24, "d", hours % 24, "h")


def _two(large: int, unit: str, small: int, part: str) -> str:
    return f"{large} {unit} {small} {part}" if small else f"{large} {unit}"


def clock(at: float | None, tz: str | tzinfo, day: bool = False) -> Mrkdwn:
    """A time (Unix seconds) in each reader's own zone; notifications show the site's. day: with the date."""
    if at is None:
        return Mrkdwn(UNKNOWN)
    zone = ZoneInfo(tz) if isinstance(tz, str) else tz
    local = datetime.fromtimestamp(at, zone)
    if day:
        return Mrkdwn(f"<!date^{int(at)}^{{date_short_pretty}} {{time}}|{local:%a %d %b %H:%M}>")
    return Mrkdwn(f"<!date^{int(at)}^{{time}}|{local:%H:%M}>")


def number(value: float | None) -> str:
    """`41,250`, `0.5`: two decimals at most."""
    if value is None or not isfinite(value):
        return UNKNOWN
    text = f"{value:,.2f}"
    return text.rstrip("0").rstrip(".")


def node_list(nodes: Iterable[str]) -> str:
    """`node-[01-04,17], login`: folded as schedulers write it, so that it can be pasted back."""
    groups = groupby(sorted({_split(node) for node in nodes}), key=lambda part: part[:2])
    folded = [_fold(prefix, width, [value for *_, value in group]) for (prefix, width), group in groups]
    more = len(folded) - NODE_GROUPS
    return ", ".join(folded[:NODE_GROUPS]) + (f" and {more} more" if more > 0 else "")


def _split(node: str) -> tuple[str, int, int]:
    """(prefix, digits, number); a name without a number at its end has 0 digits."""
    found = _NUMBERED.match(node)
    return (found[1], len(found[2]), int(found[2])) if found and found[1] else (node, 0, 0)


def _fold(prefix: str, width: int, values: list[int]) -> str:
    if width == 0:
        return prefix
    runs: list[tuple[int, int]] = []
    for value in values:
        if runs and value == runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    parts = [f"{a:0{width}}" if a == b else f"{a:0{width}}-{b:0{width}}" for a, b in runs]
    return prefix + (parts[0] if len(values) == 1 else f"[{','.join(parts)}]")


FILTERS = {
    "clock": clock,
    "code": code,
    "codeblock": codeblock,
    "duration": duration,
    "node_list": node_list,
    "number": number,
    "person": person,
}


@cache
def environment(folder: Path = Path(__file__).parent) -> Environment:
    """Jinja's own escaping is HTML's; `finalize` escapes first, and what it returns is left alone."""
    made = Environment(
        loader=FileSystemLoader(folder),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=Mrkdwn.escape,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FILTERS)
    return made


def render(template: str, /, **values: object) -> tuple[str, ...]:
    """The paragraphs of a template file beside this one: what blank lines separate.

    Raises jinja2.UndefinedError for a name that was not given.
    """
    return paragraphs(environment().get_template(template).render(values))


def paragraphs(text: str) -> tuple[str, ...]:
    """Split at blank lines, but never within a code block."""
    parts: list[str] = []
    for part in re.split(r"\n[ \t]*\n\s*", text.strip()):
        if parts and parts[-1].count("```") % 2:
            parts[-1] += f"\n\n{part}"
        else:
            parts.append(part)
    return tuple(part for part in parts if part.strip())
