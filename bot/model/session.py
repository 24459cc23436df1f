"""Training runs under our care."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bot.model.progress import Pace
from bot.model.saves import Checkpoint
from bot.model.scheduler import Attempt

SessionState = Literal["running", "degraded", "starting", "dead", "ended"]


@dataclass(frozen=True, slots=True)
class Session:
    """A training run under our care. key: cluster, first job id, earliest submit known to accounting."""

    key: str
    name: str
    cluster: str
    jobs: tuple[str, ...]
    job_name: str
    user: str
    controller: str
    first_submit: int
    seen: int = 0  # when we first saw it; what ended before that is history
    unrecoverable: str = ""  # why no playbook can requeue it; empty = it can
    gpus: int = 0
    attempts: tuple[Attempt, ...] = ()
    checkpoint: Checkpoint | None = None
    best_step: int | None = None
    interval: int | None = None  # learned seconds between completed saves
    ended: str = ""
    ended_at: int | None = None
    pace: Pace | None = None

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    def attempt(self, attempt_id: str) -> Attempt | None:
        return next((a for a in self.attempts if a.id == attempt_id), None)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes of the newest attempt that really ran."""
        return next((a.nodes for a in reversed(self.attempts) if a.nodes), ())
