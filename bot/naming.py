"""Names in a sentence."""

from __future__ import annotations

from collections.abc import Sequence

MOST = 8  # more than these nobody reads


def some(names: Sequence[str], most: int = MOST) -> str:
    """`a, b and 7 more`."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")
