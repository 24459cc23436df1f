"""The study's 55 days of 63 nodes: 20 seeds in memory, and one of them through a server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.detection import DAYS, NODES, SEEDS, detection
from bot.backtest_run import asked, outcome
from bot.sandbox.recording import Recording
from bot.sandbox.recording.folder import write
from bot.sandbox.recording.memory import RecordedMetrics
from tests.real.victoria import VictoriaMetrics

pytestmark = pytest.mark.slow
BIN = Path(sys.executable).parent


def test_twenty_seeds_are_found_and_little_is_cried_out_for_nothing() -> None:
    found = detection(print, SEEDS, DAYS, NODES)
    assert found["application_called_hardware"] == 0
    assert found["xid_median"] == found["xid_of"] == 10 and found["xid_worst"] >= 9
    assert found["other_of"] == 7 and found["other_median"] >= 6 and found["other_worst"] >= 5
    assert found["false_median"] <= 0.3 and found["false_worst"] <= 0.6
    assert all(rules["false_median"] > found["false_median"] for rules in found["baselines"].values())


@pytest.mark.real
def test_55_days_through_a_server_find_what_memory_finds(tmp_path: Path) -> None:
    recording = Recording(1, DAYS, NODES)
    out = tmp_path / "out"
    server = VictoriaMetrics(tmp_path / "server")

    def load(day: int) -> None:
        for path in out.glob("*.jsonl"):
            server.load([path])
            path.unlink()  # half a GB each

    files = {"sessions": str(out / "sessions.csv"), "labels": str(out / "labels.csv")}
    span = {"start": str(recording.start), "end": str(recording.end), "step": "60s"}
    try:
        write(recording, out, "victoriametrics", done=load)
        options = [f"--{name}={path}" for name, path in files.items()]
        argv = [BIN / "xidbot", "backtest", f"--prometheus={server.url}", "--json", *options]
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
