"""A recording on real servers: the memory computes what the PromQL of each signal gives, and a backtest finds the same
on Prometheus, on VictoriaMetrics and in memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import numpy as np
import pytest

from bot.backtest_files import labels, runs
from bot.backtest_run import Outcome, asked, outcome
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
from tests.real.faultproxy import Fault, FaultProxy, Request
from tests.real.prometheus import Prometheus
from tests.real.supervise import Process, eventually
from tests.real.victoria import VictoriaMetrics

pytestmark = pytest.mark.real

BIN = Path(sys.executable).parent
LOOK = 300  # s
DAYS, NODES, SEED, STEP = 2, 4, 14, 60  # a bus fault, and a thermal one that shows the bit 0x40 alone
UNRECORDED = {"train_step", "collective_time"}  # of the trainer and of NCCL, which recordings do not hold
QUERIES = {n: s for n, s in demo_policy().signals.items() if s.query and n not in UNRECORDED}
KEYS = {
    "failures", "detected", "early", "median_lead_s", "false_per_day", "messages_per_day", "chance_detected",
    "alarmed_node_hours", "peak_held", "per_category",
}  # fmt: skip


@pytest.fixture(scope="module")
def recording() -> Recording:
    """It ended yesterday: Prometheus drops what is older than 15 days."""
    return Recording(SEED, DAYS, NODES, (int(time.time()) // DAY - DAYS - 1) * DAY)


@pytest.fixture(scope="module")
def prometheus(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address."""
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
        yield server.url
    finally:
        server.stop()
        exporter.stop()


