"""`xidbot signals` on a real Prometheus: what is exported, what is not, and why."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from bot import policy as policies
from bot.schedulers.simulated import SimulatedScheduler
from bot.site import read_site
from bot.survey import Survey, Told
from bot.survey_site import of_site, of_url
from store.store import Store
from tests.real.exporter import Exporter
from tests.real.prometheus import Prometheus
from tests.real.supervise import eventually

pytestmark = pytest.mark.real

QUICK = {"time": {"step": "2s", "lag": "1s", "window": "1m"}}  # scraped each second, and nothing is old


def told(found: Survey, signal: str) -> Told:
    return next(t for t in found.signals if t.signal.id == signal)


def whys(found: Survey, signal: str) -> dict[str, int]:
    return {why.why: len(why.nodes) for why in told(found, signal).why if why.state == "unknown"}


def test_an_address_alone_shows_what_a_stranger_exports(exporter: Exporter, prom: Prometheus, tmp_path: Path) -> None:
    exporter.down("node-02")
    eventually(lambda: prom.value('count(up{job="dcgm"} == 0)') == 1, why="one exporter is down")
    eventually(lambda: (prom.value("count(DCGM_FI_DEV_ROW_REMAP_FAILURE)") or 0) == 56, why="its series are stale")
    policy = policies.build(policy=QUICK)
    eventually(lambda: told(of_url(prom.url, policy), "xid_reboot").good == 7, why="seven nodes are good")
    found = of_url(prom.url, policy)
    assert len(found.nodes) == 8 and found.problems == () and not found.strangers
    down = "exporter down: it does not answer"
    assert whys(found, "row_remap_failure") == {down: 1}
    assert whys(found, "pcie_replay") == {down: 1, "metric not exported: no DCGM_FI_DEV_PCIE_REPLAY_COUNTER": 7}
    assert whys(found, "disk_full") == {
        "metric not exported: no node_filesystem_avail_bytes, no node_filesystem_size_bytes": 8
    }
    argv = [str(Path(sys.executable).parent / "xidbot"), "signals", "--prometheus", prom.url, "--json"]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode in (0, 1), done.stderr
    assert {s["id"] for s in json.loads(done.stdout)["signals"]} == set(policy.signals)


def test_a_site_is_looked_at_with_all_its_sources_and_nothing_is_written(
    exporter: Exporter, prom: Prometheus, tmp_path: Path
) -> None:
    log = tmp_path / "kern.log"
    lost = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(time.time() - 20))
    log.write_text(f"{lost} node-01 kernel: NVRM: Xid (PCI:0000:1b:00): 79, GPU has fallen off the bus.\n")
    file, db = tmp_path / "xidbot.yaml", tmp_path / "xidbot.db"
    file.write_text(yaml.safe_dump({
        "site": {"name": "lab", "database": str(db)},
        "prometheus": {"url": "http://127.0.0.1:9"},
        "scheduler": {"kind": "slurm"},
        "policy": QUICK,
        "logs": {"kernel_log": {"syslog": [str(log)]}},
    }))  # fmt: skip
    Store.open(db).close()
    before = db.read_bytes()
    scheduler = SimulatedScheduler(now=int(time.time()))
    scheduler.add_nodes(exporter.nodes[:7])  # the eighth host maps to no node
    eventually(lambda: prom.value("count(DCGM_FI_DEV_ROW_REMAP_FAILURE)") == 64, why="scraped")
    site = read_site(file)
    eventually(lambda: told(of_site(site, None, prom.url, scheduler), "dbe").good == 7, why="all are good")
    found = of_site(site, None, prom.url, scheduler)
    (reading,) = told(found, "xid_claimed").bad
    assert (reading.node, reading.value) == ("node-01", 79)
    assert {host.partition(":")[0] for host in found.strangers} == {"node-08"} and found.exit_code == 1
    assert told(found, "health_check").good == 7
    assert list(whys(found, "nvswitch"))[0].startswith("not configured: kernel log")
    assert db.read_bytes() == before
    with sqlite3.connect(db) as connection:
        assert connection.execute("select count(*) from cursors").fetchone() == (0,)
