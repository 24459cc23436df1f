"""All that happens in a recording, before any sample is made: who ran where, what broke, what only looked like it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random

from bot.backtest_files import Run, StorageLabel
from bot.sandbox.recording.effects import Effects
from bot.sandbox.recording.fleet import GPUS, HOUR, MINUTE, Fleet
from bot.sandbox.recording.phases import Doing, Phase
from bot.sandbox.recording.truth import ApplicationFault, Category, Failure, Nuisance, Save


@dataclass
class Story:
    fleet: Fleet
    start: int
    end: int
    dice: Random
    effects: Effects
    runs: list[Run] = field(default_factory=list)
    failures: list[Failure] = field(default_factory=list)
    application: list[ApplicationFault] = field(default_factory=list)
    stalls: list[StorageLabel] = field(default_factory=list)
    nuisances: list[Nuisance] = field(default_factory=list)
    saves: list[Save] = field(default_factory=list)
    doings: list[Doing] = field(default_factory=list)
    taken: list[tuple[int, int, int]] = field(default_factory=list)  # node, start, end: no small job then
    jobs: int = 9000

    @property
    def days(self) -> float:
        return (self.end - self.start) / 86_400

    def minutes(self, low: float, high: float) -> int:
        return round(self.dice.uniform(low, high) * MINUTE)

    def hours(self, low: float, high: float) -> int:
        return round(self.dice.uniform(low, high) * HOUR)

    def times(self, per_55_days: float) -> list[int]:
        """Moments of things that happen so often in 55 days; at least once in a recording of two days and more."""
        count = self.count(per_55_days)
        return sorted(self.dice.randrange(self.start + HOUR, self.end - HOUR) for _ in range(count))

    def count(self, per_55_days: float) -> int:
        wanted = per_55_days * self.days / 55
        whole = int(wanted) + (self.dice.random() < wanted % 1)
        return max(whole, 1 if self.days >= 2 and per_55_days >= 1 else 0)

    def next_job(self) -> str:
        self.jobs += self.dice.randint(1, 4)
        return str(self.jobs)

    def ran(self, session: str, job: str, nodes: Iterable[int], start: int, end: int, state: str) -> None:
        """A job that outlives the recording is still running."""
        names = tuple(self.fleet.names[node] for node in sorted(nodes))
        over = end <= self.end
        self.runs.append(Run(session, job, names, start, end if over else None, state if over else "RUNNING"))

    def doing(self, phase: Phase, nodes: Sequence[int], start: int, end: int) -> None:
        if end > start:
            self.doings.append(Doing(phase, tuple(nodes), start, end))

    def noted(self, kind: str, nodes: Iterable[int], start: int, end: int) -> None:
        self.nuisances.append(Nuisance(kind, tuple(self.fleet.names[node] for node in nodes), start, end))


@dataclass(frozen=True, slots=True)
class Ending:
    """How an attempt of the big run ends: the ranks stop, the scheduler ends the job, the node is away until `back`.
    again: moments at which the same node has more of the same trouble."""

    stops: int
    ends: int
    state: str = "FAILED"
    away: tuple[tuple[int, int], ...] = ()  # node, until when
    again: tuple[int, ...] = ()
    new_session: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """One thing that happens to the big run at `at`. node: the victim; gpu: the column of one of its GPUs."""

    story: Story
    at: int
    nodes: tuple[int, ...]
    node: int
    last: bool = True  # of a series of troubles on the same node

    @property
    def dice(self) -> Random:
        return self.story.dice

    @property
    def effects(self) -> Effects:
        return self.story.effects

    def gpus(self, node: int | None = None) -> tuple[int, ...]:
        node = self.node if node is None else node
        return tuple(range(node * GPUS, node * GPUS + GPUS))

    def fail(self, category: Category, gpu: int | None, xid: int | None, ending: Ending, shape: str) -> Ending:
        """The label, and the reboot with which the node comes back."""
        back = dict(ending.away)[self.node]
        name = self.story.fleet.names[self.node]
        within = None if gpu is None else gpu % GPUS
        self.story.failures.append(Failure(name, within, category, xid, self.at, back, shape))
        off = self.story.minutes(5, 12)
        self.effects.reboot(self.node, back - off - 2 * MINUTE, off)
        return ending

    def down(self, kill: float = 0.55, hours: tuple[float, float] = (2, 30)) -> Ending:
        """The synchronous run stops everywhere: at once, or it waits for the lost rank until NCCL's timeout."""
        story = self.story
        if self.dice.random() < kill:
            stops = self.at + self.dice.randint(5, 120)
            ends = stops + self.dice.randint(15, 120)
        else:
            stops = self.at
            ends = self.at + story.minutes(10, 32)
        return Ending(stops, ends, away=((self.node, ends + story.hours(*hours)),))
