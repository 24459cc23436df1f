"""Making mrkdwn shorter without breaking a mention, a link or an entity in two."""

from __future__ import annotations

import re

FENCE = "```"
_TOKEN_LENGTH = 600  # of the longest mention, date or link
_TOKEN = re.compile(r"<[^<>\n]{1,598}>|&(?:amp|lt|gt);")


def cut_middle(text: str, limit: int) -> str:
    """At most `limit` characters (≥ 100): two thirds from the head, the rest from the tail, and how much is missing."""
    if len(text) <= limit:
        return text
    room = limit - len(_missing(len(text)))
    head = whole_before(text, room * 2 // 3)
    tail = whole_after(text, len(text) - (room - room * 2 // 3))
    return text[:head] + _missing(tail - head) + text[tail:]


def _missing(count: int) -> str:
    return f"\n… {count:,} characters left out …\n"


def cut_end(text: str, limit: int) -> str:
    """At most `limit` characters from the start."""
    return text if len(text) <= limit else text[: whole_before(text, limit - 1)] + "…"


def split(text: str, limit: int) -> list[str]:
    """Pieces of at most `limit` characters, at line ends where possible; a code block goes on in the next piece."""
    pieces: list[str] = []
    room, reopen = limit - 2 * len(FENCE), ""
    while text:
        end = len(text) if len(text) <= room else _line_end(text, room)
        piece, text = reopen + text[:end], text[end:].lstrip("\n")
        reopen = FENCE if piece.count(FENCE) % 2 else ""
        pieces.append(piece + reopen)
    return pieces


def _line_end(text: str, room: int) -> int:
    for separator in ("\n", " "):
        end = text.rfind(separator, room // 2, room)
        if end > 0:
            return whole_before(text, end) or room
    return whole_before(text, room) or room


def whole_before(text: str, at: int) -> int:
    """The last place up to `at` where the text may be cut."""
    token = _token_around(text, at)
    return token.start() if token else at


def whole_after(text: str, at: int) -> int:
    """The first place from `at` on where the text may be cut."""
    token = _token_around(text, at)
    return token.end() if token else at


def _token_around(text: str, at: int) -> re.Match[str] | None:
    around = _TOKEN.finditer(text, max(0, at - _TOKEN_LENGTH), at + _TOKEN_LENGTH)
    return next((token for token in around if token.start() < at < token.end()), None)
