"""NFS counters from Prometheus for the storage watch: raw values on a grid, and when each was scraped.

Inner `max by` counts a mount once that is told twice (mounted twice, scraped by a pair), outer `sum by` adds up what
belongs together (one line per connection, several addresses of one server).
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bot.errors import BadReply
from bot.model import StorageView
from bot.sources.prometheus import PrometheusSource
from bot.storage.numbers import MountFacts, StorageNumbers
from bot.storage.watch import Row, StorageWatch
from bot.storage.window import (
    DATA,
    LINK_IN,
    LINK_OUT,
    OPERATION_COUNTERS,
    RETRANSMITTED,
    Floats,
    Key,
    Span,
    StorageWindow,
)

PART = 3600  # s asked at once: an hour of 63 nodes is some ten megabytes of answers
NFS = "node_mountstats_nfs_"
NAME = re.compile(rf"{NFS}(operations|transport)_(.+)")
MOVING = "|".join(DATA)
# Of operations that move no data only what is needed for their share of the time.
OTHERS = ("requests", "request_time_seconds")
IDLE = ("NULL",)


def _names(kind: str, counters: Sequence[str]) -> str:
    return f'__name__=~"{NFS}{kind}_({"|".join(counters)})"'


def queries(labels: Sequence[str]) -> dict[str, str]:
    """Name → PromQL. labels: where the site's node names may stand."""
    by = ", ".join(labels)
    mount = f"__name__, {by}, export"
    each = f"{mount}, protocol, mountaddr, transport"
    data = _names("operations", [f"{c}_total" for c in OPERATION_COUNTERS])
    rest = _names("operations", [f"{c}_total" for c in OTHERS])
    transport = _names("transport", ("backlog_queue_total", "sends_total", "receives_total", "maximum_rpc_slots"))
    return {
        "data": f'sum by ({mount}, operation) (max by ({each}, operation) ({{{data}, operation=~"{MOVING}"}}))',
        "others": f"sum by ({mount}, operation) (max by ({each}, operation) "
        f'({{{rest}, operation!~"{MOVING}|{"|".join(IDLE)}"}})) > 0',
        "transport": f"sum by ({mount}) (max by ({each}) ({{{transport}}}))",
        "sampled": f'max by ({by}) (timestamp({NFS}operations_requests_total{{operation=~"READ|WRITE"}}))',
        RETRANSMITTED: f"max by ({by}) (node_nfs_rpc_retransmissions_total)",
        LINK_OUT: _link(labels, "transmit", "transmitted"),
        LINK_IN: _link(labels, "receive", "received"),
    }


def _link(labels: Sequence[str], ethernet: str, infiniband: str) -> str:
    """Use of a node's busiest link. RoCE does not show in Ethernet's counters, so both are asked."""
    return (
        f"max by ({', '.join(labels)}) ("
        + _used(labels, "device", f"network_{ethernet}_bytes_total", "network_speed_bytes")
        + " or "
        + _used(
            labels, "device, port", f"infiniband_port_data_{infiniband}_bytes_total", "infiniband_rate_bytes_per_second"
        )
        + ")"
    )


def _used(labels: Sequence[str], ports: str, counter: str, speed: str) -> str:
    """Two minutes hold two scrapes of a minute. `max by` on both sides: one for one, however often it is scraped."""
    on = ", ".join(dict.fromkeys((*labels, "instance", *ports.split(", "))))
    return f"max by ({on}) (rate(node_{counter}[2m])) / on ({on}) (max by ({on}) (node_{speed}) > 0)"


