"""What came of recoveries: chain classes now; intervals and comparisons of classes later."""

from __future__ import annotations

from collections.abc import Sequence

from bot.model import ChainClass, Link

BOT = {"auto", "approved"}
PEOPLE = {"command", "external"}


def chain_class(chain: Sequence[Link]) -> ChainClass:
    """Who recovered: from the origins of the attempts, in order (DESIGN §1, DETAILS 'Classes')."""
    origins = [link.origin or "unattributed" for link in chain]
    kinds = set(origins)
    if not kinds:
        return "none"
    if "unattributed" in kinds:
        return "mixed"
    if kinds <= BOT:
        return "automated" if kinds == {"auto"} else "assisted"
    if kinds <= PEOPLE:
        return "manual"
    if kinds == {"scheduler"}:
        return "scheduler"
    if kinds == {"in_job"}:
        return "in_job"
    first_bot = next((i for i, origin in enumerate(origins) if origin in BOT), None)
    if first_bot is not None and any(origin in PEOPLE for origin in origins[first_bot:]):
        return "takeover"
    return "mixed"
