"""What is broken."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.model.evidence import Reading
from bot.model.storage import Stall

Kind = Literal[
    "gpu_fault",
    "precursor",
    "checkpoint_stall",
    "session_failed",
    "session_hung",
    "session_slow",
    "blind",
    "storm",
]


@dataclass(frozen=True, slots=True)
class Incident:
    """Something broken: kind + subject. A re-opening within a day is a new episode of the same number."""

    id: int
    episode: int
    kind: Kind
    subject: str
    opened: int
    score: float = 0.0
    hard: bool = False
    known: bool = True
    reasons: tuple[Reading, ...] = ()
    note: str = ""
    hurt: tuple[str, ...] = ()  # session keys
    acked_by: str = ""
    quiet_since: int | None = None
    closed: int | None = None
    closed_why: str = ""
    stall: Stall | None = None  # of a checkpoint_stall
    faded_since: int | None = None  # nothing bad is shown, though not all of it can be judged

    @property
    def tag(self) -> str:
        return f"{self.id}.{self.episode}"

    @property
    def said(self) -> tuple[str, ...]:
        """The note in our own words, one sentence each."""
        return tuple(line for line in self.note.splitlines() if line.strip() and not line.startswith("\t"))

    @property
    def log(self) -> tuple[str, ...]:
        """Lines of a job's log that the note holds: written by anybody."""
        return tuple(line[1:] for line in self.note.splitlines() if line.startswith("\t"))
