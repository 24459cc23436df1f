"""Many NFS clients without any NFS: a node_exporter for each on a procfs of our own, whose counters follow a site of
bot.sandbox.storage_counters. The same counters can be written as a past for Prometheus."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bot.sandbox.storage_counters import OPERATIONS, PREFIX, TICK, StorageCounters
from bot.storage.window import BACKLOG, OPERATION_COUNTERS, RECEIVES, SENDS, SLOTS, Floats, Key
from tests.real.supervise import Process, free_port

JOB = "clients"
SPEED = 20  # the sites live so much faster: a minute is three seconds, and a scrape of a second is one of twenty

DEVICE = """device {export} mounted on /ckpt with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.1,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2,sec=sys
\tage:\t{age}
\tcaps:\tcaps=0x3ffbffff,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
\tbytes:\t0 0 0 0 0 0 0 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 832 1 1 0 0 {sends} {receives} 0 0 {backlog} {slots} 0 0
\tper-op statistics
"""


@dataclass(frozen=True)
class Run:
    """Clients of one mount. names: of the site's nodes, as the cluster calls them. start: of the site's time, real."""

    counters: StorageCounters
    export: str
    names: tuple[str, ...]
    start: int

    def tick(self, at: float) -> int:
        """The last one of `at` (Unix seconds)."""
        return int((at - self.start) * SPEED // TICK)

    def values(self, tick: int) -> dict[Key, list[float]]:
        """As the counters of all nodes stand. A second of the site is shorter; after its end nothing moves."""
        last = min(tick, len(self.counters.history[SENDS, ""]) - 1)
        return {key: _real(key, values[last]).tolist() for key, values in self.counters.history.items()}

    def is_down(self, tick: int, node: int) -> bool:
        spells = (s for s in self.counters.site.spells if s.what == "down" and s.node in (None, node))
        return any(s.start <= tick * TICK < s.end for s in spells)

    def mountstats(self, tick: int) -> Iterator[str]:
        """/proc/self/mountstats of every node; while one reboots it has no mount."""
        values = self.values(tick)
        for node in range(len(self.names)):
            text = "device proc mounted on /proc with fstype proc\n"
            if not self.is_down(tick, node):
                told = {name: round(values[key, ""][node]) for name, key in TRANSPORT.items()}
                text += DEVICE.format(export=self.export, age=tick, **told)
                text += "".join(f"\t{name:>12}: {_operation(values, name, node)}\n" for name in OPERATIONS)
            yield text

    def past(self, until: int) -> Iterator[tuple[str, list[str]]]:
        """(metric, its samples in OpenMetrics) as a scrape each second would have found them."""
        seconds = range(self.start + 1, until)
        ticks = [self.tick(at) for at in seconds]
        for key, values in self.counters.history.items():
            metric, operation = _series(key)
            lines = []
            for name, column in zip(self.names, _real(key, values[ticks]).T.tolist(), strict=True):
                labels = (
                    f'instance="{name}:9100",job="{JOB}",export="{self.export}",protocol="tcp",mountaddr="10.0.0.1"'
                )
                series = f"{metric}{{{labels}{operation}}}"
                lines += [f"{series} {value} {at}\n" for at, value in zip(seconds, column, strict=True)]
            yield metric, lines


TRANSPORT = {"sends": SENDS, "receives": RECEIVES, "backlog": BACKLOG, "slots": SLOTS}


def _real(key: Key, values: Floats) -> Floats:
    return values / SPEED if key[0].endswith("_seconds") else values


def _operation(values: Mapping[Key, list[float]], operation: str, node: int) -> str:
    """requests transmissions timeouts sent received queue response request(ms) errors."""
    told = [values[name, operation][node] * (1000 if name.endswith("_seconds") else 1) for name in OPERATION_COUNTERS]
    return " ".join(str(round(value)) for value in (*told[:2], 0, *told[2:], 0))


def _series(key: Key) -> tuple[str, str]:
    what, operation = key
    if not operation:
        return f"{PREFIX}transport_{what}", ""
    return f"{PREFIX}operations_{what}_total", f',operation="{operation}"'


def write_past(file: Path, metrics: Iterable[tuple[str, list[str]]]) -> None:
    """As promtool wants it: metric by metric."""
    families: dict[str, list[str]] = {}
    for metric, lines in metrics:
        families.setdefault(metric, []).extend(lines)
    with file.open("w") as out:
        for metric, lines in families.items():
            out.write(f"# TYPE {metric} unknown\n")
            out.writelines(lines)
        out.write("# EOF\n")
    tool = ("promtool", "tsdb", "create-blocks-from", "openmetrics", file, file.parent / "tsdb")
    subprocess.run(tool, check=True, stdout=subprocess.DEVNULL)


@dataclass
class Clients:
    """A node_exporter for each name, started by the main thread; `play` moves their files in a thread until `stop`."""

    root: Path
    names: Sequence[str]
    targets: dict[str, str] = field(default_factory=dict)
    _processes: list[Process] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _mover: threading.Thread | None = None

    def __post_init__(self) -> None:
        self.root.mkdir()
        for name in self.names:
            self._start(name)

    def _start(self, name: str) -> None:
        self.targets[name] = f"127.0.0.1:{free_port()}"
        (self.root / name / "1").mkdir(parents=True)
        (self.root / name / "self").symlink_to("1")  # node_exporter reads the number where it points
        argv = ["prometheus-node-exporter", f"--path.procfs={self.root / name}", "--collector.disable-defaults",
                "--collector.mountstats", "--web.disable-exporter-metrics",
                f"--web.listen-address={self.targets[name]}"]  # fmt: skip
        self._processes.append(Process(argv, self.root / f"{name}.log", env={**os.environ, "GOMAXPROCS": "1"}))

    def scrape(self) -> dict[str, object]:
        """A job of prometheus.yml."""
        static = [{"targets": [at], "labels": {"instance": f"{name}:9100"}} for name, at in self.targets.items()]
        return {"job_name": JOB, "static_configs": static}

    def play(self, runs: Sequence[Run]) -> None:
        self._write(runs)
        self._mover = threading.Thread(target=self._move, args=(runs,), daemon=True)
        self._mover.start()

    def _move(self, runs: Sequence[Run]) -> None:
        while not self._over.wait(TICK / SPEED):
            self._write(runs)

    def _write(self, runs: Sequence[Run]) -> None:
        now = time.time()
        for run in runs:
            for name, text in zip(run.names, run.mountstats(run.tick(now)), strict=True):
                _show(self.root / name / "1", text, run.export)

    def stop(self) -> None:
        self._over.set()
        if self._mover:
            self._mover.join()
        for process in self._processes:
            process.stop()


def _show(folder: Path, mountstats: str, export: str) -> None:
    """Line by line the same mounts: node_exporter takes a mount's address from the line of the same number."""
    lines = ("22 1 0:20 / /proc rw - proc proc rw\n", f"27 1 0:23 / /ckpt rw - nfs4 {export} rw,addr=10.0.0.1\n")
    _replace(folder / "mountinfo", "".join(lines[: mountstats.count("device ")]))
    _replace(folder / "mountstats", mountstats)


def _replace(file: Path, text: str) -> None:
    """At once: a scrape never finds half of it."""
    new = file.with_suffix(".new")
    new.write_text(text)
    new.replace(file)
