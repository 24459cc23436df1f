"""NFS counters on a real Prometheus: the live watch sees what the replay of the same counters sees."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from bot.http_session import DeadlineSession
from bot.sandbox.storage_counters import Site, Spell, StorageCounters, every
from bot.sources.prometheus import PrometheusSource
from bot.sources.storage import PrometheusStorage
from bot.storage.numbers import numbers
from bot.storage.watch import storage_day
from tests.real.exporter import Exporter
from tests.real.prometheus import Prometheus

pytestmark = pytest.mark.real

N = numbers()
LABELS = ("node", "Hostname", "instance")
FAULT = 51 * 60  # the fifth save begins then
PORT = 25e9 / 8  # bytes/s that node_exporter tells of the link
TWINS = ("a", "b")  # scraped by a pair: everything is told twice


@dataclass
class Served:
    """The counters, and a Prometheus that remembers them."""

    counters: StorageCounters
    url: str

    def source(self) -> PrometheusStorage:
        metrics = PrometheusSource(self.url, DeadlineSession(30), LABELS, r"^([^.:]+)", ("dcgm",))
        return PrometheusStorage(metrics, LABELS, N)


@pytest.fixture(scope="module")
def served(real_root: Path) -> Iterator[Served]:
    start = int(time.time()) // 60 * 60 - 4200
    slow = Spell("server", FAULT, FAULT + 600, 0.1 * 4 * 670e6)
    site = Site(nodes=4, spares=1, hours=1.1, saves=every(12, 1.1, first=3), spells=(slow,), start=start)
    counters, root = StorageCounters(site), real_root / "storage"
    root.mkdir()
    write(root / "history.om", counters)
    tool = ("promtool", "tsdb", "create-blocks-from", "openmetrics", root / "history.om", root / "tsdb")
    subprocess.run(tool, check=True, stdout=subprocess.DEVNULL)
    exporter = Exporter(1)
    exporter.nodes = []
    server = Prometheus(root, exporter)
    yield Served(counters, server.url)
    server.stop()
    exporter.stop()


def write(file: Path, counters: StorageCounters) -> None:
    """As promtool wants it: metric by metric, series by series."""
    families: dict[str, list[str]] = {}
    for name, labels, stamps, values in counters.series():
        for twin in TWINS:
            own = {**labels, "instance": f"{labels['node']}:9100", "replica": twin}
            text = ",".join(f'{key}="{value}"' for key, value in own.items())
            pairs = zip(stamps.tolist(), values.tolist(), strict=True)
            families.setdefault(name, []).extend(f"{name}{{{text}}} {value} {at:.0f}\n" for at, value in pairs)
    for node in counters.site.names:
        for metric, per_second in (("network_transmit_bytes_total", PORT / 2), ("network_speed_bytes", 0.0)):
            for twin in TWINS:
                text = f'node="{node}",instance="{node}:9100",device="eth0",replica="{twin}"'
                times = range(counters.site.start, counters.site.start + 3900, 30)
                rows = [(at, PORT if not per_second else per_second * (at - counters.site.start)) for at in times]
                told = (f"node_{metric}{{{text}}} {value} {at}\n" for at, value in rows)
                families.setdefault(f"node_{metric}", []).extend(told)
    with file.open("w") as out:
        for name, lines in families.items():
            out.write(f"# TYPE {name} unknown\n")
            out.writelines(lines)
        out.write("# EOF\n")


def test_a_live_look_sees_what_the_replay_sees(served: Served) -> None:
    site, source = served.counters.site, served.source()
    at = (site.start + FAULT + 150) // N.step * N.step
    live = source.look(at, [site.span], site.names)
    assert live[0].stall is not None and live[0].stall.verdict == "server"
    assert live[0].stall.onset - site.start - FAULT <= 90
    window = served.source().window(at - N.history, at, site.names)
    *_, replayed = storage_day(window, [site.span], N)
    assert replayed.views == live
    assert source.look(at + N.step, [site.span], site.names)[0].stall is not None


def test_what_is_told_twice_counts_once_and_links_are_measured(served: Served) -> None:
    site, source = served.counters.site, served.source()
    views = source.look((site.start + FAULT + 150) // N.step * N.step, [site.span], site.names)
    stall = views[0].stall
    assert stall is not None and stall.measures.slots == site.slots
    assert stall.measures.rate == pytest.approx(0.1 * 4 * 670e6, rel=0.3)
    assert stall.measures.link_use == pytest.approx(0.5, rel=0.05)


def test_scrape_times_are_the_samples_own(served: Served) -> None:
    site = served.counters.site
    window = served.source().window(site.start + 600, site.start + 720, site.names)
    replayed = served.counters.window(N.step)
    rows = [int(t) for t in (window.times - site.start) // N.step]
    assert (window.sampled == replayed.sampled[rows]).all()


def test_where_no_mount_is_told_of_nothing_is_measured(served: Served) -> None:
    site = served.counters.site
    assert served.source().look(site.start - 3600, [site.span], site.names) == ()
