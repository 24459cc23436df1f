"""Every signal of the shipped catalogue from a recording's samples, by the arithmetic of its PromQL. Queries are not
read: signals are told apart by their id."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import partial

import numpy as np

from bot.policy import Signal
from bot.sandbox.recording import promql
from bot.sandbox.recording.effects import Floats
from bot.sandbox.recording.fleet import STEP
from bot.sandbox.recording.storage import OPERATIONS
from bot.sandbox.recording.view import HOURS, MINUTES, View, above, between
from bot.signals.xid import codes

BLANK = 1e6  # the catalogue drops what is not below
LARGEST = 24 * HOURS + promql.LOOK_BACK

Made = Callable[[View, Signal], Floats]


def _xid(view: View, signal: Signal) -> Floats:
    """The worst of each node's GPUs."""
    return view.max(changed_xids(view, signal))


def changed_xids(view: View, signal: Signal) -> Floats:
    """(asked, GPUs): the code where the gauge has changed within five minutes, 0 where it has not."""
    name = "DCGM_FI_DEV_XID_ERRORS"
    now = view.now(name)
    shown = above(now, 0, np.inf)
    values = view.samples(name, 5 * MINUTES)
    busy = np.flatnonzero((np.nan_to_num(values) > 0).any(axis=0))
    changed = np.full(now.shape, np.nan)
    low = promql.least(values[:, busy], view.asked, 5 * MINUTES)
    high = between(promql.most(values[:, busy], view.asked, 5 * MINUTES), -np.inf, BLANK)
    with np.errstate(invalid="ignore"):
        rose = (shown[:, busy] > low) | (shown[:, busy] < high)
        changed[:, busy] = np.where(rose & np.isin(shown[:, busy], codes(signal.xid_action)), shown[:, busy], np.nan)
    return np.asarray(np.fmax(changed, 0 * between(now, 0, BLANK)))


def _gpus(view: View, signal: Signal) -> Floats:
    recent = 90 // STEP  # rows before the one asked for; no server of a recording is told that a series ended
    seen = ~np.isnan(between(view.newest("DCGM_FI_DEV_GPU_TEMP", recent), 0, 1e12))
    seen |= ~np.isnan(between(view.newest("DCGM_FI_DEV_FB_USED", recent), 0, 1e12))
    count = view.by_node(seen.astype(np.float64)).sum(axis=2)
    return np.where((count > 0) | (view.up("dcgm") == 1), count, np.nan)


def _down(part: str, view: View, signal: Signal) -> Floats:
    up = view.up(part)
    return np.where(np.isnan(up), np.nan, up == 0)


def _worst(name: str, low: float, high: float, view: View, signal: Signal) -> Floats:
    """max by node, low ≤ value < high."""
    return view.max(between(view.now(name), low, high))


def _most(name: str, high: float, view: View, signal: Signal) -> Floats:
    """max by node, 0 < value < high."""
    return view.max(above(view.now(name), 0, high))


def _weakest(name: str, high: float, view: View, signal: Signal) -> Floats:
    """min by node, 0 < value < high."""
    return view.min(above(view.now(name), 0, high))


def _least(name: str, high: float, view: View, signal: Signal) -> Floats:
    """min by node, 0 ≤ value ≤ high."""
    return view.min(between(view.now(name), 0, np.nextafter(high, np.inf)))


def _growth(name: str, view: View, signal: Signal) -> Floats:
    """Against the tenth part of ten minutes, per GPU that counts at all."""
    now, window = view.now(name), 10 * MINUTES
    values = view.samples(name, window)
    busy = np.flatnonzero((np.nan_to_num(values) > 0).any(axis=0))
    grown = np.full(now.shape, np.nan)
    if len(busy):
        low = promql.quantile(values[:, busy], view.asked, window, 0.1)
        grown[:, busy] = np.maximum(above(now[:, busy], 0, BLANK) - low, 0)
    return view.max(np.fmax(grown, 0 * between(now, 0, BLANK)))


