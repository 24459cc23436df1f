"""The counters of a stretch of time, and who ran where: all that the storage watch looks at."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bot.model import Session

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Key = tuple[str, str]  # (what is counted, operation); the operation is empty for what belongs to the transport

# As node_exporter names them between `node_mountstats_nfs_operations_` and `_total`.
OPERATION_COUNTERS = (
    "requests",
    "transmissions",
    "sent_bytes",
    "received_bytes",
    "queue_time_seconds",
    "response_time_seconds",
    "request_time_seconds",
)
# `node_mountstats_nfs_transport_…`; the slots are a gauge.
BACKLOG, SENDS, RECEIVES, SLOTS = "backlog_queue_total", "sends_total", "receives_total", "maximum_rpc_slots"
# Of a node, not of a mount: retransmitted RPCs (counter), and the busiest link's use in both directions (0..1).
RETRANSMITTED, LINK_OUT, LINK_IN = "retransmitted", "link_out", "link_in"
DATA = ("READ", "WRITE", "COMMIT")


@dataclass(frozen=True, slots=True)
class StorageWindow:
    """Counters on a grid. times: int64 (T,), evenly spaced. counters: (T, N, E) per key; hosts: (T, N) per name; NaN =
    nothing there, a missing key = nobody measures it. sampled: (T, N), when the value shown was scraped (Unix seconds);
    the grid's own times where that is not known."""

    times: NDArray[np.int64]
    nodes: tuple[str, ...]
    exports: tuple[str, ...]
    counters: Mapping[Key, Floats]
    sampled: Floats
    hosts: Mapping[str, Floats] = field(default_factory=dict)

    def part(self, first: int, last: int) -> StorageWindow:
        """Rows first … last-1, without copying."""
        rows = slice(first, last)
        return StorageWindow(
            self.times[rows],
            self.nodes,
            self.exports,
            {key: values[rows] for key, values in self.counters.items()},
            self.sampled[rows],
            {name: values[rows] for name, values in self.hosts.items()},
        )


@dataclass(frozen=True, slots=True)
class Span:
    """A run on its nodes from start until end (None: it still runs). session: its key."""

    session: str
    nodes: tuple[str, ...]
    start: int
    end: int | None = None


def spans(sessions: Iterable[Session], since: int) -> list[Span]:
    """Every attempt of these runs that really ran and had not ended before `since`."""
    found = []
    for session in sessions:
        for attempt in session.attempts:
            ended = attempt.end if not attempt.alive else None
            told = attempt.alive or attempt.end is not None
            if (
                attempt.started
                and attempt.start is not None
                and attempt.nodes
                and told
                and (ended is None or ended > since)
            ):
                found.append(Span(session.key, attempt.nodes, attempt.start, ended))
    return found


def on_grid(times: NDArray[np.int64], stamps: Floats, values: Floats, lasts: int = 300) -> tuple[Floats, Floats]:
    """A series' raw samples as a query would show them: at each time the newest one not older than `lasts` s.

    stamps, values: (S,), in order. Returns (values, sampled), each (T,).
    """
    found = np.searchsorted(stamps, times, side="right") - 1
    at = np.maximum(found, 0)
    if not len(stamps):
        empty = np.full(len(times), np.nan)
        return empty, empty.copy()
    there = (found >= 0) & (times - stamps[at] < lasts)
    return np.where(there, values[at], np.nan), np.where(there, stamps[at], np.nan)


def everyone(window: StorageWindow, session: str = "") -> Sequence[Span]:
    """Where nobody knows which runs there were: all nodes as one run."""
    return (Span(session, window.nodes, int(window.times[0])),)
