"""Saves of a run, whoever told of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A completed save. step None = the trainer does not tell. Times None = not told."""

    job: str
    step: int | None
    started: int | None
    completed: int | None


SaveSource = Literal["trainer", "pushed", "directory", "counters"]


@dataclass(frozen=True, slots=True)
class KnownSave:
    """A save of a run with all that is known of it. ended: when it was completed; where only counters tell, when its
    writes ended. completed: somebody told that it is whole. slow: it stalled. sources: who told, the best first.
    number: its own within the run, 0 = none yet. seen: when it was first told. None = not told."""

    started: int | None
    ended: int | None
    step: int | None = None
    bytes: int | None = None
    completed: bool = False
    slow: bool = False
    sources: tuple[SaveSource, ...] = ()
    number: int = 0
    seen: int = 0

    @property
    def at(self) -> int:
        return self.ended or self.started or self.seen

    @property
    def seconds(self) -> int | None:
        return self.ended - self.started if self.started is not None and self.ended is not None else None


@dataclass(frozen=True, slots=True)
class JobSave:
    """What one source tells of a save of a job."""

    job: str
    save: KnownSave


@dataclass(frozen=True, slots=True)
class SaveHistory:
    """The newest saves of a run, oldest first. made: how many numbers were given."""

    session: str
    saves: tuple[KnownSave, ...] = ()
    made: int = 0
