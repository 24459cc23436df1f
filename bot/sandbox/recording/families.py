"""The recorded metrics with the names and labels of dcgm-exporter, node_exporter and the trainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from bot.sandbox.recording import levels
from bot.sandbox.recording.effects import Restart
from bot.sandbox.recording.fleet import GPUS, PORTS, Fleet
from bot.sandbox.recording.storage import OPERATIONS

Per = Literal["gpu", "port", "operation", "node"]
How = Literal["level", "rate", "events", "xid", "up", "boot", "clock", "nfs"]
COLUMNS: Mapping[Per, int] = {"gpu": GPUS, "port": PORTS, "operation": len(OPERATIONS), "node": 1}
DCGM_JOB, NODE_JOB = "dcgm-exporter", "node"
PORT_OF = {"dcgm": 9400, "node": 9100}
FOREVER: tuple[Restart, ...] = ()
BOOT: tuple[Restart, ...] = ("boot",)
DRIVER: tuple[Restart, ...] = ("driver", "boot")
MOUNT = {"export": "vast-01:/checkpoints", "mountaddr": "10.9.0.11", "protocol": "tcp"}


@dataclass(frozen=True, slots=True)
class Family:
    """reset: what lets it begin anew. labels: the same for all its series."""

    name: str
    per: Per
    part: Literal["dcgm", "node"]
    how: How
    counter: bool = False
    reset: tuple[Restart, ...] = BOOT
    labels: tuple[tuple[str, str], ...] = ()

    @property
    def width(self) -> int:
        """Columns of one node."""
        return COLUMNS[self.per]

    def series(self, fleet: Fleet) -> Iterator[dict[str, str]]:
        """The labels of each column."""
        job = DCGM_JOB if self.part == "dcgm" else NODE_JOB
        for node, name in enumerate(fleet.names):
            target = {"instance": f"{name}:{PORT_OF[self.part]}", "job": job}
            for column in range(self.width):
                yield {**self._own(fleet, node, column), **dict(self.labels), **target}

    def _own(self, fleet: Fleet, node: int, column: int) -> dict[str, str]:
        if self.per == "gpu":
            return fleet.gpu_labels(node, column)
        if self.per == "port":
            return {"device": f"mlx5_{column}", "port": "1"}
        return {"operation": OPERATIONS[column]} if self.per == "operation" else {}


def _dcgm_events(name: str, reset: tuple[Restart, ...]) -> Family:
    return Family(name, "gpu", "dcgm", "events", reset=reset)


def _nfs(name: str, per: Per = "operation") -> Family:
    return Family(f"node_mountstats_nfs_{name}_total", per, "node", "nfs", True, labels=tuple(MOUNT.items()))


_DISK = (("device", "/dev/nvme0n1p2"), ("fstype", "ext4"), ("mountpoint", "/"))
_WIRE = (("device", "bond0"),)
_LABELS = {"node_filesystem_avail_bytes": _DISK, "node_filesystem_size_bytes": _DISK, "node_network_speed_bytes": _WIRE}
_FAMILIES = (
    *(Family(name, "gpu", "dcgm", "level") for name in levels.GPU),
    Family("DCGM_FI_DEV_XID_ERRORS", "gpu", "dcgm", "xid"),
    _dcgm_events("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", FOREVER),
    _dcgm_events("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", FOREVER),
    _dcgm_events("DCGM_FI_DEV_ROW_REMAP_FAILURE", BOOT),  # a node comes back with another board
    _dcgm_events("DCGM_FI_DEV_ROW_REMAP_PENDING", DRIVER),
    _dcgm_events("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", DRIVER),
    _dcgm_events("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", DRIVER),
    _dcgm_events("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", DRIVER),
    _dcgm_events("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL", DRIVER),
    _dcgm_events("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL", DRIVER),
    *(Family(name, "node", "node", "level", labels=_LABELS.get(name, ())) for name in levels.NODE),
    *(Family(name, "node", "node", "rate", name.endswith("_total")) for name in levels.NODE_RATES),
    *(Family(name, "port", "node", "rate", True) for name in levels.PORT_RATES),
    *(Family(name, "port", "node", "level") for name in levels.PORT),
    Family("node_infiniband_link_downed_total", "port", "node", "events", True),
    Family("node_infiniband_link_error_recovery_total", "port", "node", "events", True),
    Family("node_infiniband_symbol_error_total", "port", "node", "events", True),
    Family("node_infiniband_port_errors_received_total", "port", "node", "events", True),
    Family("node_edac_correctable_errors_total", "node", "node", "events", True, labels=(("controller", "0"),)),
    Family("node_edac_uncorrectable_errors_total", "node", "node", "events", True, labels=(("controller", "0"),)),
    Family("node_vmstat_oom_kill", "node", "node", "events"),
    Family("node_boot_time_seconds", "node", "node", "boot"),
    Family("node_time_seconds", "node", "node", "clock"),
    *(_nfs(f"operations_{what}") for what in (
        "requests", "transmissions", "major_timeouts", "sent_bytes", "received_bytes", "queue_time_seconds",
        "response_time_seconds", "request_time_seconds")),
    *(_nfs(f"transport_{what}", "node") for what in ("sends", "receives", "backlog_queue")),
    Family("node_mountstats_nfs_transport_maximum_rpc_slots", "node", "node", "nfs", labels=tuple(MOUNT.items())),
    Family("node_network_transmit_bytes_total", "node", "node", "nfs", True, labels=_WIRE),
    Family("node_network_receive_bytes_total", "node", "node", "nfs", True, labels=_WIRE),
)  # fmt: skip
FAMILIES: Mapping[str, Family] = {family.name: family for family in _FAMILIES}
