"""What the jobs do on each node, minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from bot.sandbox.recording.effects import span
from bot.sandbox.recording.fleet import DAY, ROWS


class Phase(IntEnum):
    """The columns of levels.LEVELS. LIGHT and BUSY: small jobs, at a prompt or at work."""

    IDLE = 0
    START = 1
    LOAD = 2
    TRAIN = 3
    SAVE = 4
    EVAL = 5
    HANG = 6
    LIGHT = 7
    BUSY = 8


@dataclass(frozen=True, slots=True)
class Doing:
    phase: Phase
    nodes: tuple[int, ...]
    start: int
    end: int


def painted(doings: Sequence[Doing], nodes: int, begin: int) -> NDArray[np.intp]:
    """(ROWS, nodes): the phase of each node on the day that begins at `begin`."""
    phases = np.zeros((ROWS, nodes), dtype=np.intp)
    for doing in doings:
        if doing.start < begin + DAY and doing.end > begin:
            rows = span(doing.start, doing.end, begin)
            phases[rows, list(doing.nodes)] = doing.phase
    return phases
