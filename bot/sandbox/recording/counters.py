"""The recording's NFS counters as the storage watch wants them: what it would have asked Prometheus for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bot.sandbox.recording import promql
from bot.sandbox.recording.effects import Floats
from bot.sandbox.recording.families import MOUNT
from bot.sandbox.recording.fleet import STEP
from bot.sandbox.recording.recording import Recording
from bot.sandbox.recording.storage import OPERATIONS
from bot.sandbox.recording.view import MINUTES, View
from bot.storage.window import (
    BACKLOG,
    LINK_IN,
    LINK_OUT,
    OPERATION_COUNTERS,
    RECEIVES,
    SENDS,
    SLOTS,
    Key,
    StorageWindow,
)

NFS = "node_mountstats_nfs_"


def storage_window(recording: Recording, start: int, end: int) -> StorageWindow:
    """A row a minute from start to end, both included; start is a minute of the recording."""
    first = (start - recording.start) // STEP
    view = View(recording, first, (end - start) // STEP + 1)
    times = start + np.arange(view.asked, dtype=np.int64) * STEP
    names = recording.fleet.names
    links = {LINK_OUT: _link(view, "transmit", "transmitted"), LINK_IN: _link(view, "receive", "received")}
    return StorageWindow(times, names, (MOUNT["export"],), _counters(view), _sampled(view, times), links)


def _counters(view: View) -> dict[Key, Floats]:
    """(T, N, 1) each."""
    counters: dict[Key, Floats] = {}
    for what in OPERATION_COUNTERS:
        parts = view.by_node(view.now(f"{NFS}operations_{what}_total"))
        for column, operation in enumerate(OPERATIONS):
            counters[what, operation] = parts[:, :, column : column + 1]
    for what in (BACKLOG, SENDS, RECEIVES, SLOTS):
        counters[what, ""] = view.now(f"{NFS}transport_{what}")[:, :, None]
    return counters


def _sampled(view: View, times: NDArray[np.int64]) -> Floats:
    """(T, N): when the sample shown was scraped."""
    samples = view.by_node(view.samples(f"{NFS}operations_requests_total", promql.LOOK_BACK))[:, :, 0]
    shown = np.full((view.asked, samples.shape[1]), np.nan)
    for back in range(promql.LOOK_BACK, -1, -1):
        there = ~np.isnan(samples[len(samples) - view.asked - back : len(samples) - back])
        shown = np.where(there, (times - back * STEP)[:, None], shown)
    return shown


def _link(view: View, ethernet: str, infiniband: str) -> Floats:
    """Use of a node's busiest port."""
    wire = view.rate(f"node_network_{ethernet}_bytes_total", 2 * MINUTES) / view.now("node_network_speed_bytes")
    ports = view.rate(f"node_infiniband_port_data_{infiniband}_bytes_total", 2 * MINUTES)
    return np.asarray(np.fmax(wire, view.max(ports / view.now("node_infiniband_rate_bytes_per_second"))))
