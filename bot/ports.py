"""What the core needs of the world. Only adapters know an SDK; the sandbox and the replay implement these too."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from bot.model import (
    Action,
    AppXid,
    Argv,
    Checkpoint,
    Cluster,
    JobNote,
    Mark,
    Next,
    Observation,
    Report,
    Role,
    StorageView,
)

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from bot.policy import Signal
    from bot.storage.window import Span


@dataclass(frozen=True, slots=True)
class Matrix:
    """One value per host and time. values: float64 (T, N), NaN = nothing there. hosts: label sets' node names
    as the site's rule maps them; `known` tells which of them are nodes of the scheduler."""

    hosts: tuple[str, ...]
    known: tuple[bool, ...]
    times: NDArray[np.int64]
    values: NDArray[np.float64]


class MetricSource(Protocol):
    """One signal for all hosts over a time range. Raises SourceError; partial data is an error, not a value."""

    def matrix(self, signal: Signal, start: int, end: int, step: int, nodes: Collection[str]) -> Matrix: ...


@runtime_checkable
class XidSource(Protocol):
    """A MetricSource that tells GPUs apart."""

    def xids(self, signal: Signal, at: int, nodes: Collection[str]) -> Sequence[AppXid]:
        """The application's Xids (bot.signals.xid) that the signal's query shows at `at`, on these nodes. Raises
        SourceError."""
        ...


class Scheduler(Protocol):
    """The queue. `watch`: jobs that must be in the answer though they may have left the queue."""

    def snapshot(self, now: int, watch: Collection[str] = ()) -> Cluster:
        """Raises SourceError when nothing can be read; what is partly unknown is named in the answer."""
        ...

    def next_command(self, action: Action, cluster: Cluster) -> Next:
        """Pure: what is still missing for this action, given the cluster as it is. Asked again after every step,
        error or crash."""
        ...


class Gate(Protocol):
    """The only way to change the scheduler."""

    def run(self, argv: Argv, key: str) -> Report:
        """Raises GateError when the gate itself could not be run."""
        ...


class CheckpointSource(Protocol):
    """Newest completed saves. Empty = not measured, never 'none made'."""

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        """jobs: job id → the names it may be known by (id, job name, session name)."""
        ...


class MarkSource(Protocol):
    """A log or another tool that tells of nodes. name: as it is called among the sources; signals: what it can tell."""

    name: str
    signals: Collection[str]

    def marks(self, since: int, now: int, nodes: Collection[str]) -> Sequence[Mark]:
        """What happened from `since` to now, in any order; asked again, it tells the same again. Raises SourceError."""
        ...


@dataclass(frozen=True, slots=True)
class JobPlace:
    """Where the log of a job's newest attempt lies. path: may be a glob. due: it ended or hangs, so that it is worth
    reading now; others are followed now and then. start: of the attempt; what is older is another one's."""

    path: str
    attempt: str
    due: bool
    nodes: tuple[str, ...] = ()
    start: int | None = None
    ranks: int | None = None


class JobLogSource(Protocol):
    """The jobs' own logs."""

    def notes(self, now: int, jobs: Mapping[str, JobPlace]) -> Sequence[JobNote]:
        """jobs: job id → its log. What is known of those that are due; a log that does not answer raises nothing."""
        ...


class StorageSource(Protocol):
    """The file system's counters, judged. Empty = not measured, never 'all is well'."""

    def look(self, at: int, spans: Sequence[Span], nodes: Collection[str]) -> tuple[StorageView, ...]:
        """How the mounts stand at `at`. spans: runs on their nodes since `history` (bot.storage.numbers), those that
        ended too; nodes: all of the scheduler. Raises SourceError; asked again it goes on from where it was."""
        ...


class Observer(Protocol):
    """Live or replayed eyes."""

    def observe(self, now: int) -> Observation: ...


class Roles(Protocol):
    """Who may do what. None = nobody we know. Unknown group membership is nobody."""

    def of(self, user: str) -> Role | None: ...


@dataclass(frozen=True, slots=True)
class Posted:
    """Where a message stands."""

    channel: str
    ts: str


class Chat(Protocol):
    """Slack. Raises Unreachable (RateLimited carries the wait; `maybe_done`: look before asking again), Rejected
    (with Slack's code) or AuthFailed."""

    def post(self, channel: str, text: str, blocks: Sequence[dict[str, object]], thread: str = "") -> Posted: ...

    def update(self, at: Posted, text: str, blocks: Sequence[dict[str, object]]) -> None: ...

    def find(self, channel: str, block_id: str, since: int, thread: str = "") -> Posted | None:
        """The message of ours that carries this block id: asked after an unclear post."""
        ...

    def whisper(self, channel: str, user: str, text: str, thread: str = "", response_url: str = "") -> None:
        """Shows a text to one person. response_url: the answer address that came with what they typed or
        clicked; it works where the bot is no member, for 30 min."""
        ...
