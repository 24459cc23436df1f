"""What a file system's counters tell: bursts, stalls and where the time goes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verdict = Literal["client_slots", "server", "node_path", "link", "metadata", "unknown"]
StallRule = Literal["slow_save", "overdue_save", "hang", "slow_load"]
StoragePhase = Literal["quiet", "save", "load", "unknown"]


@dataclass(frozen=True, slots=True)
class Measures:
    """Where storage time goes now. Of a node unless it says otherwise, the median of the busy ones; None = not
    measured. op_mix: operation → share of request time; ceiling: bytes/s at slots × size / RTT."""

    queue_share: float | None = None
    in_flight: float | None = None
    slots: float | None = None  # times connections
    backlog: float | None = None
    rtt: float | None = None  # s
    rtt_usual: float | None = None
    retransmitted: float | None = None  # of requests
    worst_node: str = ""
    worst_rtt: float | None = None
    rate: float | None = None  # bytes/s of all
    rate_usual: float | None = None
    link_use: float | None = None
    op_mix: tuple[tuple[str, float], ...] = ()
    ceiling: float | None = None
    waiting_nodes: int = 0  # nodes on which requests wait and none completes
    nodes: int = 0
    missing: tuple[str, ...] = ()  # what would be needed to tell more


@dataclass(frozen=True, slots=True)
class Burst:
    """A save or a load as the file system's counters show it. end None = under way. slow: it stalled."""

    start: int
    end: int | None
    bytes: float
    nodes: int
    slow: bool = False


@dataclass(frozen=True, slots=True)
class StoragePoint:
    """A minute of a mount, from `at` on. rate: bytes/s of all nodes; queue_share, in_flight: as Measures has them."""

    at: int
    rate: float | None = None
    queue_share: float | None = None
    in_flight: float | None = None


@dataclass(frozen=True, slots=True)
class Stall:
    """A storage event. onset: when the rule became true. node: only where the verdict is node_path. ended: when it was
    over. usual: what a save (or the gap between two) takes, s. beyond: session key → seconds it cost beyond that.
    trace: the mount's last hour, of when it opened or, once it is over, of when it ended."""

    export: str
    rule: StallRule
    verdict: Verdict
    onset: int
    node: str = ""
    usual: int | None = None
    measures: Measures = Measures()
    ended: int | None = None
    beyond: tuple[tuple[str, int], ...] = ()
    trace: tuple[StoragePoint, ...] = ()


@dataclass(frozen=True, slots=True)
class SessionStorage:
    """One run on one mount. stalled: the rule that holds, or empty. onset: of that. beyond: seconds that its last
    stall cost beyond the usual, so far. normal_saves and calm_since: since that stall was over, or since we look.
    cadence: saves come often enough to wait for. saves: newest last."""

    session: str
    phase: StoragePhase
    stalled: StallRule | Literal[""] = ""
    onset: int | None = None
    usual: int | None = None
    beyond: int = 0
    normal_saves: int = 0
    calm_since: int | None = None
    cadence: bool = False
    saves: tuple[Burst, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageView:
    """One mount now. stall: the event that some of its runs are in, or None. known: it could be measured. trace: the
    last hour, while there is a stall and for some minutes after."""

    export: str
    sessions: tuple[SessionStorage, ...]
    stall: Stall | None = None
    known: bool = True
    trace: tuple[StoragePoint, ...] = ()
