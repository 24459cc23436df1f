"""How high each metric is while a healthy node does this or that, and how much it wavers. Numbers are a B200 node's as
the study and dcgm-exporter's pages show them, or stand in a plain relation to those."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Level:
    """by_phase: in the order of phases.Phase. unit: spread between devices, noise: between samples, wander: over half
    an hour, all as shares; jitter: between samples, in the metric's own unit. digits: what the exporter shows."""

    by_phase: tuple[float, ...]
    unit: float = 0.0
    noise: float = 0.0
    wander: float = 0.0
    jitter: float = 0.0
    digits: int = 0
    high: float = float("inf")
    smooth: int = 1  # samples over which it follows the phase


def always(value: float) -> tuple[float, ...]:
    return (value,) * 9


#                                            idle  start    load   train    save    eval    hang   light    busy
GPU: Mapping[str, Level] = {
    "DCGM_FI_DEV_GPU_UTIL":            Level((0,     15,      8,     99,     70,     92,    100,     30,     95),
                                             noise=0.01, jitter=0.6, high=100),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": Level((0,   0.01,      0,   0.42,   0.06,   0.27,      0,   0.04,   0.31),
                                             unit=0.008, noise=0.02, wander=0.02, digits=6, high=1),
    "DCGM_FI_DEV_POWER_USAGE":         Level((145,  210,    190,    880,    380,    690,    265,    240,    700),
                                             unit=0.02, noise=0.02, wander=0.015, digits=3),
    "DCGM_FI_DEV_SM_CLOCK":            Level((120, 1900,   1900,   1830,   1920,   1870,   1965,   1500,   1850),
                                             unit=0.008, noise=0.006, wander=0.004),
    "DCGM_FI_DEV_GPU_TEMP":            Level((31,    34,     33,     58,     45,     52,     37,     36,     52),
                                             unit=0.05, wander=0.02, jitter=0.5, smooth=4),
    "DCGM_FI_DEV_MEMORY_TEMP":         Level((34,    37,     37,     66,     52,     59,     41,     39,     58),
                                             unit=0.05, wander=0.02, jitter=0.5, smooth=4),
    "DCGM_FI_DEV_FB_USED":             Level((4,   3900, 151000, 151000, 151000, 151000, 151000,  21000, 122000),
                                             unit=0.002),
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": Level((1,     0,      0,      0,      0,      0,      0,      0,      0)),
    "DCGM_FI_DEV_PCIE_LINK_WIDTH":     Level(always(16)),
    "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH": Level(always(16)),
}  # fmt: skip
PORT_RATES: Mapping[str, Level] = {  # bytes a second
    "node_infiniband_port_data_transmitted_bytes_total":
                                       Level((2e3, 4e5,    3e5,    7e9,    2e8,    4e9,    4e4,    5e4,    2e5),
                                             unit=0.01, noise=0.05, wander=0.02),
    "node_infiniband_port_data_received_bytes_total":
                                       Level((2e3, 4e5,    3e5,    7e9,    2e8,    4e9,    4e4,    5e4,    2e5),
                                             unit=0.01, noise=0.05, wander=0.02),
}  # fmt: skip
PORT: Mapping[str, Level] = {"node_infiniband_rate_bytes_per_second": Level(always(5e10))}
NODE: Mapping[str, Level] = {
    "node_procs_running":              Level((1.2,   10,     10,     16,     18,     14,     12,      3,     12),
                                             unit=0.05, noise=0.16, jitter=0.5),
    "node_procs_blocked":              Level((0,      0,      3,      0,      5,      0,      0,      0,      0),
                                             noise=0.4, jitter=0.3),
    "node_load1":                      Level((0.4,    8,     12,     22,     30,     20,     20,      4,     16),
                                             unit=0.04, noise=0.05, digits=2, smooth=3),
    "node_memory_MemAvailable_bytes":  Level((2.0e12, 1.9e12, 1.7e12, 1.5e12, 1.2e12, 1.5e12, 1.5e12, 1.9e12, 1.7e12),
                                             unit=0.01, noise=0.004),
    "node_memory_MemTotal_bytes":      Level(always(2.1e12)),
    "node_filesystem_avail_bytes":     Level(always(1.6e12), unit=0.1, wander=0.002),
    "node_filesystem_size_bytes":      Level(always(1.9e12)),
    "node_network_speed_bytes":        Level(always(2.5e10)),
    "node_timex_offset_seconds":       Level(always(0), jitter=2e-5, digits=9),
}  # fmt: skip
NODE_RATES: Mapping[str, Level] = {  # a second
    "node_intr_total":                 Level((1600, 5000,  6500,  10000,   9000,   8500,   7800,   2500,   8500),
                                             unit=0.04, noise=0.05, wander=0.03),
    "node_context_switches_total":     Level((4000, 30000, 45000, 70000,  80000,  60000,  55000,   9000,  50000),
                                             unit=0.05, noise=0.06, wander=0.03),
    "node_vmstat_pgpgout":             Level((150,  600,    300,    900,   2200,    700,    250,    300,    700),
                                             unit=0.1, noise=0.35, wander=0.1),
}  # fmt: skip
NFS: Mapping[str, Level] = {
    # operations a second of a node: 2.5 GB/s read and 0.67 GB/s written, in pieces of 1 MiB
    "nfs/ops/READ":    Level((0.2, 20, 2400,  4,   1, 20, 0.5, 5, 20), noise=0.1),
    "nfs/ops/WRITE":   Level((0.2,  2,    1,  3, 640,  3, 0.5,  5, 20), noise=0.1),
    "nfs/ops/GETATTR": Level((2,   60,   30, 12,  25, 15,   4,  6, 10), noise=0.2),
    "nfs/ops/LOOKUP":  Level((1,   40,   10,  3,   8,  4,   1,  3,  5), noise=0.2),
    "nfs/ops/OPEN":    Level((0.1,  8,    3,  0.3, 2, 0.5, 0.1, 0.5, 1), noise=0.2),
    "nfs/ops/COMMIT":  Level((0,    0,    0,  0.1, 3, 0.1,  0, 0.2, 0.4), noise=0.2),
    # seconds; GETATTR takes some 10 ms in the study
    "nfs/rtt/READ":    Level((0.003, 0.004, 0.03, 0.004, 0.006, 0.004, 0.003, 0.004, 0.004), unit=0.05, noise=0.08),
    "nfs/rtt/WRITE":   Level((0.004, 0.004, 0.01, 0.005, 0.050, 0.005, 0.004, 0.005, 0.006), unit=0.05, noise=0.08),
    "nfs/rtt/GETATTR": Level((0.009, 0.010, 0.014, 0.010, 0.017, 0.010, 0.009, 0.010, 0.010), unit=0.06, noise=0.10,
                             wander=0.05),
    "nfs/rtt/LOOKUP":  Level((0.008, 0.009, 0.012, 0.009, 0.015, 0.009, 0.008, 0.009, 0.009), unit=0.06, noise=0.10),
    "nfs/rtt/OPEN":    Level(always(0.012), unit=0.05, noise=0.10),
    "nfs/rtt/COMMIT":  Level(always(0.020), unit=0.05, noise=0.10),
    # seconds that an operation waits in the client before it is sent
    "nfs/queue/READ":  Level((0, 0.0002, 0.006, 0.0002, 0.0005, 0.0002, 0, 0, 0.0002), noise=0.2),
    "nfs/queue/WRITE": Level((0, 0.0002, 0.001, 0.0003, 0.0200, 0.0003, 0, 0, 0.0004), noise=0.2),
    "nfs/queue/GETATTR": Level((0.0001, 0.0002, 0.0008, 0.0002, 0.003, 0.0002, 0.0001, 0.0001, 0.0002), noise=0.2),
    "nfs/queue/LOOKUP": Level(always(0.0002), noise=0.2),
    "nfs/queue/OPEN":  Level(always(0.0002), noise=0.2),
    "nfs/queue/COMMIT": Level(always(0.0003), noise=0.2),
    "nfs/size/READ":   Level(always(2**20)),
    "nfs/size/WRITE":  Level((2**14, 2**14, 2**14, 2**14, 2**20, 2**14, 2**14, 2**16, 2**18)),  # logs are small
    "nfs/again":       Level(always(0)),
    "nfs/waiting":     Level(always(0)),
}  # fmt: skip
ALL: Mapping[str, Level] = {**GPU, **PORT, **PORT_RATES, **NODE, **NODE_RATES, **NFS}
