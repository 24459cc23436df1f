"""Host lists that people type. Nothing a person types reaches the scheduler before it passed here."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches

from bot.errors import BadReply, UsageError
from bot.slurm_records import parse_hostlist

__all__ = ["parse_hostlist", "parse_targets"]
MAX_TYPED = 1000  # characters; eight nodes need far fewer
EXAMPLE = "name nodes like node-17 or node-[17,19-21]"


def parse_targets(text: str, known: Collection[str], cap: int = 8) -> tuple[str, ...]:
    """The nodes that `text` names, all of them known to the scheduler, at most `cap`. Raises UsageError.

    No groups, no wildcards, no set operations: `@all` and `node-[01-63]!node-17` are refused, not interpreted.
    """
    words = text.strip()
    if len(words) > MAX_TYPED:
        raise UsageError(f"{len(words)} characters are not a list of nodes", EXAMPLE)
    strange = re.search(r"[^A-Za-z0-9._,\[\]-]", words)
    if strange:
        raise UsageError(f"{strange.group()!r} cannot be part of a list of nodes", EXAMPLE)
    return _known(_expanded(words), known, cap)


def _expanded(words: str) -> tuple[str, ...]:
    try:
        return parse_hostlist(words)
    except BadReply as error:
        raise UsageError(error.message.removeprefix(f"{error.source}: "), EXAMPLE) from None


def _known(names: tuple[str, ...], known: Collection[str], cap: int) -> tuple[str, ...]:
    if not names:
        raise UsageError("no node named", EXAMPLE)
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            raise UsageError(f"no node {name}", f"did you mean {close[0]}?" if close else EXAMPLE)
    if len(names) > cap:
        raise UsageError(f"{len(names)} nodes at once, {cap} are allowed", "name fewer")
    return names
