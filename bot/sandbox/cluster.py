"""A simulated GPU cluster: 63 nodes, a 60-node training run, small jobs on the spares, and trouble. Everything follows
from the seed and from what is done to it; its clock is turned by hand."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from functools import partial
from random import Random

from bot.model import Attempt
from bot.sandbox.faults import Trouble
from bot.sandbox.record import Record
from bot.sandbox.training import TrainingRun
from bot.schedulers.simulated import SimulatedGate, SimulatedScheduler

# The study's cluster (arXiv 2605.09370): 63 nodes of 8 GPUs, 60 of them for the run, 3 spares.
NAME, NODES, RUN_NODES, GPUS = "simcl", 63, 60, 8
HISTORY = 3 * 3600  # s that the cluster has run before anybody looks: a run with checkpoints, not a newborn
SMALL_JOBS = 2  # at once; they share one spare, so that two stay free for the run
KEPT = 2 * 86_400  # s of the record: the longest look back of a signal is a day


class SimulatedCluster:
    """`turn` moves it on. The rest of the sandbox reads `scheduler`, `run`, `record` and `trouble`, and changes the
    cluster as people and the gate do: through the scheduler. calm: nothing goes wrong by itself."""

    def __init__(self, seed: int, start: int, *, calm: bool = False) -> None:
        self.now = start - HISTORY
        self.record = Record()
        self.scheduler = SimulatedScheduler(name=NAME, gpus=GPUS, now=self.now)
        self.scheduler.add_nodes([f"node-{number:02d}" for number in range(1, NODES + 1)])
        self.gate = SimulatedGate(self.scheduler)
        self._agenda: list[tuple[int, int, Callable[[], None]]] = []
        self._entries = 0
        self.trouble = Trouble(self, Random(f"{seed}/trouble"))
        self.run = TrainingRun(self, Random(f"{seed}/training"), RUN_NODES)
        SmallJobs(self, Random(f"{seed}/jobs"))
        self.turn(start)
        if not calm:
            self.trouble.begin()

    def later(self, seconds: int, do: Callable[[], None]) -> None:
        self.at(self.now + seconds, do)

    def at(self, when: int, do: Callable[[], None]) -> None:
        """What falls on the same second happens in the order in which it was entered."""
        self._entries += 1
        heapq.heappush(self._agenda, (when, self._entries, do))

    def turn(self, now: int) -> None:
        """Everything that happens until `now`."""
        self._move(self.now)
        while self._agenda and self._agenda[0][0] <= now:
            when, _, do = heapq.heappop(self._agenda)
            self._move(max(when, self.now))
            do()
        self._move(now)
        self.record.forget(now - KEPT)

    def _move(self, now: int) -> None:
        self.now = now
        self.scheduler.turn(now)
        self.run.follow()

    def attempt_began(self, attempt: Attempt) -> None:
        self.trouble.attempt_began(attempt)


class SmallJobs:
    """Evaluations and tests of a few GPUs, which come and go and are nobody's care."""

    def __init__(self, cluster: SimulatedCluster, dice: Random) -> None:
        self._cluster, self._dice, self._number = cluster, dice, 5000
        cluster.later(600, self._come)

    def _come(self) -> None:
        scheduler = self._cluster.scheduler
        alive = [job for job in scheduler.jobs.values() if job.qos == "small" and job.state in ("PENDING", "RUNNING")]
        if len(alive) < SMALL_JOBS:
            self._number += 1
            name = self._dice.choice(("eval", "ablation", "debug"))
            gpus = self._dice.choice((1, 2, 4))
            scheduler.submit(str(self._number), 1, name=name, user="maria", qos="small", gpus_per_node=gpus)
            self._cluster.later(self._dice.randint(600, 5400), partial(self._go, str(self._number)))
        self._cluster.later(self._dice.randint(1200, 7200), self._come)

    def _go(self, job: str) -> None:
        """Done, and five minutes later out of the queue."""
        if self._cluster.scheduler.jobs[job].state == "RUNNING":
            self._cluster.scheduler.end(job, "COMPLETED", "0:0")
        self._cluster.later(300, partial(self._forget, job))

    def _forget(self, job: str) -> None:
        if self._cluster.scheduler.jobs[job].state not in ("PENDING", "RUNNING"):
            self._cluster.scheduler.forget(job)
        else:
            self._go(job)
