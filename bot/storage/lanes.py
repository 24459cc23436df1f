"""The flows of one run on one mount, cut out for it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.storage.flows import Flows
from bot.storage.waiting import Wait
from bot.storage.window import RETRANSMITTED, Flags, Floats

# What is summed up of a burst, by its direction: (bytes, requests, round trips, queue, whole time).
SAVE = ("write", "writes", "write_rtt", "write_queue", "write_wait")
LOAD = ("read", "reads", "read_rtt", "read_queue", "read_wait")
OTHERS = ("done", "meta", "meta_wait", "asked", "sent_again", "backlog", "sends", "lost")


@dataclass(frozen=True, slots=True)
class Side:
    """One direction. total: bytes/s of all (T,). each: bytes/s (T, n). waits: requests in flight or queued (T, n);
    meta: those that move no data; None where nobody measures it."""

    names: tuple[str, ...]
    total: Floats
    each: Floats
    waits: Floats | None
    meta: Floats | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """T rows of n nodes. scrape: s between samples, as last seen (T,). known: enough of the nodes could be read (T,).
    sums: name → (T, n). pending and stuck are None where open requests are not measured: samples and seconds without a
    completion, and whether somebody wants something, (T, n) each."""

    times: NDArray[np.int64]
    nodes: tuple[str, ...]
    export: str
    known: Flags
    scrape: Floats
    sums: Mapping[str, Floats]
    mix: Mapping[str, Floats]
    save: Side
    load: Side
    pending: Floats | None
    stuck: Floats | None
    stuck_samples: NDArray[np.int64] | None
    wanted: Flags | None
    slots: Floats | None


def lane(flows: Flows, wait: Wait | None, columns: NDArray[np.intp], mount: int) -> Lane:
    def cut(values: Floats) -> Floats:
        return values[:, columns, mount]

    sums = {name: cut(values) for name, values in flows.sums.items()}
    if RETRANSMITTED in flows.hosts:
        sums["lost"] = flows.hosts[RETRANSMITTED][:, columns]
    known = flows.known[:, columns, mount]
    return Lane(
        times=flows.times,
        nodes=tuple(flows.nodes[i] for i in columns),
        export=flows.exports[mount],
        known=known.mean(axis=1) >= 0.5 if len(columns) else np.zeros(len(flows.times), dtype=bool),
        scrape=_scrape(flows.elapsed[:, columns], flows.fresh[:, columns]),
        sums=sums,
        mix={name: cut(values) for name, values in flows.mix.items()},
        save=_side(SAVE, flows, columns, mount, "write_wait"),
        load=_side(LOAD, flows, columns, mount, "read_wait"),
        pending=cut(wait.pending) if wait else None,
        stuck=cut(wait.seconds) if wait else None,
        stuck_samples=wait.samples[:, columns, mount] if wait else None,
        wanted=wait.wanted[:, columns, mount] if wait else None,
        slots=cut(flows.slots) if flows.slots is not None else None,
    )


def _side(names: tuple[str, ...], flows: Flows, columns: NDArray[np.intp], mount: int, wait: str) -> Side:
    if names[0] not in flows.rates:
        nothing = np.full((len(flows.times), len(columns)), np.nan)
        return Side(names, np.zeros(len(flows.times)), nothing, None)
    each = flows.rates[names[0]][:, columns, mount]
    waits = meta = None
    if wait in flows.rates:
        waits = np.nan_to_num(flows.rates[wait][:, columns, mount])
        if names is SAVE and "meta_wait" in flows.rates:
            meta = np.nan_to_num(flows.rates["meta_wait"][:, columns, mount])
            waits = waits + meta
    return Side(names, np.nansum(each, axis=1), each, waits, meta)


def _scrape(elapsed: Floats, fresh: Flags) -> Floats:
    """The median of what arrived in a row; NaN where nothing did."""
    masked = np.where(fresh, elapsed, np.nan)
    found = np.full(len(masked), np.nan)
    some = ~np.isnan(masked).all(axis=1)
    if some.any():
        found[some] = np.nanmedian(masked[some], axis=1)
    return found
