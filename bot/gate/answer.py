"""What the gate answers with."""

from __future__ import annotations

DONE, ALREADY, REFUSED, FAILED, UNCLEAR = 0, 3, 4, 5, 6


class End(Exception):
    """The answer, from wherever it became clear. `facts` go into the printed object."""

    def __init__(self, exit: int, reason: str, **facts: object) -> None:
        super().__init__(reason)
        self.exit, self.reason, self.facts = exit, reason, facts