@pytest.fixture(scope="module")
def folder(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `xidbot simulate` writes of it."""
    into = tmp_path_factory.mktemp("victoria") / "out"
    start = time.strftime("%Y-%m-%d", time.gmtime(recording.start))
    options = [f"--days={DAYS}", f"--nodes={NODES}", f"--seed={SEED}", f"--start={start}", f"--out={into}"]
    subprocess.run([BIN / "xidbot", "simulate", *options], check=True, capture_output=True)
    return into


@pytest.fixture(scope="module")
def victoria(folder: Path) -> Iterator[str]:
    """Its address."""
    server = VictoriaMetrics(folder.parent / "server")
    try:
        server.load(sorted(folder.glob("*.jsonl")))
        yield server.url
    finally:
        server.stop()


@pytest.fixture(scope="module")
def in_memory(recording: Recording, folder: Path) -> Outcome:
    options = backtest_options("http://nowhere", recording)
    files = {"sessions": str(folder / "sessions.csv"), "labels": str(folder / "labels.csv")}
    wanted = asked(None, {**options, **files, "alarms": None, "against": None, "again": None})
    return outcome(wanted, RecordedMetrics(recording), lambda at: None)


def backtest_options(url: str, recording: Recording) -> dict[str, str]:
    return {"url": url, "start": str(recording.start), "end": str(recording.end), "step": f"{STEP}s"}


Found = tuple[dict[str, Any], list[dict[str, Any]]]  # figures, alarms


class Backtest:
    """The command, in a home of its own."""

    def __init__(self, recording: Recording, folder: Path, home: Path) -> None:
        self.recording, self.folder, self.home = recording, folder, home

    def argv(self, url: str) -> list[str]:
        return [
            str(BIN / "xidbot"), "backtest", f"--prometheus={url}", f"--from={self.recording.start}",
            f"--to={self.recording.end}", f"--step={STEP}s", f"--sessions={self.folder / 'sessions.csv'}",
            f"--labels={self.folder / 'labels.csv'}", f"--alarms={self.home / 'alarms.json'}", "--json",
        ]  # fmt: skip

    @property
    def env(self) -> dict[str, str]:
        return {**os.environ, "XDG_CACHE_HOME": str(self.home / "cache")}

    def run(self, url: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.argv(url), env=self.env, cwd=self.home, text=True, capture_output=True, timeout=120)

    def finished(self, url: str) -> Found:
        done = self.run(url)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout), json.loads((self.home / "alarms.json").read_text())


@pytest.fixture
def backtest(recording: Recording, folder: Path, tmp_path: Path) -> Backtest:
    return Backtest(recording, folder, tmp_path)


@pytest.fixture(scope="module")
def on_prometheus(
    recording: Recording, folder: Path, prometheus: str, tmp_path_factory: pytest.TempPathFactory
) -> Found:
    return Backtest(recording, folder, tmp_path_factory.mktemp("on_prometheus")).finished(prometheus)


@pytest.fixture(scope="module")
def on_victoria(recording: Recording, folder: Path, victoria: str, tmp_path_factory: pytest.TempPathFactory) -> Found:
    return Backtest(recording, folder, tmp_path_factory.mktemp("on_victoria")).finished(victoria)


# -- what is measured --------------------------------------------------------------------------------------------------


def test_every_signal_with_a_query_is_known_in_memory() -> None:
    assert set(QUERIES) == set(SIGNALS)


@pytest.mark.parametrize("signal", QUERIES.values(), ids=QUERIES)
def test_memory_and_prometheus_agree(signal: Signal, recording: Recording, prometheus: str) -> None:
    """To 1e-6: counters lose digits where they are far above their growth. All rows of both days count, lost scrapes,
    gaps, restarts and blanks among them."""
    labels = ["node", "Hostname", "instance"]
    source = PrometheusSource(prometheus, DeadlineSession(60), labels, r"^([^.:]+)", ["dcgm-exporter"])
    span = recording.start, recording.end - STEP, STEP
    told = source.matrix(signal, *span, recording.fleet.names)
    mine = RecordedMetrics(recording).matrix(signal, *span, recording.fleet.names)
    theirs = np.full(mine.values.shape, np.nan)
    theirs[:, [mine.hosts.index(host) for host in told.hosts]] = told.values
    assert set(told.hosts) <= set(mine.hosts) and not np.isnan(theirs).all()
    differ = ~np.isclose(mine.values, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)
    where = [(mine.hosts[n], int(t), mine.values[t, n], theirs[t, n]) for t, n in zip(*np.nonzero(differ), strict=True)]
    assert not where, f"{len(where)} differ: {where[:5]}"


# -- what a backtest finds ---------------------------------------------------------------------------------------------


def test_simulate_writes_the_truth_that_the_recording_has(recording: Recording, folder: Path) -> None:
    assert labels(folder / "labels.csv") == list(recording.labels)
    assert runs(folder / "sessions.csv") == list(recording.runs)


@pytest.mark.parametrize("server", ["on_prometheus", "on_victoria"])
def test_a_backtest_on_a_server_finds_what_memory_finds(
    server: str, in_memory: Outcome, request: pytest.FixtureRequest
) -> None:
    figures, told = request.getfixturevalue(server)
    assert figures.keys() >= KEYS
    assert figures["failures"] == figures["detected"] == 2 and set(figures["per_category"]) >= {"bus", "thermal"}
    assert figures["detected"] == in_memory.report.as_json()["detected"]
    assert all(set(alarm) == {"node", "start", "end", "kind", "category", "score"} for alarm in told)
    expected = sorted((a.kind, a.node, a.category, a.start) for a in in_memory.alarms)
    judged = (a for a in told if a["kind"] != "checkpoint_stall")  # the mounts' counters are on a server only
    found = sorted((a["kind"], a["node"], a["category"], a["start"]) for a in judged)
    assert [alarm[:3] for alarm in found] == [alarm[:3] for alarm in expected]
    # A run's pace is looked at each five minutes, and on a server its mounts tell too when it saves.
    within = {"session_hung": LOOK, "session_slow": LOOK}
    pairs = zip(found, expected, strict=True)
    apart = [(mine, at) for mine, (*_, at) in pairs if abs(mine[3] - at) > within.get(mine[0], STEP)]
    assert not apart


# -- going on ----------------------------------------------------------------------------------------------------------


class SecondDayGone(FaultProxy):
    """A server that has the first day only, until it is `whole`: the rest is either waited for or refused."""

    def __init__(self, upstream: str, noon: int) -> None:
        super().__init__(upstream)
        self.noon, self.whole = noon, False
        self.how = {"delay": 60.0, "drop": True}

    def seen(self, request: Request) -> Fault | None:
        found = super().seen(request)
        return self._fault() if not self.whole and self.late(request) else found

    def _fault(self) -> Fault:
        return Fault("", None, "", {}, float(self.how["delay"]), 0, bool(self.how["drop"]), False, None)

    def late(self, request: Request) -> bool:
        return self._span(request)[1] > self.noon

    def early(self) -> list[Request]:
        """What was asked of the first day's GPUs; the mounts' counters are read again, to know what is usual."""
        return [r for r in self.requests if "XID_ERRORS" in r.body and self._span(r)[0] and not self.late(r)]

    @staticmethod
    def _span(request: Request) -> tuple[float, float]:
        """The range that rows are asked for; a look at single hours is none."""
        form = parse_qs(request.body)
        asked_for = "query_range" in request.path and form.get("step") == [str(STEP)]
        return (float(form["start"][0]), float(form["end"][0])) if asked_for else (0, 0)


def test_a_backtest_goes_on_where_it_was_killed_or_the_server_went(
    backtest: Backtest, recording: Recording, victoria: str, on_victoria: Found
) -> None:
    with SecondDayGone(victoria, recording.start + DAY) as server:
        with Process(backtest.argv(server.url), backtest.home / "killed.log", env=backtest.env, cwd=backtest.home):
            eventually(lambda: any(map(server.late, server.requests)), within=60, why="it asks for the second day")
        assert server.early()
        server.clear()

        server.how = {"delay": 0.0, "drop": True}
        failed = backtest.run(server.url)
        assert failed.returncode == 3 and not failed.stdout
        assert "prometheus" in failed.stderr and "Traceback" not in failed.stderr
        assert not server.early(), "the first day was known"
        server.clear()

        server.whole = True
        assert backtest.finished(server.url) == on_victoria
        assert not server.early(), "the first day was known"
    assert not list((backtest.home / "cache/xidbot").iterdir())
