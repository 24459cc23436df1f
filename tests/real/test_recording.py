"""A recording on a real Prometheus: what the memory computes is what the PromQL of each signal gives."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator

import numpy as np
import pytest

from bot.http_session import DeadlineSession
from bot.policy import Signal
from bot.sandbox.parts import demo_policy
from bot.sandbox.recording import Recording
from bot.sandbox.recording.fleet import DAY
from bot.sandbox.recording.folder import write
from bot.sandbox.recording.memory import RecordedMetrics
from bot.sandbox.recording.signals import SIGNALS
from bot.sources.prometheus import PrometheusSource
from tests.real.exporter import Exporter
from tests.real.prometheus import Prometheus

pytestmark = pytest.mark.real

DAYS, NODES, SEED = 2, 4, 14  # a bus fault, and a thermal one that shows the bit 0x40 alone
ASKED = demo_policy().signals
QUERIES = {name: signal for name, signal in ASKED.items() if signal.query}


@pytest.fixture(scope="module")
def recording() -> Recording:
    """It ended yesterday: Prometheus drops what is older than 15 days."""
    return Recording(SEED, DAYS, NODES, (int(time.time()) // DAY - DAYS - 1) * DAY)


@pytest.fixture(scope="module")
def source(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusSource]:
    root = tmp_path_factory.mktemp("recording")
    write(recording, root / "out", "openmetrics")
    tool = ("promtool", "tsdb", "create-blocks-from", "-q", "--max-block-duration=720h", "openmetrics")
    days = sorted((root / "out").glob("*.om.txt"))
    into = [str(root / "prometheus/tsdb")]
    loading = [subprocess.Popen([*tool, str(day), *into], stdout=subprocess.DEVNULL) for day in days]
    assert [process.wait() for process in loading] == [0] * DAYS
    exporter = Exporter(0)
    server = Prometheus(root / "prometheus", exporter)
    try:
        yield PrometheusSource(
            server.url, DeadlineSession(60), ["node", "Hostname", "instance"], r"^([^.:]+)", ["dcgm-exporter"]
        )
    finally:
        server.stop()
        exporter.stop()


def test_every_signal_with_a_query_is_known_in_memory() -> None:
    assert set(QUERIES) == set(SIGNALS)


@pytest.mark.parametrize("signal", QUERIES.values(), ids=QUERIES)
def test_memory_and_prometheus_agree(signal: Signal, recording: Recording, source: PrometheusSource) -> None:
    """To 1e-6: counters lose digits where they are far above their growth. All rows of both days count, lost scrapes,
    gaps, restarts and blanks among them."""
    span = recording.start, recording.end - 60, 60
    told = source.matrix(signal, *span, recording.fleet.names)
    mine = RecordedMetrics(recording).matrix(signal, *span, recording.fleet.names)
    theirs = np.full(mine.values.shape, np.nan)
    theirs[:, [mine.hosts.index(host) for host in told.hosts]] = told.values
    assert set(told.hosts) <= set(mine.hosts) and not np.isnan(theirs).all()
    differ = ~np.isclose(mine.values, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)
    where = [(mine.hosts[n], int(t), mine.values[t, n], theirs[t, n]) for t, n in zip(*np.nonzero(differ), strict=True)]
    assert not where, f"{len(where)} differ: {where[:5]}"
