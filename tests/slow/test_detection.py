"""The study's 55 days of 63 nodes: 20 seeds in memory, and one of them through a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from bench.detection import DAYS, NODES, SEEDS, detection
from bot.backtest_run import asked, outcome
from bot.sandbox.recording import Recording
from bot.sandbox.recording.folder import write_truth
from bot.sandbox.recording.memory import RecordedMetrics
from bot.sandbox.recording.writers import write_day
from tests.real.victoria import VictoriaMetrics

pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent
WORK = Path(__file__).parents[2] / ".work"


def test_twenty_seeds_are_found_and_little_is_cried_out_for_nothing() -> None:
    found = detection(print, SEEDS, DAYS, NODES)
    assert found["application_called_hardware"] == 0
    assert found["xid_median"] == found["xid_of"] == 10 and found["xid_worst"] >= 9
    assert found["other_of"] == 7 and found["other_median"] >= 6 and found["other_worst"] >= 5
    assert found["false_median"] <= 0.3 and found["false_worst"] <= 0.6
    assert all(rules["false_median"] > found["false_median"] for rules in found["baselines"].values())


@pytest.fixture
def disk() -> Iterator[Path]:
    """Gigabytes: the usual temporary folder may be memory."""
    WORK.mkdir(exist_ok=True)
    with TemporaryDirectory(dir=WORK) as folder:
        yield Path(folder)


@pytest.mark.real
def test_55_days_through_a_server_find_what_memory_finds(disk: Path, tmp_path: Path) -> None:
    recording, out = Recording(1, DAYS, NODES), tmp_path
    server = VictoriaMetrics(disk)
    files = {"sessions": str(out / "sessions.csv"), "labels": str(out / "labels.csv")}
    span = {"start": str(recording.start), "end": str(recording.end), "step": "60s"}
    try:
        write_truth(recording, out)
        for day in range(DAYS):
            path = write_day(recording, day, disk, "victoriametrics")
            server.load([path])
            path.unlink()  # half a GB each
        options = [f"--{name}={path}" for name, path in files.items()]
        argv: list[str | Path] = [BIN / "xidbot", "backtest", f"--prometheus={server.url}", "--json", *options]
        span_options = [f"--from={recording.start}", f"--to={recording.end}"]
        env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache")}
        told = subprocess.run([*argv, *span_options], env=env, cwd=tmp_path, text=True, capture_output=True, check=True)
    finally:
        server.stop()
    theirs = json.loads(told.stdout)

    rest = dict.fromkeys(("alarms", "against", "again", "storage_labels"))
    wanted = asked(None, {"url": "http://memory", **span, **files, **rest})
    mine = outcome(wanted, RecordedMetrics(recording), lambda at: None).report.as_json()
    print("server", theirs, "memory", mine)
    for name in ("failures", "detected", "early"):
        assert theirs[name] == mine[name]
    assert abs(theirs["false_per_day"] - mine["false_per_day"]) <= 0.1
