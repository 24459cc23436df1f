"""NFS counters of a cluster that saves and loads, moved by Little's law: requests in flight = completed/s × trip.

A save is closed-loop: each node has so many pages to write and keeps `PAGES` of them in hand. What can be in flight is
limited by the slots, the rest queues in the client; what completes is limited by pace, slots, link and server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bot.storage.window import (
    BACKLOG,
    LINK_IN,
    LINK_OUT,
    OPERATION_COUNTERS,
    RECEIVES,
    SENDS,
    SLOTS,
    Key,
    Span,
    StorageWindow,
)

Floats = NDArray[np.float64]
TICK = 5  # s of the simulation
MB = 1e6
SIZE = 2.0**20  # bytes of a WRITE or READ
PAGES = 2048  # requests that one node's page cache holds
EXPORT = "storage-01:/export/ckpt"
PREFIX = "node_mountstats_nfs_"
OPERATIONS = ("READ", "WRITE", "COMMIT", "GETATTR", "OPEN")


@dataclass(frozen=True, slots=True)
class Spell:
    """From start until end something is otherwise (s since the beginning). node: only there; None = everywhere.

    what: `rtt` (round trips × value), `server` (bytes/s of all), `slots`, `link` (share taken), `loss` (share sent
    again), `metadata` (GETATTRs a node per s), `hang` (nothing is answered), `down` (no scrape, and it starts anew),
    `unscraped` (no samples of anybody), `write`, `read` (bytes/s that a node also does), `rest` (the share of each half
    minute in which a save hands over nothing), `files` (opens for each written request: many small files).
    """

    what: str
    start: int
    end: int
    value: float = 1.0
    node: int | None = None


@dataclass(frozen=True, slots=True)
class Save:
    """start: s since the beginning. bytes: of each node. nodes: how many take part. pace: bytes/s of one that is not
    held up. read: a load instead."""

    start: int
    bytes: float = 80e9
    nodes: int | None = None
    pace: float = 670 * MB
    read: bool = False


@dataclass(frozen=True)
class Site:
    """60 clients on one mount. slots: of a node in all; rdma: the mount reports 0 of them."""

    nodes: int = 60
    spares: int = 3
    rtt: float = 0.1
    slots: int = 1024
    link: float = 25e9
    server: float = 250e9
    scrape: int = 30
    hours: float = 6.0
    rdma: bool = False
    seed: int = 1
    start: int = 1_800_000_000
    saves: tuple[Save, ...] = ()
    spells: tuple[Spell, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"node-{i:02d}" for i in range(1, self.nodes + self.spares + 1))

    @property
    def span(self) -> Span:
        """The run on all nodes but the spares."""
        return Span("haein/123@1", self.names[: self.nodes], self.start)


def every(minutes: float, hours: float, first: float = 30, **facts: float) -> tuple[Save, ...]:
    """Saves with so many minutes from start to start."""
    starts = np.arange(first * 60, hours * 3600, minutes * 60)
    return tuple(Save(int(start), **facts) for start in starts)  # type: ignore[arg-type]


@dataclass
class _Node:
    """State of all nodes, (N,) each. left: bytes still to write or read in the save under way."""

    left: Floats
    pace: Floats
    reading: bool = False


@dataclass
class StorageCounters:
    """The counters of a site. `history`: key → (ticks, N), each as it stood after a tick."""

    site: Site
    history: dict[Key, Floats] = field(default_factory=dict)
    hosts: dict[str, Floats] = field(default_factory=dict)
    saved: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._count = len(self.site.names)
        self._ticks = int(self.site.hours * 3600) // TICK
        self._dice = np.random.default_rng(self.site.seed)
        self._offsets = self._dice.integers(0, self.site.scrape, self._count)
        self._play()

    # -- the simulation ------------------------------------------------------------------------------------------------

    def _play(self) -> None:
        now = {key: np.zeros(self._count) for key in _keys()}
        waiting = sorted(self.site.saves, key=lambda s: s.start)
        node = _Node(np.zeros(self._count), np.zeros(self._count))
        began = 0
        self.history = {key: np.zeros((self._ticks, self._count)) for key in now}
        self.hosts = {name: np.zeros((self._ticks, self._count)) for name in (LINK_OUT, LINK_IN)}
        for tick in range(self._ticks):
            at = tick * TICK
            if waiting and at >= waiting[0].start and not node.left.any():
                began, node = at, self._begin(waiting.pop(0))
            busy = bool(node.left.any())
            self._step(tick, at, node, now)
            if busy and not node.left.any():
                self.saved.append((self.site.start + began, self.site.start + at + TICK))
            for key, values in now.items():
                self.history[key][tick] = values

    def _begin(self, save: Save) -> _Node:
        part = np.arange(self._count) < (save.nodes or self.site.nodes)
        size = save.bytes * self._dice.normal(1.0, 0.02, self._count)
        return _Node(np.where(part, size, 0.0), np.where(part, save.pace, 0.0), save.read)

    def _spell(self, what: str, at: int, nothing: float) -> Floats:
        values = np.full(self._count, nothing)
        for spell in self.site.spells:
            if spell.what == what and spell.start <= at < spell.end:
                values[slice(None) if spell.node is None else spell.node] = spell.value
        return values

    def _step(self, tick: int, at: int, node: _Node, now: dict[Key, Floats]) -> None:
        hung = self._spell("hang", at, 0) > 0
        if (self._spell("down", at, 0) > 0).any():
            for values in now.values():
                values[self._spell("down", at, 0) > 0] = 0
        writing, reading = (0.0, 1.0) if node.reading else (1.0, 0.0)
        moved, rtt, flight = self._bulk(at, node, hung)
        node.left = np.maximum(0.0, node.left - np.where(node.left <= moved, node.left, moved))
        queued = np.where(moved > 0, np.maximum(0.0, PAGES - flight), 0.0) * (flight >= self._slots(at) * 0.99)
        also_write = np.where(hung, 0, self._spell("write", at, 0)) * TICK
        also_read = np.where(hung, 0, self._spell("read", at, 0)) * TICK
        noise = self._noise(hung)
        self._count_up(now, "WRITE", moved * writing + also_write + noise, rtt, queued * writing, at)
        self._count_up(now, "READ", moved * reading + also_read, rtt, queued * reading, at)
        self._few(now, "COMMIT", np.where(moved * writing > 0, 0.2, 0.0), rtt)
        asked = np.where(hung, 0, self._spell("metadata", at, 0.2))
        slow = np.where(asked > 10, 0.02 * asked / 100, 0.01)
        self._few(now, "GETATTR", asked, slow)
        self._few(now, "OPEN", asked / 4, slow)
        self._few(now, "OPEN", moved * writing / SIZE / TICK * self._spell("files", at, 0.0), rtt)
        self._transport(now, at, moved, flight, queued, hung)
        taken = self._spell("link", at, 0.0)
        self.hosts[LINK_OUT][tick] = np.minimum(1.0, moved * writing / TICK / self.site.link + taken)
        self.hosts[LINK_IN][tick] = np.minimum(1.0, moved * reading / TICK / self.site.link + taken * reading)

    def _slots(self, at: int) -> Floats:
        return self._spell("slots", at, self.site.slots)

    def _bulk(self, at: int, node: _Node, hung: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
        """(bytes in this tick, round trip, requests in flight) of the save or load."""
        slots = np.minimum(self._slots(at), PAGES)
        rtt = self.site.rtt * self._spell("rtt", at, 1.0) * self._dice.normal(1.0, 0.03, self._count)
        active = (node.left > 0) & ~hung & (at % 30 >= 30 * self._spell("rest", at, 0.0))
        loss = self._spell("loss", at, 0.0)
        rate = np.minimum(node.pace, slots * SIZE / rtt)
        rate = np.minimum(rate, self.site.link * (1 - self._spell("link", at, 0.0)))
        rate = np.where(active, rate * (1 - 20 * np.minimum(loss, 0.049)), 0.0)
        server = float(self._spell("server", at, self.site.server)[0])
        if rate.sum() > server:
            rate = rate * server / rate.sum()
        held_up = active & (rate < node.pace * 0.95)
        by_slots = np.isclose(rate, slots * SIZE / rtt)
        flight = np.where(active, rate / SIZE * rtt, 0.0)
        late = held_up & ~by_slots  # server, link or losses hold it up: the slots fill and answers come later
        rtt = np.where(late, slots * SIZE / np.maximum(rate, 1.0), rtt)
        return rate * TICK, rtt, np.where(late, slots, flight)

    def _noise(self, hung: NDArray[np.bool_]) -> Floats:
        """Logs and metrics of the run."""
        return np.where(hung, 0.0, self._dice.random(self._count) * 2e3 * TICK)

    def _count_up(self, now: dict[Key, Floats], op: str, size: Floats, rtt: Floats, queued: Floats, at: int) -> None:
        requests = size / SIZE
        again = requests * self._spell("loss", at, 0.0)
        now["requests", op] += requests
        now["transmissions", op] += requests + again
        now["sent_bytes" if op == "WRITE" else "received_bytes", op] += size
        now["sent_bytes" if op != "WRITE" else "received_bytes", op] += requests * 160
        now["response_time_seconds", op] += requests * rtt
        now["queue_time_seconds", op] += queued * TICK
        now["request_time_seconds", op] += requests * rtt + queued * TICK

    def _few(self, now: dict[Key, Floats], op: str, rate: Floats, rtt: Floats) -> None:
        requests = rate * TICK
        for name in ("requests", "transmissions"):
            now[name, op] += requests
        for name in ("sent_bytes", "received_bytes"):
            now[name, op] += requests * 200
        for name in ("response_time_seconds", "request_time_seconds"):
            now[name, op] += requests * rtt

    def _transport(
        self, now: dict[Key, Floats], at: int, moved: Floats, flight: Floats, queued: Floats, hung: NDArray[np.bool_]
    ) -> None:
        done = sum(now["requests", op] for op in OPERATIONS)
        stuck = np.where(hung, np.maximum(now[SENDS, ""] - now[RECEIVES, ""], 4.0), 0.0)
        now[RECEIVES, ""] = np.floor(done)
        more = np.where(hung, stuck + (at // 60 % 2), np.floor(flight))
        now[SENDS, ""] = np.where(hung, np.maximum(now[SENDS, ""], now[RECEIVES, ""] + more), now[RECEIVES, ""] + more)
        now[BACKLOG, ""] += queued * moved / SIZE
        now[SLOTS, ""] = np.zeros(self._count) if self.site.rdma else self._slots(at)

    # -- as it is scraped ----------------------------------------------------------------------------------------------

    def window(self, step: int = 30) -> StorageWindow:
        """On a grid, as Prometheus would show it."""
        times = np.arange(self.site.start, self.site.start + self._ticks * TICK, step, dtype=np.int64)
        taken, sampled = self._taken(times)

        def shown(history: Floats) -> Floats:
            values = np.take_along_axis(history, np.maximum(taken, 0), axis=0)
            return np.where(taken >= 0, values, np.nan)

        return StorageWindow(
            times=times,
            nodes=self.site.names,
            exports=(EXPORT,),
            counters={key: shown(values)[:, :, None] for key, values in self.history.items()},
            sampled=sampled,
            hosts={name: shown(values) for name, values in self.hosts.items()},
        )

    def _taken(self, times: NDArray[np.int64]) -> tuple[NDArray[np.intp], Floats]:
        """(T, N): the tick of the sample shown, -1 where there is none; and when it was taken."""
        since = times[:, None] - self.site.start
        stamp = (since - self._offsets) // self.site.scrape * self.site.scrape + self._offsets
        gone = np.zeros(stamp.shape, dtype=bool)
        for spell in self.site.spells:
            if spell.what in ("unscraped", "down"):
                lost = (stamp >= spell.start) & (stamp < spell.end)
                gone |= lost if spell.node is None else lost & (np.arange(self._count) == spell.node)
        there = (stamp >= 0) & ~gone
        return np.where(there, stamp // TICK, -1), np.where(there, stamp + self.site.start, np.nan).astype(np.float64)

    def series(self) -> Iterator[tuple[str, Mapping[str, str], Floats, Floats]]:
        """(metric, labels, stamps, values) of every series as node_exporter would show it, sample by sample."""
        mount = {"export": EXPORT, "protocol": "rdma" if self.site.rdma else "tcp", "mountaddr": "10.0.0.1"}
        for column, node in enumerate(self.site.names):
            stamps = np.arange(self._offsets[column], self._ticks * TICK, self.site.scrape, dtype=np.int64)
            taken, _ = self._taken(stamps + self.site.start)
            kept = taken[:, column] >= 0
            for (what, operation), values in self.history.items():
                kind = "operations" if operation else "transport"
                name = f"{PREFIX}{kind}_{what}{'_total' if operation else ''}"
                labels = {"node": node, **mount, **({"operation": operation} if operation else {})}
                yield (
                    name,
                    labels,
                    (stamps[kept] + self.site.start).astype(np.float64),
                    values[taken[kept, column], column],
                )


def _keys() -> list[Key]:
    operations = [(what, op) for what in OPERATION_COUNTERS for op in OPERATIONS]
    return [*operations, *((what, "") for what in (SENDS, RECEIVES, BACKLOG, SLOTS))]
