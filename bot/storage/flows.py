"""From counters to what was done between two samples. Pure; rows go in order and may come in pieces of any size.

A counter's increment belongs to the row in which the newer sample arrived; a rate holds from there until the next one.
Counters that fell began anew (remount, reboot). The kernel's queue time can wrap below zero, and node_exporter shows it
modulo 2^53 ms: such a value is a small negative one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bot.storage.window import (
    BACKLOG,
    DATA,
    LINK_IN,
    LINK_OUT,
    RECEIVES,
    RETRANSMITTED,
    SENDS,
    SLOTS,
    Flags,
    Floats,
    Key,
    StorageWindow,
)

WRAP = 2.0**53 / 1000  # s
MOST_WAITING = 1e6  # requests of one node on one mount: more is a broken counter

# What is summed up of a save: name → the counters that make it.
SUMS: Mapping[str, tuple[Key, ...]] = {
    "write": (("sent_bytes", "WRITE"),),
    "read": (("received_bytes", "READ"),),
    "writes": (("requests", "WRITE"),),
    "reads": (("requests", "READ"),),
    # The time of COMMITs belongs to the WRITEs that they finish: a server may answer these at once and those late.
    "write_rtt": (("response_time_seconds", "WRITE"), ("response_time_seconds", "COMMIT")),
    "read_rtt": (("response_time_seconds", "READ"),),
    "write_queue": (("queue_time_seconds", "WRITE"), ("queue_time_seconds", "COMMIT")),
    "read_queue": (("queue_time_seconds", "READ"),),
    "write_wait": (("request_time_seconds", "WRITE"), ("request_time_seconds", "COMMIT")),
    "read_wait": (("request_time_seconds", "READ"),),
    "asked": (("requests", "WRITE"), ("requests", "READ"), ("requests", "COMMIT")),
    "sent_again": (("transmissions", "WRITE"), ("transmissions", "READ"), ("transmissions", "COMMIT")),
    "backlog": ((BACKLOG, ""),),
    "sends": ((SENDS, ""),),
    "receives": ((RECEIVES, ""),),
}
TIMES = frozenset(name for name in SUMS if name.endswith(("_rtt", "_queue", "_wait")))


@dataclass(frozen=True, slots=True)
class Flows:
    """What happened row by row. sums: name → (T, N, E) increments, 0 between samples and where nothing is known; a
    missing name is not measured. `done`: completed requests of every kind; `meta`, `meta_wait`: those that move no
    data. mix: operation → increments of its request time. rates: some sums per second, held to the next sample.
    fresh: (T, N), a new sample. known: (T, N, E). open: (T, N, E) requests sent and not answered, by the raw counters.
    """

    times: NDArray[np.int64]
    nodes: tuple[str, ...]
    exports: tuple[str, ...]
    fresh: Flags
    elapsed: Floats
    known: Flags
    sums: Mapping[str, Floats]
    rates: Mapping[str, Floats]
    mix: Mapping[str, Floats]
    open: Floats | None
    sent: Floats | None
    slots: Floats | None
    hosts: Mapping[str, Floats] = field(default_factory=dict)


@dataclass
class FlowMaker:
    """Keeps the last row, so that the next piece goes on from there. gap: s after which a sample tells nothing."""

    gap: int
    nodes: tuple[str, ...] = ()
    exports: tuple[str, ...] = ()
    _before: dict[Key, Floats] = field(default_factory=dict)
    _sampled: Floats = field(default_factory=lambda: np.empty(0))
    _rates: dict[str, Floats] = field(default_factory=dict)
    _again: Floats = field(default_factory=lambda: np.empty(0))

    def flows(self, window: StorageWindow) -> Flows:
        """The next piece. Nodes and exports may be added, never taken away: their order is kept."""
        window = self._aligned(window)
        sampled, before = _filled(window.sampled, self._sampled)
        elapsed = sampled - before
        fresh = ~np.isnan(window.sampled) & ((elapsed > 0) | np.isnan(before))
        there = _there(window)
        grown = {
            key: self._grown(key, values, fresh, there) for key, values in window.counters.items() if key[0] != SLOTS
        }
        self._sampled = sampled[-1]
        sums = _summed(grown, np.maximum(elapsed, 1.0))
        known = (window.times[:, None] - sampled <= self.gap)[:, :, None] & _last_there(there, fresh)
        hosts = {name: window.hosts[name] for name in (LINK_OUT, LINK_IN) if name in window.hosts}
        if RETRANSMITTED in window.hosts:
            hosts[RETRANSMITTED] = np.nan_to_num(self._host_grown(window.hosts[RETRANSMITTED], fresh))
        return Flows(
            times=window.times,
            nodes=window.nodes,
            exports=window.exports,
            fresh=fresh,
            elapsed=elapsed,
            known=known,
            sums={name: np.nan_to_num(values) for name, values in sums.items()},
            rates={name: self._held(name, sums[name], elapsed, fresh, known) for name in RATES if name in sums},
            mix={key[1]: np.nan_to_num(values) for key, values in grown.items() if key[0] == "request_time_seconds"},
            open=_open(window),
            sent=window.counters.get((SENDS, "")),
            slots=window.counters.get((SLOTS, "")),
            hosts=hosts,
        )

    # -- pieces that go on ---------------------------------------------------------------------------------------------

    def _aligned(self, window: StorageWindow) -> StorageWindow:
        """The window over every node and export that was ever seen, in the order in which they came."""
        nodes = (*self.nodes, *(n for n in window.nodes if n not in set(self.nodes)))
        exports = (*self.exports, *(e for e in window.exports if e not in set(self.exports)))
        self._widen(len(nodes), len(exports))
        self.nodes, self.exports = nodes, exports
        if (window.nodes, window.exports) == (nodes, exports):
            return window
        columns = np.array([nodes.index(n) for n in window.nodes], dtype=np.intp)
        mounts = np.array([exports.index(e) for e in window.exports], dtype=np.intp)

        def spread(values: Floats) -> Floats:
            wide = np.full((len(window.times), len(nodes), *((len(exports),) if values.ndim == 3 else ())), np.nan)
            if values.ndim == 3:
                wide[:, columns[:, None], mounts[None, :]] = values
            else:
                wide[:, columns] = values
            return wide

        return StorageWindow(
            window.times,
            nodes,
            exports,
            {key: spread(values) for key, values in window.counters.items()},
            spread(window.sampled),
            {name: spread(values) for name, values in window.hosts.items()},
        )

    def _widen(self, nodes: int, exports: int) -> None:
        def wide(values: Floats) -> Floats:
            made = np.full((nodes, exports), np.nan)
            made[: values.shape[0], : values.shape[1]] = values
            return made

        def longer(values: Floats) -> Floats:
            return np.concatenate([values, np.full(nodes - len(values), np.nan)])

        self._before = {key: wide(values) for key, values in self._before.items()}
        self._rates = {name: wide(values) for name, values in self._rates.items()}
        self._sampled, self._again = longer(self._sampled), longer(self._again)

    def _grown(self, key: Key, values: Floats, fresh: Flags, there: Flags) -> Floats:
        if key[1]:  # an operation shows up when it is first used: until then it stood at zero
            values = np.where(np.isnan(values) & there, 0.0, values)
        if key[0] == "queue_time_seconds":
            values = np.where(values > WRAP / 2, values - np.rint(values / WRAP) * WRAP, values)
        start = self._before.get(key)
        filled, before = _filled(values, np.full(values.shape[1:], np.nan) if start is None else start)
        self._before[key] = filled[-1]
        return _increments(values, before, fresh[:, :, None])

    def _host_grown(self, values: Floats, fresh: Flags) -> Floats:
        filled, before = _filled(values, self._again)
        self._again = filled[-1]
        return _increments(values, before, fresh)

    def _held(self, name: str, grown: Floats, elapsed: Floats, fresh: Flags, known: Flags) -> Floats:
        """The rate of the newest interval, for as long as that sample tells something."""
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = grown / elapsed[:, :, None]
        newest = np.maximum.accumulate(np.where(fresh, np.arange(len(fresh))[:, None], -1), axis=0)[:, :, None]
        taken = np.take_along_axis(rates, np.maximum(newest, 0), axis=0)
        start = self._rates.get(name)
        held = np.where(newest >= 0, taken, np.nan if start is None else start)
        self._rates[name] = held[-1]
        return np.where(known, held, np.nan)


RATES = ("write", "read", "done", "write_wait", "read_wait", "meta_wait")


def _filled(values: Floats, start: Floats) -> tuple[Floats, Floats]:
    """(with the newest value where there is none, the same one row earlier)."""
    whole = np.concatenate([start[None], values])
    rows = np.arange(len(whole)).reshape(-1, *(1,) * (values.ndim - 1))
    newest = np.maximum.accumulate(np.where(np.isnan(whole), 0, rows), axis=0)
    filled = np.take_along_axis(whole, newest, axis=0)
    return filled[1:], filled[:-1]


def _increments(values: Floats, before: Floats, fresh: Flags) -> Floats:
    """Since the sample before. One that fell to less than half began anew; one that fell a little is a rounding."""
    with np.errstate(invalid="ignore"):
        grown = values - before
        anew = np.where(values < before / 2, np.maximum(values, 0.0), 0.0)
        grown = np.where(grown < 0, anew, grown)
    return np.where(fresh, grown, 0.0)


def _there(window: StorageWindow) -> Flags:
    """(T, N, E): the mount showed counters."""
    there = np.zeros((len(window.times), len(window.nodes), len(window.exports)), dtype=bool)
    for values in window.counters.values():
        there |= ~np.isnan(values)
    return there


def _last_there(there: Flags, fresh: Flags) -> Flags:
    """The same, kept between samples: a row without a new sample tells nothing new."""
    return there | ~fresh[:, :, None]


def _summed(grown: Mapping[Key, Floats], elapsed: Floats) -> dict[str, Floats]:
    sums = {name: _sum(grown[key] for key in keys if key in grown) for name, keys in SUMS.items() if keys[0] in grown}
    sums |= _of_all(grown, "requests", "done", DATA[:0]) | _of_all(grown, "requests", "meta", DATA)
    sums |= _of_all(grown, "request_time_seconds", "meta_wait", DATA)
    for name in (*TIMES, "meta_wait"):
        if name in sums:
            broken = sums[name] > MOST_WAITING * elapsed[:, :, None]
            sums[name] = np.where(broken, 0.0, sums[name])
    return sums


def _of_all(grown: Mapping[Key, Floats], what: str, name: str, without: Sequence[str]) -> dict[str, Floats]:
    found = [values for (counter, operation), values in grown.items() if counter == what and operation not in without]
    return {name: _sum(found)} if found else {}


def _sum(parts: Iterable[Floats]) -> Floats:
    total: Floats | None = None
    for part in parts:
        total = part.copy() if total is None else np.add(total, part, out=total)
    assert total is not None
    return total


def _open(window: StorageWindow) -> Floats | None:
    sends, receives = window.counters.get((SENDS, "")), window.counters.get((RECEIVES, ""))
    return sends - receives if sends is not None and receives is not None else None