def _grown_in_a_day(name: str, view: View, signal: Signal) -> Floats:
    """Against the least of a day, which is asked for on each half hour."""
    now = view.now(name)
    values = view.samples(name, LARGEST)
    busy = np.flatnonzero((np.nan_to_num(values) > 0).any(axis=0))
    grown = np.full(now.shape, np.nan)
    if len(busy):
        low = _least_of_half_hours(view, between(promql.instant(values[:, busy], view.asked + 24 * HOURS), 0, BLANK))
        grown[:, busy] = np.maximum(above(now[:, busy], 0, BLANK) - low, 0)
    return view.max(np.fmax(grown, 0 * between(now, 0, BLANK)))


def _least_of_half_hours(view: View, values: Floats) -> Floats:
    """values: (24 h + asked, columns). Only the rows on a half hour are looked at."""
    row = view.first - 24 * HOURS + np.arange(len(values))
    asked_at = np.where((row % (30 * MINUTES) == 0)[:, None], values, np.nan)
    return _sliding_least(asked_at, 24 * HOURS)[-view.asked :]


def _sliding_least(values: Floats, window: int) -> Floats:
    """In log2(window) steps of doubled reach; the first rows have less of a past."""
    low, reach = values.copy(), 1
    while reach < window + 1:
        shift = min(reach, window + 1 - reach)
        low[shift:] = np.fmin(low[shift:], low[:-shift])
        reach += shift
    return low


def _most_grown(names: Collection[str], window: int, view: View, signal: Signal) -> Floats:
    """max by node over the devices and the counters."""
    parts = [view.max(view.grown(name, window)) for name in names]
    return np.asarray(np.fmax.reduce(parts))


def _all_grown(names: Collection[str], window: int, view: View, signal: Signal) -> Floats:
    """sum by node over the devices and the counters."""
    parts = np.stack([view.sum(view.grown(name, window)) for name in names])
    return np.where(np.isnan(parts).all(axis=0), np.nan, np.nansum(parts, axis=0))


def _width(view: View, signal: Signal) -> Floats:
    now = above(view.now("DCGM_FI_DEV_PCIE_LINK_WIDTH"), 0, BLANK)
    return view.max(above(view.now("DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"), 0, BLANK) - now)


def _reason(bits: int, view: View, signal: Signal) -> Floats:
    """1 where one of the bits is set on one GPU."""
    reasons = between(view.now("DCGM_FI_DEV_CLOCKS_EVENT_REASONS"), -np.inf, BLANK)
    known = ~np.isnan(reasons)
    return view.max(np.where(known, (np.where(known, reasons, 0).astype(np.int64) & bits) > 0, np.nan))


def _rate(name: str, window: int, view: View, signal: Signal) -> Floats:
    return view.max(view.rate(name, window))


def _mean(name: str, window: int, view: View, signal: Signal) -> Floats:
    return view.max(promql.mean(view.samples(name, window), view.asked, window))


def _disk(view: View, signal: Signal) -> Floats:
    return 100 * (1 - view.now("node_filesystem_avail_bytes") / view.now("node_filesystem_size_bytes"))


NFS = "node_mountstats_nfs_operations_{}_total"


def _operation(view: View, what: str, name: str, window: int) -> Floats:
    """(asked, nodes): rate of one operation's counter."""
    column = OPERATIONS.index(name)
    samples = view.by_node(view.samples(NFS.format(what), window))[:, :, column]
    return promql.rate(samples, view.asked, window)


def _divided(part: Floats, whole: Floats) -> Floats:
    return np.asarray(part / above(whole, 0, np.inf))


def _getattr(view: View, signal: Signal) -> Floats:
    took, asked = (_operation(view, what, "GETATTR", 3 * MINUTES) for what in ("response_time_seconds", "requests"))
    return 1000 * _divided(took, asked)


def _queue(view: View, signal: Signal) -> Floats:
    parts = (view.sum(view.rate(NFS.format(f"{what}_time_seconds"), 3 * MINUTES)) for what in ("queue", "request"))
    return _divided(*parts)


def _bytes(what: str, name: str, view: View, signal: Signal) -> Floats:
    return _operation(view, what, name, 2 * MINUTES)


def _ports(name: str, window: int, view: View, signal: Signal) -> Floats:
    return view.sum(view.rate(name, window))


def _uptime(view: View, signal: Signal) -> Floats:
    times = view.recording.start + (view.first + np.arange(view.asked)) * STEP
    return times[:, None] - view.now("node_boot_time_seconds")


