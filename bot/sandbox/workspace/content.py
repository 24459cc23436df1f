"""What Slack takes as the content of a message."""

from __future__ import annotations

import json
from collections.abc import Mapping

from bot.sandbox.workspace.errors import Refused
from templates.blocks import Block, size
from templates.validate import TOTAL_LIMIT, validate

TRUNCATED_AT = 40_000  # characters of a posted text; Slack cuts the rest off
EDIT_LIMIT = 4_000  # characters of an edited text


def checked(given: Mapping[str, object], limit: int = 0) -> tuple[str, list[Block] | None]:
    """Text and blocks (None: not given). limit: characters of the text, 0 = cut where Slack cuts. Raises Refused."""
    text = str(given.get("text") or "")
    blocks = objects(given, "blocks", "invalid_blocks_format")
    if not text.strip() and not blocks:
        raise Refused("no_text")
    if limit and len(text) > limit:
        raise Refused("msg_too_long")
    if blocks:
        _check_blocks(blocks)
    return text[:TRUNCATED_AT], blocks


def _check_blocks(blocks: list[Block]) -> None:
    if size(blocks) > TOTAL_LIMIT:
        raise Refused("msg_blocks_too_long")
    typeless = [
        f"block {i}: its type is no text" for i, block in enumerate(blocks) if not isinstance(block.get("type"), str)
    ]
    problems = typeless or validate(blocks)
    if problems:
        raise Refused("invalid_blocks", problems)


def objects(given: Mapping[str, object], name: str, error: str) -> list[Block] | None:
    """A list of objects, given as such or, in a form, as JSON. Raises Refused."""
    value = given.get(name)
    if value is None or value == "":
        return None
    try:
        found = json.loads(value) if isinstance(value, str) else value
    except ValueError as problem:
        raise Refused(error) from problem
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise Refused(error)
    return found
