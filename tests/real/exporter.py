"""What dcgm-exporter and node_exporter would say on eight nodes, in their names and labels, under our control.

Paths: /node-01/dcgm and /node-01/node for each node, /trainer for the gauges of the training jobs.
"""

import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

GPUS = range(8)
PCI = ("1B", "43", "52", "61", "9D", "C3", "D1", "DF")
XID = "DCGM_FI_DEV_XID_ERRORS"
XID_COUNT = "DCGM_EXP_XID_ERRORS_COUNT"
BLANK = 9223372036854775794  # DCGM's "no value" for integers

Value = int | float | str

# Type and the value of a healthy GPU in the middle of training.
DCGM: dict[str, tuple[str, Value]] = {
    "DCGM_FI_DEV_GPU_TEMP": ("gauge", 58),
    "DCGM_FI_DEV_POWER_USAGE": ("gauge", 870.25),
    "DCGM_FI_DEV_GPU_UTIL": ("gauge", 100),
    XID: ("gauge", 0),
    "DCGM_FI_DEV_FB_USED": ("gauge", 151000),
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("counter", 0),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("counter", 0),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("gauge", 0),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("counter", 0),
}
# Type, start and growth per second.
NODE: dict[str, tuple[str, float, float]] = {
    "node_boot_time_seconds": ("gauge", 0, 0),
    "node_intr_total": ("counter", 4e9, 21000),
    "node_load1": ("gauge", 34.5, 0),
    "node_procs_running": ("gauge", 9, 0),
    "node_vmstat_pgpgout": ("untyped", 2e8, 3500),
}
MESSAGES = {
    0: "No Error",
    13: "Graphics Engine Exception",
    31: "GPU memory page fault",
    43: "GPU stopped processing",
    45: "Preemptive cleanup, due to previous errors -- Most likely to see when running multiple cuda applications",
    48: "Double Bit ECC Error",
    63: "ECC page retirement or row remapping recording event",
    64: "ECC page retirement or row remapper recording failure",
    74: "NVLINK Error",
    79: "GPU has fallen off the bus",
    94: "Contained ECC error",
    95: "Uncontained ECC error",
}  # fmt: skip


class Exporter:
    """One server on loopback, in a thread of the test process. The methods may be called at any time."""

    def __init__(self, nodes: int = 8) -> None:
        self.nodes = [f"node-{number:02d}" for number in range(1, nodes + 1)]
        self._born = time.time()
        self._lock = threading.RLock()
        self.reset()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    # -- control -----------------------------------------------------------------------------------------------

    def reset(self) -> None:
        """All healthy, and no training job."""
        with self._lock:
            self.windowed = True  # whether the window counter is switched on; the gauge always is
            self.window = 300.0  # its window in seconds
            self.trainers: list[Path] = []  # folders with the *.prom files of training jobs
            self._values: dict[tuple[str, str, int | None], Value] = {}
            self._errors: list[tuple[float, str, int, int]] = []
            self._lost: set[tuple[str, int]] = set()
            self._down: set[str] = set()

    def xid(self, node: str, gpu: int, code: int) -> None:
        """The driver reports an Xid now: the gauge keeps the last one, the window counter counts."""
        with self._lock:
            self._values[node, XID, gpu] = code
            self._errors.append((time.time(), node, gpu, code))

    def clear_xid(self, node: str) -> None:
        with self._lock:
            self._errors = [error for error in self._errors if error[1] != node]
            for gpu in GPUS:
                self._values.pop((node, XID, gpu), None)

    def lose_gpu(self, node: str, gpu: int) -> None:
        """The GPU's series are gone, the others of the node stay."""
        with self._lock:
            self._lost.add((node, gpu))

    def set(self, node: str, metric: str, gpu: int | None, value: Value) -> None:
        """A value as it is to be printed: a number, BLANK, nan. Without a GPU: all of them, or the node's own."""
        with self._lock:
            for each in GPUS if metric in DCGM and gpu is None else (gpu,):
                self._values[node, metric, each] = value

    def down(self, node: str) -> None:
        """The node's dcgm-exporter answers 503."""
        with self._lock:
            self._down.add(node)

    def restore(self, node: str) -> None:
        """The node is healthy again in every respect."""
        with self._lock:
            self.clear_xid(node)
            self._down.discard(node)
            self._lost = {lost for lost in self._lost if lost[0] != node}
            self._values = {key: value for key, value in self._values.items() if key[0] != node}

    # -- what is served ------------------------------------------------------------------------------------------

    def page(self, path: str) -> tuple[int, str]:
        node, _, part = path.strip("/").partition("/")
        with self._lock:
            if node == "trainer":
                return 200, "".join(self._trainer())
            if node not in self.nodes or part not in ("dcgm", "node"):
                return 404, "no such page\n"
            if part == "dcgm" and node in self._down:
                return 503, "dcgm is not there\n"
            lines = self._dcgm(node) if part == "dcgm" else self._node(node)
            return 200, "\n".join(lines) + "\n"

    def _dcgm(self, node: str) -> Iterator[str]:
        gpus = [gpu for gpu in GPUS if (node, gpu) not in self._lost]
        for metric, (kind, healthy) in DCGM.items():
            yield f"# TYPE {metric} {kind}"
            for gpu in gpus:
                value = self._values.get((node, metric, gpu), healthy)
                more = _error_labels(value) if metric == XID else {}
                yield f"{metric}{_labels({**_gpu_labels(node, gpu), **more})} {_text(value)}"
        if self.windowed:
            yield from self._window_counts(node, gpus)

    def _window_counts(self, node: str, gpus: list[int]) -> Iterator[str]:
        since = time.time() - self.window
        counts = Counter((gpu, code) for at, where, gpu, code in self._errors if where == node and at > since)
        size = {"window_size_in_ms": str(int(self.window * 1000))}
        if counts:
            yield f"# TYPE {XID_COUNT} gauge"
        for (gpu, code), count in counts.items():
            if gpu in gpus:
                labels = {**_gpu_labels(node, gpu), **size, "xid": str(code)}
                yield f"{XID_COUNT}{_labels(labels)} {count}"

    def _node(self, node: str) -> Iterator[str]:
        age = time.time() - self._born
        for metric, (kind, start, growth) in NODE.items():
            first = self._born - 864000 if metric == "node_boot_time_seconds" else start
            value = self._values.get((node, metric, None), first + growth * age)
            yield f"# TYPE {metric} {kind}\n{metric} {_text(value)}"

    def _trainer(self) -> Iterator[str]:
        for folder in self.trainers:
            for file in sorted(folder.glob("*.prom")):
                yield file.read_text()


def _gpu_labels(node: str, gpu: int) -> dict[str, str]:
    return {
        "gpu": str(gpu),
        "UUID": f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'{node}/{gpu}')}",
        "pci_bus_id": f"00000000:{PCI[gpu]}:00.0",
        "device": f"nvidia{gpu}",
        "modelName": "NVIDIA B200",
        "Hostname": node,
        "DCGM_FI_DRIVER_VERSION": "580.95.05",
    }


def _error_labels(value: Value) -> dict[str, str]:
    code = int(value) if isinstance(value, int) and value in range(1000) else 0
    return {"err_code": str(code), "err_msg": MESSAGES.get(code, "Unknown Error")}


def _labels(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels.items()) + "}"


def _text(value: Value) -> str:
    return "NaN" if value != value else str(value)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, exporter: Exporter) -> None:
        self.exporter = exporter
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A scraper that went away is its own affair."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        status, text = self.server.exporter.page(self.path)
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: seventeen lines a second tell nothing."""
