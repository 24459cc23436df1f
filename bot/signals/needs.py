"""What a signal needs in order to be known: the metrics of its query, or the one who tells it otherwise. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping

# Who tells the signals without a query, and the part of the site file that asks them.
TELLERS: Mapping[str, tuple[str, str]] = {
    "xid_claimed": ("kernel log", "logs.kernel_log.syslog"),
    "xid_claimed_soft": ("kernel log", "logs.kernel_log.syslog"),
    "nvswitch": ("kernel log", "logs.kernel_log.journal or command"),
    "gpu_lost_log": ("kernel log", "logs.kernel_log.journal or command"),
    "xid_repeated": ("kernel log, else the Xid metrics", "logs.kernel_log"),
    "job_log_node": ("job log", "sessions.log"),
    "health_check": ("scheduler", "scheduler"),
    "alert": ("Alertmanager", "http, and its webhook to /alertmanager"),
}

_NAMED = re.compile(r"""__name__\s*=~?\s*["'`]([^"'`]*)["'`]""")
_TEXTS = re.compile(r"""#[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`""")
_SELECTED = re.compile(r"\{[^{}]*\}|\[[^\[\]]*\]")
_GROUPED = re.compile(r"\b(?:by|without|on|ignoring|group_left|group_right)\s*\([^()]*\)", re.I)
_WORD = re.compile(r"(?<![\w:.$@])[a-zA-Z_:][\w:]*\b(?!\s*\()")
_KEYWORDS = {"and", "or", "unless", "atan2", "bool", "offset", "by", "without", "on", "ignoring", "group_left",
             "group_right", "start", "end", "inf", "nan"}  # fmt: skip


def metrics(query: str) -> tuple[str, ...]:
    """Names of the metrics that a query reads. A regular expression of names is told as all that it can match, where
    that can be counted, else as it is."""
    named = [name for pattern in _NAMED.findall(query) for name in _alternatives(pattern)]
    bare = _GROUPED.sub(" ", _SELECTED.sub(" ", _TEXTS.sub("''", query)))
    words = [word for word in _WORD.findall(bare) if word.lower() not in _KEYWORDS]
    return tuple(dict.fromkeys([*words, *named]))


def _alternatives(pattern: str) -> list[str]:
    """`A(B|C)|DE?` is AB, AC, D and DE."""
    group = re.search(r"\(([^()]*)\)(?![?*+{])", pattern)
    if group:
        parts = (pattern[: group.start()] + part + pattern[group.end() :] for part in group[1].split("|"))
        return [name for part in parts for name in _alternatives(part)]
    if "|" in pattern:
        return [name for part in pattern.split("|") for name in _alternatives(part)]
    maybe = re.search(r"(\w)\?", pattern)
    if maybe:
        before, after = pattern[: maybe.start()], pattern[maybe.end() :]
        return [*_alternatives(before + maybe[1] + after), *_alternatives(before + after)]
    return [pattern]


def asking_for(names: Collection[str]) -> str:
    """PromQL: which of these metrics are there, each as one answer with its `__name__`."""
    return f'count by (__name__) ({{__name__=~"{"|".join(names)}"}})'


def missing(names: Iterable[str], there: Collection[str]) -> list[str]:
    """Those of which nothing is there."""
    return [name for name in names if not any(re.fullmatch(name, one) for one in there)]


def teller(signal: str) -> str:
    """Who tells a signal without a query; empty = nobody that we know."""
    return TELLERS.get(signal, ("", ""))[0]