def _frozen(names: Collection[str], view: View, signal: Signal) -> Floats:
    """1 where nothing of a node has changed within five minutes."""
    most = np.full((view.asked, len(view.recording.fleet)), np.nan)
    for name in names:
        samples = view.by_node(view.samples(name, 5 * MINUTES))
        for column in range(samples.shape[2]):
            quiet = ~(most > 0).all(axis=0)  # as a rule the first GPU's first metric has moved everywhere
            if quiet.any():
                moved = promql.changes(samples[:, quiet, column], view.asked, 5 * MINUTES)
                most[:, quiet] = np.fmax(most[:, quiet], moved)
    return np.where(np.isnan(most), np.nan, most == 0)


SIGNALS: Mapping[str, Made] = {
    **dict.fromkeys(("xid_reboot", "xid_reset", "xid_repair", "xid_test", "xid_reset_idle", "xid_restart_app"), _xid),
    "gpu_missing": _gpus,
    "gpus_gone": _gpus,
    "exporter_down": partial(_down, "dcgm"),
    "row_remap_failure": partial(_worst, "DCGM_FI_DEV_ROW_REMAP_FAILURE", 0, BLANK),
    "dbe": partial(_growth, "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    "uncorrectable_remap": partial(_growth, "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    "correctable_remap_growth": partial(_grown_in_a_day, "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    "row_remap_pending": partial(_worst, "DCGM_FI_DEV_ROW_REMAP_PENDING", 0, BLANK),
    "nvlink_errors": partial(_most_grown, ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL",
                                         "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL"), 10 * MINUTES),
    "pcie_replay": partial(_most_grown, ("DCGM_FI_DEV_PCIE_REPLAY_COUNTER",), 10 * MINUTES),
    "pcie_width": _width,
    "hw_slowdown": partial(_reason, 0x8 | 0x40 | 0x80),
    "sw_thermal": partial(_reason, 0x20),
    "gpu_temperature": partial(_most, "DCGM_FI_DEV_GPU_TEMP", 150),
    "memory_temperature": partial(_most, "DCGM_FI_DEV_MEMORY_TEMP", 150),
    "gpu_power": partial(_weakest, "DCGM_FI_DEV_POWER_USAGE", 5000),
    "sm_clock": partial(_weakest, "DCGM_FI_DEV_SM_CLOCK", 10_000),
    "tensor_activity": partial(_least, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 1),
    "tensor_busiest": partial(_worst, "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", 0, np.nextafter(1, np.inf)),
    "gpu_utilisation": partial(_least, "DCGM_FI_DEV_GPU_UTIL", 100),
    "interrupts": partial(_rate, "node_intr_total", 3 * MINUTES),
    "runnable": partial(_mean, "node_procs_running", 3 * MINUTES),
    "page_out": partial(_rate, "node_vmstat_pgpgout", 3 * MINUTES),
    "memory_error": partial(_all_grown, ("node_edac_uncorrectable_errors_total",), 10 * MINUTES),
    "memory_corrected": partial(_all_grown, ("node_edac_correctable_errors_total",), HOURS),
    "oom_kill": partial(_most_grown, ("node_vmstat_oom_kill",), 10 * MINUTES),
    "disk_full": _disk,
    "getattr_latency": _getattr,
    "rpc_queue": _queue,
    "link_down": partial(_all_grown, ("node_infiniband_link_downed_total",), HOURS),
    "link_errors": partial(_all_grown, ("node_infiniband_symbol_error_total",
                                           "node_infiniband_link_error_recovery_total",
                                           "node_infiniband_port_errors_received_total"), 10 * MINUTES),
    "fabric_bytes": partial(_ports, "node_infiniband_port_data_transmitted_bytes_total", 3 * MINUTES),
    "storage_write": partial(_bytes, "sent_bytes", "WRITE"),
    "storage_read": partial(_bytes, "received_bytes", "READ"),
    "uptime": _uptime,
    "dcgm_frozen": partial(_frozen, ("DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_SM_CLOCK")),
    "node_frozen": partial(_frozen, ("node_intr_total",)),
}  # fmt: skip
