"""Whether Slack would take these blocks: the limits of its own SDK, and what that does not look at.

The SDK drops what it does not know (a block, an element, a property) without a word, so what it makes of a block must
equal the block; and it counts neither blocks nor ids nor the whole message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Literal

from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models import blocks as sdk

from templates.blocks import Block, size

Surface = Literal["message", "modal", "home"]
BLOCK_LIMIT: dict[str, int] = {"message": 50, "modal": 100, "home": 100}
TOTAL_LIMIT = 13_200
TEXT_LIMIT = 3_000
FIELD_LIMIT = 2_000
CONFIRM_LIMITS = {"title": 100, "text": 300, "confirm": 30, "deny": 30}
NOT_IN_MESSAGES = frozenset({"alert"})
KNOWN = frozenset(str(vars(kind)["type"]) for kind in sdk.Block.__subclasses__())
PLAIN_ONLY = {"header": ("text",), "button": ("text",)}


def validate(blocks: Sequence[Block], surface: Surface = "message") -> list[str]:
    """What is wrong, each with the place; empty = nothing."""
    problems = list(_whole(blocks, surface))
    for index, block in enumerate(blocks):
        problems += [f"block {index}: {problem}" for problem in _block(block, surface)]
    return problems


def _whole(blocks: Sequence[Block], surface: Surface) -> Iterator[str]:
    if not blocks:
        yield "no blocks"
    if len(blocks) > BLOCK_LIMIT[surface]:
        yield f"{len(blocks)} blocks, at most {BLOCK_LIMIT[surface]} in a {surface}"
    if surface == "message" and size(list(blocks)) > TOTAL_LIMIT:
        yield f"{size(list(blocks))} characters in all, Slack refuses from about {TOTAL_LIMIT} on"
    for name in ("block_id", "action_id"):
        used = Counter(str(node[name]) for node in _nodes(list(blocks)) if name in node)
        yield from (f"{name} {value!r} is used {count} times" for value, count in used.items() if count > 1)


def _block(block: Block, surface: Surface) -> Iterator[str]:
    kind = block.get("type")
    if kind not in KNOWN:
        yield f"unknown type {kind!r}"
        return
    if surface == "message" and kind in NOT_IN_MESSAGES:
        yield f"{kind} may not stand in a message"
    yield from _sdk_says(block)
    for node in _nodes(block):
        yield from _node(node)


def _sdk_says(block: Block) -> Iterator[str]:
    try:
        parsed = sdk.Block.parse(dict(block))
        if parsed is None or parsed.to_dict() != block:
            yield "something in it is empty, of an unknown type or not a property of it"
    except (SlackObjectFormationError, TypeError, ValueError, AttributeError, KeyError) as error:
        yield f"{error}"


def _node(node: Block) -> Iterator[str]:
    kind = str(node.get("type", ""))
    if kind in ("plain_text", "mrkdwn"):
        if not str(node.get("text", "")).strip():
            yield "empty text"
        if _length(node) > TEXT_LIMIT:
            yield f"a text of {_length(node)} characters, at most {TEXT_LIMIT}"
    for name in PLAIN_ONLY.get(kind, ()):
        if _kind(node.get(name)) != "plain_text":
            yield f"{kind}.{name} must be plain_text"
    yield from _lengths(node)


def _lengths(node: Block) -> Iterator[str]:
    fields = node.get("fields")
    for field in fields if isinstance(fields, list) else []:
        if _length(field) > FIELD_LIMIT:
            yield f"a field of {_length(field)} characters, at most {FIELD_LIMIT}"
    confirm = node.get("confirm")
    if not isinstance(confirm, dict) or node.get("type") == "plain_text":
        return
    for name, limit in CONFIRM_LIMITS.items():
        if _length(confirm.get(name)) > limit:
            yield f"confirm.{name} of {_length(confirm.get(name))} characters, at most {limit}"


def _kind(node: object) -> object:
    return node.get("type") if isinstance(node, dict) else None


def _length(node: object) -> int:
    return len(str(node.get("text", ""))) if isinstance(node, dict) else 0


def _nodes(tree: object) -> Iterator[Block]:
    """Every object in the tree, the tree itself first."""
    if isinstance(tree, dict):
        yield tree
        tree = list(tree.values())
    if isinstance(tree, list):
        for item in tree:
            yield from _nodes(item)
