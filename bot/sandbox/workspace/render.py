"""Slack's mrkdwn and blocks as HTML that is safe by construction: every piece is text until `Markup` says otherwise,
and only the literals in this module say so."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, tzinfo

from markupsafe import Markup, escape

from templates.blocks import Block

EMOJI = {
    "arrows_counterclockwise": "🔄",
    "bar_chart": "📊",
    "bell": "🔔",
    "black_circle": "⚫",
    "chart_with_upwards_trend": "📈",
    "double_vertical_bar": "⏸️",
    "eyes": "👀",
    "floppy_disk": "💾",
    "hourglass_flowing_sand": "⏳",
    "information_source": "ℹ️",
    "large_blue_circle": "🔵",
    "large_green_circle": "🟢",
    "large_orange_circle": "🟠",
    "large_yellow_circle": "🟡",
    "lock": "🔒",
    "mag": "🔍",
    "no_bell": "🔕",
    "no_entry": "⛔",
    "red_circle": "🔴",
    "rotating_light": "🚨",
    "test_tube": "🧪",
    "warning": "⚠️",
    "white_check_mark": "✅",
    "white_circle": "⚪",
    "wrench": "🔧",
    "x": "❌",
}
BROADCASTS = ("here", "channel", "everyone")

_FENCE = re.compile(r"```\n?(.+?)\n?```", re.DOTALL)
_QUOTE = re.compile(r"(?:&gt;|>) ?")
_INLINE = re.compile(
    r"`(?P<code>[^`\n]+)`"
    r"|<(?P<angle>[^<>\n]+)>"
    r"|(?<![\w*])\*(?P<strong>[^\s*](?:[^*\n]*[^\s*])?)\*(?![\w*])"
    r"|(?<!\w)_(?P<em>[^\s_](?:[^_\n]*[^\s_])?)_(?!\w)"
    r"|(?<![\w~])~(?P<s>[^\s~](?:[^~\n]*[^\s~])?)~(?![\w~])"
    r"|:(?P<emoji>[a-z0-9_+-]+):"
)
_DATE = re.compile(r"\{(\w+)\}")
_BR = Markup("<br>")


@dataclass(frozen=True, slots=True)
class Reader:
    """Who reads, when and where. names: what to show for the id of a person, group or channel. mine: the ids that mean
    the reader."""

    names: Mapping[str, str] = field(default_factory=dict)
    mine: frozenset[str] = frozenset()
    tz: tzinfo | None = None
    now: float = 0.0

    def local(self, at: float) -> datetime:
        return datetime.fromtimestamp(at, self.tz).astimezone(self.tz)


# -- mrkdwn ------------------------------------------------------------------------------------------------------------


def mrkdwn(text: str, reader: Reader) -> Markup:
    """Code fences, quotes and lines; within a line code, bold, italic, strike, links, mentions, dates, emoji."""
    parts: list[Markup] = []
    at = 0
    for fence in _FENCE.finditer(text):
        parts += [_paragraph(text[at : fence.start()].removesuffix("\n"), reader), _fenced(fence[1])]
        at = fence.end()
    parts.append(_paragraph(text[at:].removeprefix("\n") if at else text, reader))
    return _join(parts)


def _fenced(text: str) -> Markup:
    return Markup("<pre>{}</pre>").format(_unescape(text))


def _paragraph(text: str, reader: Reader) -> Markup:
    parts: list[Markup] = []
    for quoted, lines in _runs(text):
        inner = _BR.join(_inline(line, reader) for line in lines)
        parts.append(Markup("<blockquote>{}</blockquote>").format(inner) if quoted else inner)
    return _join(parts)


def _runs(text: str) -> Iterator[tuple[bool, list[str]]]:
    """Lines, together as long as all of them are quoted or none."""
    run: list[str] = []
    quoting = False
    for line in text.split("\n") if text else ():
        quoted = _QUOTE.match(line)
        if run and bool(quoted) != quoting:
            yield quoting, run
            run = []
        quoting = bool(quoted)
        run.append(line[quoted.end() :] if quoted else line)
    if run:
        yield quoting, run


def _inline(text: str, reader: Reader) -> Markup:
    parts: list[Markup] = []
    at = 0
    for token in _INLINE.finditer(text):
        parts += [escape(_unescape(text[at : token.start()])), _token(token, reader)]
        at = token.end()
    parts.append(escape(_unescape(text[at:])))
    return _join(parts)


def _token(token: re.Match[str], reader: Reader) -> Markup:
    kind, inner = str(token.lastgroup), token[str(token.lastgroup)]
    if kind == "code":
        return Markup("<code>{}</code>").format(_unescape(inner))
    if kind == "angle":
        return _angle(inner, reader)
    if kind == "emoji":
        return _emoji(inner)
    return {
        "strong": Markup("<strong>{}</strong>"),
        "em": Markup("<em>{}</em>"),
        "s": Markup("<s>{}</s>"),
    }[kind].format(_inline(inner, reader))


def _emoji(name: str) -> Markup:
    if name not in EMOJI:
        return escape(f":{name}:")
    label = name.replace("_", " ")
    return Markup('<span class="emoji" role="img" aria-label="{}">{}</span>').format(label, EMOJI[name])


def _angle(inner: str, reader: Reader) -> Markup:
    """What Slack writes in angle brackets; anything else is shown with its brackets."""
    target, _, label = (_unescape(part) for part in inner.partition("|"))
    if target.startswith(("@", "#")):
        return _mention(target[0], target[1:], label, reader)
    if target.startswith("!subteam^"):
        return _mention("@", target.removeprefix("!subteam^"), label.removeprefix("@"), reader)
    if target.startswith("!date^"):
        return _date(target, label, reader)
    if target.startswith("!") and target[1:] in BROADCASTS:
        return _mention("@", target[1:], "", reader)
    if target.startswith(("https://", "http://", "mailto:")):
        return Markup('<a href="{}" target="_blank" rel="noreferrer">{}</a>').format(target, label or target)
    return escape(f"<{_unescape(inner)}>")


def _mention(sign: str, ident: str, label: str, reader: Reader) -> Markup:
    mine = " me" if ident in reader.mine or ident in BROADCASTS else ""
    return Markup('<span class="mention{}">{}{}</span>').format(mine, sign, reader.names.get(ident) or label or ident)


def _date(target: str, fallback: str, reader: Reader) -> Markup:
    _, stamp, pattern, *_ = (*target.split("^"), "", "")
    try:
        local = reader.local(int(stamp))
    except (ValueError, OverflowError, OSError):
        return escape(fallback or f"<{target}>")
    text = _DATE.sub(lambda word: _date_word(word[1], local, reader) or word[0], pattern)
    iso, full = local.astimezone(UTC).isoformat(), f"{local:%A %d %B %Y %H:%M:%S %Z}"
    return Markup('<time datetime="{}" title="{}">{}</time>').format(iso, full, text or fallback)


def _date_word(word: str, local: datetime, reader: Reader) -> str:
    """`pretty` dates say today and yesterday where they can."""
    if word in ("time", "time_secs"):
        return f"{local:%H:%M}" if word == "time" else f"{local:%H:%M:%S}"
    days = (local.date() - reader.local(reader.now).date()).days
    if word.endswith("_pretty") and days in (-1, 0, 1):
        return {-1: "yesterday", 0: "today", 1: "tomorrow"}[days]
    day = local.day
    return {
        "date_num": f"{local:%Y-%m-%d}",
        "date": f"{local:%B} {day}, {local:%Y}",
        "date_short": f"{local:%b} {day}, {local:%Y}",
        "date_long": f"{local:%A}, {local:%B} {day}, {local:%Y}",
    }.get(word.removesuffix("_pretty"), "")


def _unescape(text: str) -> str:
    """Slack escapes three characters and no other."""
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def _join(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


# -- blocks ------------------------------------------------------------------------------------------------------------


def blocks(given: Sequence[Block], reader: Reader) -> Markup:
    return _join(_render(block, BLOCKS, str(block.get("block_id", "")), reader) for block in given)


Draw = Callable[[Block, str, Reader], Markup]


def _render(block: Block, kinds: Mapping[str, Draw], block_id: str, reader: Reader) -> Markup:
    kind = str(block.get("type", ""))
    if kind not in kinds:
        return Markup('<p class="unknown">This page cannot show a block of type {}.</p>').format(kind or "none")
    return kinds[kind](block, block_id, reader)


def _section(block: Block, block_id: str, reader: Reader) -> Markup:
    text, fields, accessory = block.get("text"), block.get("fields"), block.get("accessory")
    parts = [Markup('<div class="text">{}</div>').format(_element(text, block_id, reader))] if text else []
    if fields:
        parts.append(Markup('<div class="fields">{}</div>').format(_elements(fields, "div", block_id, reader)))
    body = Markup("<div>{}</div>").format(_join(parts))
    if accessory:
        body += _element(accessory, block_id, reader)
    return Markup('<div class="section">{}</div>').format(body)


def _context(block: Block, block_id: str, reader: Reader) -> Markup:
    return Markup('<div class="context">{}</div>').format(_elements(block.get("elements"), "span", block_id, reader))


def _actions(block: Block, block_id: str, reader: Reader) -> Markup:
    return Markup('<div class="actions">{}</div>').format(_elements(block.get("elements"), "", block_id, reader))


def _divider(_block: Block, _block_id: str, _reader: Reader) -> Markup:
    return Markup("<hr>")


def _header(block: Block, block_id: str, reader: Reader) -> Markup:
    return Markup("<h3>{}</h3>").format(_element(block.get("text"), block_id, reader))


def _image(block: Block, _block_id: str, reader: Reader) -> Markup:
    """Only files of this workspace are loaded: the page asks nothing of the outside."""
    alt, file, title = str(block.get("alt_text", "")), block.get("slack_file"), block.get("title")
    if isinstance(file, dict) and file.get("id"):
        shown = Markup('<img src="files/{}" alt="{}">').format(str(file["id"]), alt)
    else:
        shown = Markup('<span class="elsewhere">{} ({})</span>').format(alt, str(block.get("image_url", "")))
    caption = Markup("<figcaption>{}</figcaption>").format(_element(title, "", reader)) if title else Markup("")
    return Markup("<figure>{}{}</figure>").format(caption, shown)


def _button(element: Block, block_id: str, reader: Reader) -> Markup:
    confirm = element.get("confirm")
    return Markup(
        '<button type="button" class="button {}" data-block="{}" data-action="{}" data-confirm="{}">{}</button>'
    ).format(
        str(element.get("style", "")),
        block_id,
        str(element.get("action_id", "")),
        json.dumps({name: _plain(part) for name, part in confirm.items()}) if isinstance(confirm, dict) else "",
        _element(element.get("text"), block_id, reader),
    )


def _text(element: Block, _block_id: str, reader: Reader) -> Markup:
    return mrkdwn(_plain(element), reader)


def _plain_text(element: Block, _block_id: str, _reader: Reader) -> Markup:
    """Emoji are all that plain text knows."""
    pieces = re.split(r":([a-z0-9_+-]+):", _plain(element))
    return _join(_emoji(piece) if i % 2 else _lines(piece) for i, piece in enumerate(pieces))


def _lines(text: str) -> Markup:
    return _BR.join(escape(line) for line in text.split("\n"))


def _plain(element: object) -> str:
    return str(element.get("text", "")) if isinstance(element, dict) else str(element)


def _element(element: object, block_id: str, reader: Reader) -> Markup:
    return _render(element if isinstance(element, dict) else {}, ELEMENTS, block_id, reader)


def _elements(elements: object, tag: str, block_id: str, reader: Reader) -> Markup:
    """Each in a tag of its own, where one is named."""
    wrap = {"div": Markup("<div>{}</div>"), "span": Markup("<span>{}</span>")}.get(tag, Markup("{}"))
    listed = elements if isinstance(elements, list | tuple) else ()
    return _join(wrap.format(_element(element, block_id, reader)) for element in listed)


BLOCKS: Mapping[str, Draw] = {
    "actions": _actions,
    "context": _context,
    "divider": _divider,
    "header": _header,
    "image": _image,
    "section": _section,
}
ELEMENTS: Mapping[str, Draw] = {
    "button": _button,
    "image": _image,
    "mrkdwn": _text,
    "plain_text": _plain_text,
}
