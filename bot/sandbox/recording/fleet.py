"""The recorded cluster: its nodes, their GPUs and network ports, and how the exporters call them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

STEP, DAY = 60, 86_400  # s between two scrapes; s in a day
ROWS = DAY // STEP
GPUS = PORTS = 8  # of a node: B200 boards carry one network port for each GPU
MINUTE, HOUR = 60, 3600
PCI = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
SPARE_SHARE = 3 / 63  # of the study's cluster (arXiv 2605.09370)


@dataclass(frozen=True, slots=True)
class Fleet:
    """Columns of arrays: a node's is its index, a GPU's or a port's is node × 8 + index."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, count: int) -> Fleet:
        width = max(2, len(str(count)))
        return cls(tuple(f"node-{number:0{width}d}" for number in range(1, count + 1)))

    def __len__(self) -> int:
        return len(self.names)

    @property
    def run_size(self) -> int:
        """Nodes of the big run; the rest are spares, on which small jobs run."""
        return len(self) - max(1, round(len(self) * SPARE_SHARE))

    def gpu_labels(self, node: int, gpu: int) -> dict[str, str]:
        name = self.names[node]
        return {
            "gpu": str(gpu),
            "UUID": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{name}/{gpu}')}",
            "pci_bus_id": f"00000000:{PCI[gpu]}:00.0",
            "device": f"nvidia{gpu}",
            "modelName": "NVIDIA B200",
            "Hostname": name,
        }


def hostlist(names: Iterable[str]) -> str:
    """node-01, node-02, node-03, node-17 → node-[01-03,17], as Slurm writes it. All names share one prefix."""
    ordered = sorted(names)
    if len(ordered) < 2:
        return "".join(ordered)
    prefix = ordered[0].rpartition("-")[0] + "-"
    return f"{prefix}[{','.join(_ranges([name.removeprefix(prefix) for name in ordered]))}]"


def _ranges(numbers: list[str]) -> Iterable[str]:
    first = last = numbers[0]
    for number in [*numbers[1:], ""]:
        if number and int(number) == int(last) + 1:
            last = number
            continue
        yield first if first == last else f"{first}-{last}"
        first = last = number
