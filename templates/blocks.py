"""Block Kit from mrkdwn: whatever the text, the blocks are ones that Slack takes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from templates.cut import cut_end, cut_middle, split

Block = dict[str, object]

SECTION = 3_000
BLOCKS = 50
TOTAL = 12_000  # Slack refuses from about 13,200 on (slackapi/bolt-js#2509) and counts more than the text (#2867)
BLOCK_ID = 255
CONTEXT = 1_000
BUTTONS, BUTTON_TEXT, BUTTON_VALUE, ACTION_ID, CONFIRM = 8, 75, 100, 50, 200  # all of them leave room for text
PARAGRAPHS = 20
PLAIN = 3_900  # Slack asks for at most 4,000 in `text`
FALLBACK = 1_000

_PIECE = SECTION - 100
_OVERHEAD = 100  # of a section's own JSON, rounded up
_WORD = re.compile(r"[a-z][a-z0-9_]*")
_UNSENDABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")
_DATE = re.compile(r"<!date\^[^|>]*\|([^>]*)>")
_MARKUP = re.compile(r"(?<!\w)([*_~])(?=\S)(.{1,200}?)(?<=\S)\1(?!\w)")


@dataclass(frozen=True, slots=True)
class Button:
    """A click comes back as `<action_id> <value>`; the id is one lower-case word. confirm: asked first, if not empty.

    Raises ValueError for an id or value that would not come back as it is.
    """

    action_id: str
    text: str
    value: str
    style: Literal["", "primary", "danger"] = ""
    confirm: str = ""

    def __post_init__(self) -> None:
        good_id = _WORD.fullmatch(self.action_id) and len(self.action_id) <= ACTION_ID
        good_value = self.value.isprintable() and 0 < len(self.value.strip()) <= len(self.value) <= BUTTON_VALUE
        if not good_id or not good_value:
            raise ValueError(f"button {self.action_id!r} with value {self.value!r}: too long, empty or unprintable")


@dataclass(frozen=True, slots=True)
class Card:
    """One message. paragraphs and footer are mrkdwn; block_id is what the sender finds it again by.

    Raises ValueError without a block_id, and for more buttons than people can choose between.
    """

    block_id: str
    paragraphs: tuple[str, ...]
    buttons: tuple[Button, ...] = ()
    footer: str = ""

    def __post_init__(self) -> None:
        if not self.block_id:
            raise ValueError("a card without a block_id")
        if len(self.buttons) > BUTTONS:
            raise ValueError(f"{len(self.buttons)} buttons in one message; at most {BUTTONS}")


def card_blocks(card: Card) -> list[Block]:
    """Sections, then buttons, then the footer. Too much text loses its middle, never its head or tail."""
    end = [*_actions(card.buttons), *_footer(card.footer)]
    texts = _cut(_texts(card.paragraphs), TOTAL - size(end))
    blocks = [_section(piece) for text in texts for piece in split(text, _PIECE) if piece.strip()] + end
    return stamp(blocks or [_section("…")], card.block_id)


def stamp(blocks: Sequence[Block], block_id: str) -> list[Block]:
    """The same blocks; the first carries the id. A long id is shortened the same way each time."""
    if len(block_id) > BLOCK_ID:
        block_id = f"{block_id[:180]}#{sha256(block_id.encode()).hexdigest()}"
    return [{**blocks[0], "block_id": block_id}, *blocks[1:]] if blocks else []


def text_block(text: str) -> Block:
    """One section with as much of the text as fits: for a message without a card."""
    return _section(cut_middle(_sendable(text), _PIECE) if text.strip() else "…")


def fallback(card: Card) -> str:
    """What notifications and screen readers get: the first two paragraphs. Mentions stay, so that they notify."""
    return cut_end(_unmarked("\n".join(_texts(card.paragraphs)[:2])), FALLBACK) or "…"


def plain(blocks: Sequence[Block], text: str = "", limit: int = PLAIN) -> str:
    """The whole message as text, for when Slack refuses the blocks; buttons become what to type."""
    lines = [line for block in blocks for line in _lines(block)]
    return cut_middle(_unmarked("\n".join(lines) or text), limit)


def size(node: object) -> int:
    """Characters of it as JSON, escapes aside."""
    if isinstance(node, dict):
        return 2 + sum(len(str(key)) + 4 + size(value) for key, value in node.items())
    if isinstance(node, list | tuple):
        return 2 + sum(1 + size(item) for item in node)
    return 2 + len(str(node))


def _texts(paragraphs: Sequence[str]) -> list[str]:
    texts = [text for text in (_sendable(paragraph).strip() for paragraph in paragraphs) if text]
    if len(texts) > PARAGRAPHS:
        return [*texts[: PARAGRAPHS - 1], "\n".join(texts[PARAGRAPHS - 1 :])]
    return texts


def _cut(texts: list[str], room: int) -> list[str]:
    """Cut as one text, so that the middle of the message goes and not the middle of each paragraph."""
    pieces = len(texts) + TOTAL // (_PIECE // 2)
    whole = cut_middle("\0".join(texts), room - _OVERHEAD * pieces)
    return [text for text in whole.split("\0") if text.strip()]


def _sendable(text: str) -> str:
    return _UNSENDABLE.sub("", text)


def _section(text: str) -> Block:
    return {"type": "section", "text": _mrkdwn(text)}


def _mrkdwn(text: str) -> Block:
    """verbatim: only what is written as a mention or link is one; Slack guesses nothing from the text."""
    return {"type": "mrkdwn", "text": text, "verbatim": True}


def _label(text: str, limit: int, otherwise: str) -> Block:
    text = " ".join(_sendable(text).split()) or otherwise
    return {"type": "plain_text", "text": cut_end(text, limit), "emoji": True}


def _actions(buttons: Sequence[Button]) -> list[Block]:
    seen: dict[str, int] = {}
    elements = []
    for button in buttons:
        seen[button.action_id] = count = seen.get(button.action_id, 0) + 1
        elements.append(_button(button, button.action_id if count == 1 else f"{button.action_id}:{count}"))
    return [{"type": "actions", "elements": elements}] if elements else []


def _button(button: Button, action_id: str) -> Block:
    made: Block = {
        "type": "button",
        "action_id": action_id,
        "text": _label(button.text, BUTTON_TEXT, button.action_id),
        "value": button.value,
    }
    if button.style:
        made["style"] = button.style
    if button.confirm.strip():
        made["confirm"] = _confirm(button)
    return made


def _confirm(button: Button) -> Block:
    return {
        "title": _label(button.text, 100, button.action_id),
        "text": _label(button.confirm, CONFIRM, "Sure?"),
        "confirm": _label(button.text, 30, "Yes"),
        "deny": _label("Not now", 30, "No"),
    }


def _footer(text: str) -> list[Block]:
    text = cut_end(_sendable(text).strip(), CONTEXT)
    return [{"type": "context", "elements": [_mrkdwn(text)]}] if text else []


def _unmarked(text: str) -> str:
    return _MARKUP.sub(r"\2", _DATE.sub(r"\1", text))


def _lines(block: Block) -> list[str]:
    elements = block.get("elements") or [block.get("text")]
    assert isinstance(elements, list)
    return [line for line in (_line(element) for element in elements if isinstance(element, dict)) if line]


def _line(element: Block) -> str:
    text = element.get("text")
    if element.get("type") == "button":
        verb = str(element.get("action_id", "")).partition(":")[0]
        label = text.get("text") if isinstance(text, dict) else verb
        return f"{label}: type /xid {verb} {element.get('value', '')}"
    return text if isinstance(text, str) else ""