@dataclass
class PrometheusStorage:
    """Implements ports.StorageSource. The first look reads `history` again, so a restart changes nothing."""

    metrics: PrometheusSource
    labels: Sequence[str]
    numbers: StorageNumbers
    facts: MountFacts = field(default_factory=MountFacts)
    _watch: StorageWatch | None = None
    _newest: Row | None = None

    def look(self, at: int, spans: Sequence[Span], nodes: Collection[str]) -> tuple[StorageView, ...]:
        """Raises SourceError; what was read before that is kept, and the next look goes on from there."""
        at = at // self.numbers.step * self.numbers.step
        if self._watch is None and not spans:
            return ()  # a new site's runs are known after the first look: what was before must be read with them
        watch, start = self._going_on(at)
        if start <= at and not self._measured(at):
            self._watch = None
            return ()
        for first in range(start, at + 1, PART):
            last = min(at, first + PART - self.numbers.step)
            self._newest = deque(watch.feed(self.window(first, last, nodes), spans), maxlen=1)[0]
        return self._newest.views if self._newest else ()

    def _going_on(self, at: int) -> tuple[StorageWatch, int]:
        """The watch and its next row; a new one at first, and after a silence longer than what it remembers."""
        last = self._watch.last if self._watch else None
        if self._watch is None or last is None or at - last > self.numbers.history:
            self._watch = StorageWatch(self.numbers, self.facts)
            self._newest = None
            return self._watch, at - self.numbers.history
        return self._watch, last + self.numbers.step

    def _measured(self, at: int) -> bool:
        """Whether any node tells of an NFS mount at all: without, there is nothing to ask for."""
        return self._newest is not None or bool(self.metrics.instant(f"count({NFS}operations_requests_total)", at))

    # -- asking --------------------------------------------------------------------------------------------------------

    def window(self, start: int, end: int, nodes: Collection[str]) -> StorageWindow:
        """A row for each step from start to end, both included. Hosts that are no nodes of ours are left out."""
        times = np.arange(start, end + 1, self.numbers.step, dtype=np.int64)
        asked = queries(self.labels)
        mounts: dict[tuple[Key, str, str], Floats] = {}
        hosts: dict[str, dict[str, Floats]] = {name: {} for name in ("sampled", RETRANSMITTED, LINK_OUT, LINK_IN)}
        for name in ("data", "others", "transport"):
            for key, node, export, column in self._mounts(asked[name], times, nodes):
                known = mounts.get((key, node, export))
                mounts[key, node, export] = column if known is None else np.fmax(known, column)
        for name, found in hosts.items():
            with suppress(*(() if name == "sampled" else (BadReply,))):  # a link that cannot be measured stops nothing
                for node, _, column in self._columns(asked[name], times, nodes):
                    found[node] = np.fmax(found[node], column) if node in found else column
        return _window(times, mounts, hosts)

    def _mounts(
        self, query: str, times: NDArray[np.int64], nodes: Collection[str]
    ) -> Iterator[tuple[Key, str, str, Floats]]:
        for node, labels, column in self._columns(query, times, nodes):
            told = NAME.fullmatch(labels.get("__name__", ""))
            if told and labels.get("export"):
                counter = told[2].removesuffix("_total") if told[1] == "operations" else told[2]
                yield (counter, labels.get("operation", "")), node, labels["export"], column

    def _columns(
        self, query: str, times: NDArray[np.int64], nodes: Collection[str]
    ) -> Iterator[tuple[str, Mapping[str, str], Floats]]:
        step = self.numbers.step
        for labels, points in self.metrics.series(query, int(times[0]), int(times[-1]), step):
            node, known = self.metrics.host(labels, nodes)
            if known:
                column = np.full(len(times), np.nan)
                rows = np.rint((points[:, 0] - times[0]) / step).astype(np.intp)
                inside = (rows >= 0) & (rows < len(times))
                column[rows[inside]] = points[inside, 1]
                yield node, labels, column


def _window(
    times: NDArray[np.int64], mounts: Mapping[tuple[Key, str, str], Floats], hosts: Mapping[str, Mapping[str, Floats]]
) -> StorageWindow:
    nodes = tuple(sorted({node for _, node, _ in mounts}))
    exports = tuple(sorted({export for _, _, export in mounts}))
    rows, places = {n: i for i, n in enumerate(nodes)}, {e: i for i, e in enumerate(exports)}
    counters: dict[Key, Floats] = {}
    for (key, node, export), column in mounts.items():
        if key not in counters:
            counters[key] = np.full((len(times), len(nodes), len(exports)), np.nan)
        counters[key][:, rows[node], places[export]] = column

    def spread(found: Mapping[str, Floats]) -> Floats:
        values = np.full((len(times), len(nodes)), np.nan)
        for node, column in found.items():
            if node in rows:
                values[:, rows[node]] = column
        return values

    told = {name: spread(hosts[name]) for name in (RETRANSMITTED, LINK_OUT, LINK_IN) if hosts[name]}
    return StorageWindow(times, nodes, exports, counters, spread(hosts["sampled"]), told)
