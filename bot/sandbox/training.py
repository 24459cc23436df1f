"""The training run of the simulation: it loads, steps and saves while its attempt lives, hangs, or dies."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from bot.model import Attempt, Checkpoint, Job

if TYPE_CHECKING:
    from bot.sandbox.cluster import SimulatedCluster

JOB, NAME, USER, QOS = "4711", "solar-102b", "trainer", "pretrain"
LOAD = (10 * 60, 33 * 60)  # s; the study's median is 33 min, tuned sites load in ten
SAVE_EVERY = (28 * 60, 32 * 60)
SAVE_TAKES = (40, 90)
SECONDS_A_STEP = 7
FIRST_STEP = 41_000


class TrainingRun:
    """`saves` are the completed checkpoints, oldest first; a new attempt goes on from the newest."""

    def __init__(self, cluster: SimulatedCluster, dice: Random, nodes: int) -> None:
        self._cluster, self._dice = cluster, dice
        self.saves = [Checkpoint(JOB, FIRST_STEP, cluster.now - 120, cluster.now - 60)]
        self.attempt = ""
        self.began = 0
        self.loaded = 0
        self.hung_at: int | None = None
        cluster.scheduler.submit(
            JOB, nodes, name=NAME, user=USER, qos=QOS, account="research", comment="pretraining of solar-102b"
        )

    # -- looks -----------------------------------------------------------------------------------

    @property
    def job(self) -> Job:
        return self._cluster.scheduler.jobs[JOB]

    @property
    def latest(self) -> Attempt:
        return self.job.attempts[-1]

    @property
    def nodes(self) -> tuple[str, ...]:
        """Of the newest attempt that really ran."""
        return next(a.nodes for a in reversed(self.job.attempts) if a.nodes)

    @property
    def step(self) -> int:
        """Where it stands now; what was not saved is lost at the next start."""
        until = self._cluster.now if self.hung_at is None else self.hung_at
        running = max(0, until - self.loaded) if self.latest.alive else 0
        return (self.saves[-1].step or 0) if not running else self._base + running // SECONDS_A_STEP

    @property
    def spoken(self) -> str:
        """For the line of progress."""
        if self.stopped_at is not None:
            return f"stopped at step {self.step:,}"
        return f"loading step {self.step:,}" if self._cluster.now < self.loaded else f"step {self.step:,}"

    @property
    def stopped_at(self) -> int | None:
        """Since when nothing moves, because it hangs, is dead or waits; None while it runs or loads."""
        if self.latest.alive:
            return self.hung_at
        ends = [a.end for a in self.job.attempts if a.end is not None]
        return ends[-1] if ends else None

    def runs_for(self) -> int:
        """s since this attempt began; 0 when it does not run well."""
        return self._cluster.now - self.began if self.stopped_at is None and self.attempt else 0

    # -- what happens to it ----------------------------------------------------------------------

    def follow(self) -> None:
        """Notice that the scheduler began or ended an attempt."""
        latest = self.latest
        if latest.alive and latest.id != self.attempt:
            self._begin(latest)
        elif not latest.alive:
            self.attempt = ""

    def _begin(self, attempt: Attempt) -> None:
        self.attempt, self.began, self.hung_at = attempt.id, self._cluster.now, None
        load = self._dice.randint(*LOAD)
        self.loaded = self._cluster.now + load
        self._base = self.saves[-1].step or 0
        self._save_later(load + self._dice.randint(*SAVE_EVERY))
        self._cluster.attempt_began(attempt)

    def hang(self) -> None:
        self.hung_at = self._cluster.now

    def die(self, exit_code: str = "1:0") -> None:
        """The job ends FAILED, as a trainer does that lost a rank."""
        if self.latest.alive:
            self._cluster.scheduler.end(JOB, "FAILED", exit_code)
            self.follow()

    def _save_later(self, seconds: int) -> None:
        attempt = self.attempt
        self._cluster.later(seconds, lambda: self._save(attempt))

    def _save(self, attempt: str) -> None:
        if self._moves(attempt):
            step, began = self.step, self._cluster.now
            self._cluster.later(self._dice.randint(*SAVE_TAKES), lambda: self._saved(attempt, step, began))

    def _saved(self, attempt: str, step: int, began: int) -> None:
        if self._moves(attempt):
            self.saves.append(Checkpoint(JOB, step, began, self._cluster.now))
            self._save_later(self._dice.randint(*SAVE_EVERY))

    def _moves(self, attempt: str) -> bool:
        return attempt == self.attempt and self.hung_at is None
