"""A Prometheus that remembers half an hour of 63 nodes, as their exporters would have told it."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.real.exporter import Exporter
from tests.real.prometheus import Prometheus

COUNT, GPUS, JOB = 63, 8, "123"
NODES = tuple(f"node-{number:02d}" for number in range(1, COUNT + 1))
BACK, SCRAPE = 1800, 30  # s
FAULT = ("node-17", 3, 79)  # since five minutes before the end
SAMPLE = re.compile(r"(\w+)(?:\{(.*)\})? (\S+)")
STEP_S, SAVE_S = 2, 600  # s a training step takes, s between saves


@contextmanager
def prometheus_with_history(folder: Path, say: Callable[[str], None]) -> Iterator[tuple[str, int]]:
    """(URL, newest moment)."""
    at = int(time.time()) // SCRAPE * SCRAPE - SCRAPE
    exporter = Exporter(COUNT)
    try:
        say("  writing the history")
        write_history(folder / "prometheus", exporter, at)
        exporter.nodes = []  # nothing is scraped while we measure
        server = Prometheus(folder / "prometheus", exporter, scrape="30s")
    finally:
        exporter.stop()
    try:
        yield server.url, at
    finally:
        server.stop()


def write_history(root: Path, exporter: Exporter, at: int) -> None:
    """Two pages a node, healthy and with the fault, stand for all scrapes: promtool makes blocks of them."""
    root.mkdir(parents=True)
    text = root / "history.om"
    healthy = samples(exporter)
    exporter.xid(*FAULT)
    broken = samples(exporter)
    with text.open("w") as file:
        for name in healthy.keys() | broken.keys():
            file.write(f"# TYPE {name} unknown\n")
            file.writelines(_lines(name, healthy.get(name, {}), broken.get(name, {}), at))
        file.write("# EOF\n")
    tool = ("promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(root / "tsdb"))
    subprocess.run(tool, check=True, stdout=subprocess.DEVNULL)
    text.unlink()


def samples(exporter: Exporter) -> dict[str, dict[str, str]]:
    """Metric → labels → value, with the labels that a scrape adds."""
    found: dict[str, dict[str, str]] = {}
    for node in NODES:
        for job, port in (("dcgm", 9400), ("node", 9100)):
            target = f'instance="{node}:{port}",job="{job}"'
            found.setdefault("up", {})[target] = "1"
            _, page = exporter.page(f"/{node}/{job}")
            for name, labels, value in SAMPLE.findall(re.sub(r"^#.*\n", "", page, flags=re.M)):
                found.setdefault(name, {})[f"{labels},{target}" if labels else target] = value
    return found | {name: {f'job="{JOB}"': ""} for name in SAVES}


def _lines(name: str, before: dict[str, str], after: dict[str, str], at: int) -> Iterator[str]:
    """Series after series, its samples in order, as OpenMetrics wants them."""
    for labels in before.keys() | after.keys():
        for moment in range(at - BACK, at + 1, SCRAPE):
            value = (after if moment > at - 300 else before).get(labels)
            if value is not None:
                yield f"{name}{{{labels}}} {SAVES[name](moment) if name in SAVES else value} {moment}\n"


SAVES: dict[str, Callable[[int], int]] = {
    "train_checkpoint_step": lambda moment: moment // SAVE_S * SAVE_S // STEP_S % 10**6,
    "train_checkpoint_started_timestamp": lambda moment: moment // SAVE_S * SAVE_S - 60,
    "train_checkpoint_completed_timestamp": lambda moment: moment // SAVE_S * SAVE_S,
}
