"""`xidbot signals`: what each signal says, and why it says nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from bot import policy as policies
from bot.cli_signals import signals as command
from bot.errors import BadReply, Unreachable
from bot.signals.needs import TELLERS, metrics, missing, teller
from bot.survey import Survey, Told, survey
from bot.survey_text import as_json, text
from tests.unit.test_observe import Eyes
from tests.unit.test_repeats import Log

SIGNALS = policies.signals(None)
QUERIED = [name for name, signal in SIGNALS.items() if signal.query]

# -- what a query needs ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("query", "needs"), [
    ("max by ($by) (DCGM_FI_DEV_GPU_TEMP > 0 < 150)", ["DCGM_FI_DEV_GPU_TEMP"]),
    ('rate(my_app:errors_total{job="a", node=~"b{2}"}[5m]) offset 1h > bool 1e6', ["my_app:errors_total"]),
    ("a / on (instance) group_left (node) b or (1 - up{$dcgm}) unless inf", ["a", "b", "up"]),
    ('{__name__=~"DCGM_(A|B)_X|up", xid!=""} > 0', ["DCGM_A_X", "DCGM_B_X", "up"]),
    ('{__name__="node_load1"}', ["node_load1"]),
    ('label_replace(node_load1, "by", "$1", "instance", "(.*):.*")', ["node_load1"]),
    ("# of node_x\nquantile_over_time(0.1, y[10m:30s])", ["y"]),
    ("vector(1)", []),
])  # fmt: skip
def test_the_metrics_of_a_query(query: str, needs: list[str]) -> None:
    assert sorted(metrics(query)) == sorted(needs)


def test_a_clause_that_cannot_be_counted_out_stands_for_what_it_matches() -> None:
    (pattern,) = metrics('{__name__=~"node_.+_total"}')
    assert missing([pattern], {"node_intr_total"}) == []
    assert missing([pattern], {"node_load1"}) == ["node_.+_total"]


def test_every_shipped_signal_needs_a_metric_or_has_somebody_who_tells_it() -> None:
    for name, signal in SIGNALS.items():
        assert bool(metrics(signal.query)) != bool(teller(name)), name
    assert set(TELLERS) <= set(SIGNALS)


# -- one look ----------------------------------------------------------------------------------------------------------


@dataclass
class Source:
    """Names that are there."""

    there: list[str] = field(default_factory=list)
    error: Exception | None = None

    def instant(self, query: str, at: int | None = None) -> list[tuple[Mapping[str, str], Any]]:
        if self.error:
            raise self.error
        assert query.startswith("count by (__name__)")
        return [({"__name__": name}, None) for name in self.there]


def looked(eyes: Eyes, source: Source | None = None, *, scheduled: bool = True) -> Survey:
    return survey(eyes.observer, source or Source(), "http://prom:9090", scheduled=scheduled)


def told(found: Survey, signal: str) -> Told:
    return next(t for t in found.signals if t.signal.id == signal)


def whys(found: Survey, signal: str) -> dict[str, list[str]]:
    return {why.why: list(why.nodes) for why in told(found, signal).why if why.state == "unknown"}


BOTH = ["node-01", "node-02"]


def test_all_is_well_and_what_nobody_tells_is_said() -> None:
    found = looked(Eyes())
    assert found.exit_code == 0 and found.strangers == () and found.nodes == ("node-01", "node-02")
    assert {t.signal.id for t in found.signals if t.good == 2} == {*QUERIED, "health_check"} - {"dcgm_frozen"}
    assert whys(found, "nvswitch") == {"not configured: kernel log (logs.kernel_log.journal or command)": BOTH}
    assert whys(found, "job_log_node") == {"not configured: job log (sessions.log)": BOTH}
    assert list(whys(found, "alert"))[0].startswith("not configured: Alertmanager")
    assert [why.why for why in told(found, "interrupts").why] == ["no peers to be compared with"]


def test_what_is_bad_is_named_and_found() -> None:
    eyes = Eyes()
    eyes.tells("row_remap_failure", node_01=1)
    found = looked(eyes)
    assert found.exit_code == 1
    (reading,) = told(found, "row_remap_failure").bad
    assert reading.node == "node-01" and told(found, "row_remap_failure").good == 1
    assert "    bad: node-01: row remapping has failed" in text(found).splitlines()


def test_a_metric_that_is_not_exported_is_named() -> None:
    eyes = Eyes()
    eyes.metrics.told["pcie_width"] = {}
    eyes.metrics.told["oom_kill"] = {}
    found = looked(eyes, Source(["DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH", "node_vmstat_oom_kill"]))
    assert whys(found, "pcie_width") == {"metric not exported: no DCGM_FI_DEV_PCIE_LINK_WIDTH": BOTH}
    assert whys(found, "oom_kill") == {"its query finds nothing": BOTH}
    assert found.exit_code == 0, "a site may live without it"


def test_an_exporter_that_is_down_explains_what_is_missing_on_its_node() -> None:
    eyes = Eyes()
    for name in QUERIED:
        if SIGNALS[name].exporter == "dcgm":
            eyes.metrics.told[name] = {"node-02": 8.0 if "gpu" in name else 0.0}
    eyes.tells("exporter_down", node_01=1)
    found = looked(eyes)
    assert whys(found, "dbe") == {"exporter down: it does not answer": ["node-01"]}
    eyes = Eyes()
    for name in QUERIED:
        if SIGNALS[name].exporter == "node":
            eyes.metrics.told[name] = {"node-01": 0.0}
    assert whys(looked(eyes), "oom_kill") == {"nothing arrives from its node exporter": ["node-02"]}


def test_one_metric_that_one_node_lacks() -> None:
    eyes = Eyes()
    eyes.metrics.told["dbe"] = {"node-01": 0.0}
    assert whys(looked(eyes), "dbe") == {"its GPU exporter does not show it": ["node-02"]}
    eyes = Eyes()
    eyes.metrics.told["dbe"] = {"node-01": 0.0, "node-02": float("nan")}
    assert list(whys(looked(eyes), "dbe")) == ["only blanks or impossible values arrive, or none right now"]


def test_a_frozen_exporter_is_not_compared() -> None:
    eyes = Eyes()
    eyes.tells("dcgm_frozen", node_01=1)
    assert whys(looked(eyes), "gpu_power") == {"exporter frozen: it shows the same values all the time": ["node-01"]}


def test_phases_mute() -> None:
    eyes = Eyes()
    eyes.tells("uptime", node_02=60)
    eyes.scheduler.now = int(time.time()) - 120
    eyes.scheduler.submit("9041", 1)
    found = looked(eyes)
    assert whys(found, "interrupts") == {
        "muted: the run is starting": ["node-01"],
        "muted: the node has just booted": ["node-02"],
    }
    assert whys(found, "dcgm_frozen") == {"muted: no run on the node": ["node-02"]}


@pytest.mark.parametrize(("signal", "phase"), [("storage_write", "saves"), ("storage_read", "loads")])
def test_saves_and_loads_mute(signal: str, phase: str) -> None:
    eyes = Eyes()
    for name in ("storage_write", "storage_read"):
        eyes.tells(name, node_01=1e9 if name == signal else 0, node_02=0)
    assert whys(looked(eyes), "page_out") == {f"muted: the run {phase}": ["node-01"]}


def test_gpus_that_nobody_expects() -> None:
    eyes = Eyes()
    eyes.scheduler.nodes = {name: replace(node, gpus=None) for name, node in eyes.scheduler.nodes.items()}
    found = looked(eyes)
    assert whys(found, "gpu_missing") == {"nobody knows how many GPUs the node should have": BOTH}


def test_hosts_that_map_to_no_node_are_told_apart() -> None:
    eyes = Eyes()
    eyes.tells("row_remap_failure", stranger=1)
    found = looked(eyes)
    assert found.strangers == ("stranger",)
    assert told(found, "row_remap_failure").good == 2 and found.exit_code == 0
    assert "hosts that map to no node: stranger; see prometheus.node_labels and node_pattern" in text(found)


def test_what_cannot_be_read() -> None:
    eyes = Eyes()
    eyes.metrics.told["dbe"] = BadReply("prometheus", "parse error")
    eyes.observer.logs = (Log(broken=True, signals=("nvswitch",)),)
    found = looked(eyes)
    assert whys(found, "dbe") == {"cannot be read: parse error": BOTH}
    assert whys(found, "nvswitch") == {"the kernel log cannot be read: was not read within 8 s": BOTH}
    assert found.exit_code == 3


def test_prometheus_down_leaves_everything_unknown() -> None:
    eyes = Eyes()
    for name in eyes.metrics.told:
        eyes.metrics.told[name] = Unreachable("prometheus", "Connection refused")
    found = looked(eyes)
    assert found.exit_code == 3 and {t.unknown for t in found.signals} == {2}
    assert whys(found, "dbe") == {"cannot be read: Connection refused": BOTH}


def test_a_log_that_is_read_makes_its_signals_good() -> None:
    eyes = Eyes()
    eyes.observer.logs = (Log(signals=("nvswitch",)),)
    found = looked(eyes)
    assert (told(found, "nvswitch").good, told(found, "xid_repeated").good) == (2, 2)


def test_without_a_scheduler_nobody_tells_of_health_checks() -> None:
    found = looked(Eyes(), scheduled=False)
    assert whys(found, "health_check") == {"no scheduler is asked": BOTH}
    assert "nobody knows who runs where" in text(found)


def test_the_json_holds_what_the_lines_hold() -> None:
    eyes = Eyes()
    eyes.tells("row_remap_failure", node_01=1)
    body = json.loads(as_json(looked(eyes)))
    entry = next(s for s in body["signals"] if s["id"] == "row_remap_failure")
    assert (entry["evidence"], entry["good"], entry["bad"], entry["unknown"]) == ("hard", 1, 1, 0)
    assert entry["bad_nodes"][0]["node"] == "node-01"
    silent = next(s for s in body["signals"] if s["id"] == "alert")
    assert silent["why"][0]["state"] == "unknown" and silent["why"][0]["count"] == 2


# -- the command -------------------------------------------------------------------------------------------------------


def run(*words: str, config: str | None = None) -> Any:
    return CliRunner().invoke(command, list(words), obj={"config": config, "db": None})


def test_without_an_address_the_catalogue_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XIDBOT_CONFIG", raising=False)
    done = run()
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == list(SIGNALS)
    (entry, *_) = json.loads(run("--json").stdout)["signals"]
    assert entry == {"id": "xid_reboot", "category": "bus", "evidence": "hard", "provenance": "kernel",
                     "title": "Xid that needs a reboot"}  # fmt: skip


def test_an_address_that_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XIDBOT_CONFIG", raising=False)
    wrong = run("--prometheus", "prom:9090")
    assert "is no http(s) URL" in str(wrong.exception) and wrong.exception.exit_code == 2
    silent = run("--prometheus", "http://127.0.0.1:9")
    assert silent.exception.exit_code == 3


def test_help_loads_click_alone() -> None:
    code = (
        "import sys\nfrom bot import cli_signals\n"
        "print(sorted({'numpy', 'pydantic', 'yaml', 'requests', 'slack_sdk', 'sqlite_utils'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
