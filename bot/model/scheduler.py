"""What the scheduler shows: nodes and who holds them, jobs and their attempts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

HolderKind = Literal["xidbot", "person", "health", "maintenance", "controller"]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who keeps a node from new work, as the scheduler tells it. `tag` is ours only (`412.1`, `r7`)."""

    kind: HolderKind
    by: str
    why: str
    tag: str = ""
    since: int | None = None


@dataclass(frozen=True, slots=True)
class Node:
    """One machine. `state` is the scheduler's spelling, for people; `up` and `open` are what we act on.

    open: takes new work (nobody holds it, it answers, no reboot pending). gpus: expected count, None = unknown.
    """

    name: str
    state: str
    up: bool
    open: bool
    holders: tuple[Holder, ...] = ()
    gpus: int | None = None
    gpus_used: int = 0
    full: bool = False  # no CPU or memory left, whatever its GPUs say
    features: frozenset[str] = frozenset()
    partitions: tuple[str, ...] = ()
    booted: int | None = None

    @property
    def ours(self) -> Holder | None:
        """Our own hold, if the scheduler shows one."""
        return next((h for h in self.holders if h.kind == "xidbot"), None)

    @property
    def others(self) -> tuple[Holder, ...]:
        """Holders who are not us: never overwritten, never lifted."""
        return tuple(h for h in self.holders if h.kind != "xidbot")


FAILED = frozenset({"FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "BOOT_FAIL", "LAUNCH_FAILED"})
RERUN = frozenset({"REQUEUED", "NODE_FAIL", "PREEMPTED"})  # ends after which the scheduler may run it again
ALIVE = frozenset({"RUNNING", "SUSPENDED", "COMPLETING", "STOPPED"})
ENDED = FAILED | RERUN | frozenset({"COMPLETED", "CANCELLED", "TIMEOUT", "DEADLINE", "REVOKED"})
Origin = Literal["auto", "approved", "command", "external", "scheduler", "in_job", "unattributed"]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run of a session: job and restart ordinal name it, times are only attributes.

    state: the scheduler's base state in capitals; "LOST" when it is gone and nothing tells how it ended.
    """

    job: str
    ordinal: int
    state: str
    nodes: tuple[str, ...] = ()
    start: int | None = None
    end: int | None = None
    exit_code: str = ""
    origin: Origin | None = None

    @property
    def id(self) -> str:
        return f"{self.job}#{self.ordinal}"

    @property
    def alive(self) -> bool:
        return self.state in ALIVE

    @property
    def started(self) -> bool:
        """It really ran: a pending attempt's start is only an estimate."""
        return self.start is not None and self.state != "PENDING"


@dataclass(frozen=True, slots=True)
class Job:
    """The scheduler's record of one job, with every attempt that it or its accounting still knows, in order."""

    id: str
    name: str
    user: str
    state: str
    account: str = ""
    partition: str = ""
    qos: str = ""
    comment: str = ""
    why: str = ""  # the scheduler's reason for the state
    node_count: int = 1
    gpus_per_node: int = 0
    batch: bool = True
    requeue: bool = True
    submit: int = 0
    first_submit: int = 0
    time_limit: int | None = None
    features: frozenset[str] = frozenset()
    reservation: str = ""
    required: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()
    dependency: str = ""
    begin: int | None = None  # pending, and not before this: its owner's wish, or the scheduler's delay after a requeue
    queued: bool = True  # False: only accounting still knows it, so nothing can be done to it
    attempts: tuple[Attempt, ...] = ()

    @property
    def latest(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None


@dataclass(frozen=True, slots=True)
class Reservation:
    """Nodes promised to somebody for a while. `maintenance`: nothing should run on them then."""

    name: str
    nodes: frozenset[str]
    start: int
    end: int
    maintenance: bool = False


@dataclass(frozen=True, slots=True)
class Cluster:
    """The scheduler at one moment. `unknown` lists what could not be read; nothing may be concluded from it."""

    name: str
    at: int
    nodes: Mapping[str, Node]
    jobs: Mapping[str, Job]
    reservations: tuple[Reservation, ...] = ()
    unknown: tuple[str, ...] = ()
