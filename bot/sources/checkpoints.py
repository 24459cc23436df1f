"""Several sources of checkpoints as one: what the trainer exports, what its directory shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from bot.errors import SourceError
from bot.model import Checkpoint, JobSave, KnownSave
from bot.ports import CheckpointSource
from bot.saves import ONE_SAVE


@runtime_checkable
class TellsSaves(Protocol):
    """A source that knows more than the newest save of each job."""

    def told(self) -> Sequence[JobSave]:
        """What it read when it was last asked for checkpoints."""
        ...


@dataclass
class FirstThatKnows:
    """Implements ports.CheckpointSource: of each job the save completed last, whoever tells it; of one save told by
    several, the first source's word. problem: which of them could not be read last time. told: all that every source
    told of saves."""

    sources: Sequence[CheckpointSource]
    problem: str = ""
    told: Sequence[JobSave] = ()

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        """Raises the first SourceError when no source could be read."""
        errors: list[SourceError] = []
        newest: dict[str, Checkpoint] = {}
        told: list[JobSave] = []
        for source in self.sources:
            try:
                found = source.checkpoints(at, jobs)
            except SourceError as error:
                errors.append(error)
                continue
            told += source.told() if isinstance(source, TellsSaves) else map(_of_trainer, found)
            for save in found:
                known = newest.get(save.job)
                if known is None or _newer(save, known):
                    newest[save.job] = save
        self.problem = "; ".join(dict.fromkeys(str(error) for error in errors))
        self.told = told
        if errors and len(errors) == len(self.sources):
            raise errors[0]
        return list(newest.values())


def _of_trainer(c: Checkpoint) -> JobSave:
    return JobSave(c.job, KnownSave(c.started, c.completed, c.step, completed=True, sources=("trainer",)))


def _newer(save: Checkpoint, known: Checkpoint) -> bool:
    """By completion: after a rollback a lower step is the newer one. The same step told by another clock is no other
    save."""
    same = save.step is not None and save.step == known.step
    if save.completed is not None and known.completed is not None:
        return save.completed > known.completed + (ONE_SAVE if same else 0)
    return known.completed is None and (save.completed is not None or (save.step or -1) > (known.step or -1))
