"""`xidbot doctor` on parts that answer as they are told."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from bot import doctor, doctor_site
from bot import events as ev
from bot.cli_doctor import doctor as command
from bot.doctor import examine, exit_code
from bot.doctor_site import Finding, Patient, patient
from bot.errors import AuthFailed, GateError, Unreachable
from bot.model import Argv, Cluster, Incident, Report, SourceState
from bot.ports import Matrix
from bot.schedulers.simulated import SimulatedScheduler
from bot.site import read_site
from bot.sources.prometheus import Health
from store.store import Store

NODES = ("node-01", "node-02", "node-03", "node-04")
SITE: dict[str, Any] = {
    "site": {"name": "lab", "write_mode": "approve"},
    "prometheus": {"url": "http://127.0.0.1:9"},
    "scheduler": {"kind": "slurm", "gate": ["xidbot-gate"]},
    "sessions": [{"match": {"qos": "pretrain"}}],
}


class Metrics:
    """Every signal is 0 on every node, every gauge is there."""

    def __init__(self) -> None:
        self.hosts: tuple[str, ...] = NODES
        self.silent: set[str] = set()
        self.exporters: dict[str, int] = {"dcgm": 4}
        self.ahead = 0.0
        self.error: Exception | None = None
        self.gauges = True

    def check(self) -> Health:
        if self.error:
            raise self.error
        return Health("2.42.0", self.exporters)

    def instant(self, query: str, at: int | None = None) -> list[tuple[Mapping[str, str], Any]]:
        now = time.time()
        if query.startswith("vector"):
            return [({}, np.array([[now, now + self.ahead]]))]
        if query.startswith("count("):
            return []
        job = {"job": "123"} if "train_" in query else {}
        return [(job, np.array([[now, 100.0]]))] if self.gauges else []

    def matrix(self, signal: Any, start: int, end: int, step: int, nodes: Sequence[str]) -> Matrix:
        times = np.arange(start, end + 1, step)
        hosts = () if signal.id in self.silent else self.hosts
        return Matrix(hosts, tuple(h in nodes for h in hosts), times, np.zeros((len(times), len(hosts))))


class Door:
    """A gate that says this of its status."""

    def __init__(self) -> None:
        self.body: dict[str, Any] = {
            "paused": False,
            "writes": {"used": 0, "cap": 4, "left": 4, "window": 600},
            "held": {"cap": 3, "left": 3, "nodes": {}},
        }
        self.exit = 0
        self.error: GateError | None = None

    def run(self, argv: Argv, key: str) -> Report:
        assert argv == Argv("status", ())
        if self.error:
            raise self.error
        return Report(self.exit, self.body)


class Chat:
    def __init__(self, problem: str = "") -> None:
        self.problem = problem

    def check(self, channel: str) -> tuple[SourceState, ...]:
        return (SourceState("slack token", self.problem),)


@pytest.fixture
def ward(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Patient]:
    monkeypatch.delenv("SLACK_BOT_TOKEN", raising=False)
    monkeypatch.delenv("SLACK_APP_TOKEN", raising=False)
    monkeypatch.setattr(doctor, "packages_distributions", dict)  # reads every file list of the venv

    def make(**over: Any) -> Patient:
        file = tmp_path / "xidbot.yaml"
        file.write_text(yaml.safe_dump({**SITE, **over}))
        scheduler = SimulatedScheduler(now=int(time.time()))
        scheduler.add_nodes(NODES)
        scheduler.submit("123", 2)
        gate = Door() if SITE["scheduler"].get("gate") else None
        return Patient(read_site(file), tmp_path / "x.db", Metrics(), scheduler, gate, lambda: "")  # type: ignore[arg-type]

    return make


def wrong(p: Patient) -> list[Finding]:
    return [finding for finding in examine(p) if finding.mark != "ok"]


def only(p: Patient) -> Finding:
    (finding,) = wrong(p)
    assert finding.remedy
    return finding


def test_a_healthy_site_has_no_fault_and_says_what_was_seen(ward: Callable[..., Patient]) -> None:
    looked: list[str] = []
    findings = examine(ward(), looked.append)
    assert [f for f in findings if f.mark != "ok"] == []
    assert exit_code(findings) == 0
    assert looked == [name for name, _ in doctor.CHECKS]
    text = "\n".join(map(str, findings))
    for part in ("cluster simcl", "session-123", "dcgm (4)", "hosts are nodes", "gauges of 1 runs", "0 of 3 nodes held",
                 "the first run makes it", "local workspace"):  # fmt: skip
        assert part in text


def test_prometheus_down_is_told_once(ward: Callable[..., Patient]) -> None:
    p = ward()
    p.metrics.error = Unreachable("prometheus", "Connection refused")  # type: ignore[attr-defined]
    found = only(p)
    assert str(found).startswith("fail  prometheus: Connection refused  · check prometheus in the site file")
    assert exit_code([found]) == 3


def test_a_wrong_token_of_prometheus_is_not_out_of_reach(ward: Callable[..., Patient]) -> None:
    p = ward()
    p.metrics.error = AuthFailed("prometheus", "status 401", "see token_file")  # type: ignore[attr-defined]
    found = next(f for f in wrong(p) if "401" in f.what)
    assert found.remedy == "see token_file"
    assert not found.out_of_reach


def test_no_exporter_job_and_a_skewed_clock(ward: Callable[..., Patient]) -> None:
    p = ward()
    p.metrics.exporters, p.metrics.ahead = {}, 90.0  # type: ignore[attr-defined]
    jobs, clock = wrong(p)
    assert "dcgm-exporter" in jobs.what and "dcgm_jobs" in jobs.remedy
    assert clock.what == "Prometheus' clock is 90 s ahead"


def test_an_unknown_signal_names_the_metric_that_is_missing(ward: Callable[..., Patient]) -> None:
    p = ward()
    p.metrics.silent = {"row_remap_failure"}  # type: ignore[attr-defined]
    found = only(p)
    assert found.what == "signal row_remap_failure is unknown: no DCGM_FI_DEV_ROW_REMAP_FAILURE"


def test_hosts_that_are_no_nodes_and_nodes_without_telemetry(ward: Callable[..., Patient]) -> None:
    p = ward()
    p.metrics.hosts = (*NODES[:3], "dcgm-exporter-x7")  # type: ignore[attr-defined]
    strangers, silent = wrong(p)
    assert strangers.what.endswith("dcgm-exporter-x7") and "node_labels" in strangers.remedy
    assert silent.what.endswith("node-04")


def test_a_run_without_gauges_is_named(ward: Callable[..., Patient]) -> None:
    p = ward()
    p.metrics.gauges = False  # type: ignore[attr-defined]
    assert only(p).what == "no checkpoint gauge yet: session-123"


def test_a_scheduler_that_hangs(ward: Callable[..., Patient]) -> None:
    p = ward()
    p.scheduler.broken = "squeue did not answer within 10 s"  # type: ignore[attr-defined]
    found = wrong(p)
    assert found[0].what == "scheduler: squeue did not answer within 10 s" and found[0].out_of_reach
    assert exit_code(found) == 3
    assert len(found) == 1


def test_accounting_that_cannot_be_read_and_too_wide_rights(ward: Callable[..., Patient]) -> None:
    p = ward()
    real = p.scheduler.snapshot

    def without(now: int, watch: Sequence[str] = ()) -> Cluster:
        assert watch in ((), ["123"])
        return replace(real(now, watch), unknown=("accounting",) if watch else ())

    p.scheduler.snapshot = without  # type: ignore[method-assign, assignment]
    p.admin_level = lambda: "Administrator"
    books, rights = wrong(p)
    assert "accounting cannot be read" in books.what
    assert rights.what.endswith("has the right Administrator") and rights.mark == "warn"


def test_rules_that_match_nothing_and_no_rule_at_all(ward: Callable[..., Patient]) -> None:
    other = only(ward(sessions=[{"match": {"partition": "big"}}]))
    assert other.what == "rule 1 (partition=big) matches none of 1 jobs" and "squeue" in other.remedy
    assert "no session rule" in only(ward(sessions=[])).what


def test_a_run_that_cannot_be_requeued(ward: Callable[..., Patient]) -> None:
    p = ward()
    p.scheduler.submit("124", 1, requeue=False)  # type: ignore[attr-defined]
    assert any(f.what == "cannot be requeued: session-124" for f in wrong(p))


def test_the_gate(ward: Callable[..., Patient]) -> None:
    p = ward()
    door = p.gate
    assert isinstance(door, Door)
    door.body["held"]["left"] = 0
    assert "release a node" in only(p).remedy
    door.body |= {"paused": True, "why": "fabric work (alice)"}
    assert only(p).what == "gate: paused: fabric work (alice)"
    door.exit, door.body = 4, {"reason": "gate settings: no such file"}
    assert only(p).what == "gate: gate settings: no such file"
    door.error = GateError("the gate could not be started: No such file", "check scheduler.gate")
    found = only(p)
    assert found.remedy == "check scheduler.gate" and exit_code([found]) == 3
    p.gate = None
    assert only(p).what == "write mode approve and no gate: nothing can be done"


def test_slack(ward: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch) -> None:
    p = ward(slack={"channel": "C0123", "api_url": "http://127.0.0.1:9"})
    monkeypatch.setenv("SLACK_BOT_TOKEN", "xoxb-1")
    assert "SLACK_APP_TOKEN is missing" in only(p).what
    monkeypatch.setenv("SLACK_APP_TOKEN", "xapp-1")
    p.connect = lambda token, url: Chat("auth.test: invalid_auth (is it this app's?)")  # type: ignore[assignment, return-value]
    token, socket = wrong(p)
    assert (token.what, token.remedy) == ("slack token: auth.test: invalid_auth", "is it this app's?")
    assert socket.out_of_reach and socket.what.startswith("slack: apps.connections.open")


def test_the_database(ward: Callable[..., Patient], tmp_path: Path) -> None:
    p = ward()
    store = Store.open(p.db)
    store.take_lease()
    store.append([ev.IncidentOpened(1, Incident(1, 1, "gpu_fault", "node-01", 1), "p")])
    assert wrong(p) == []
    assert any("1 events" in f.what and "writes" in f.what for f in examine(p))
    with store.database.write() as connection:
        connection.execute("update docs set body = replace(body, 'node-01', 'node-02')")
        connection.execute("insert into slots (tag, slot, channel, text, blocks, wanted, first_wanted, state, problem)"
                           " values ('1.1', 'main', 'C1', '', '[]', 'x', 1, 'failed', 'not_in_channel'),"
                           " ('1.1', 'story', 'C1', '', '[]', 'x', 1, 'new', '')")  # fmt: skip
    store.close()
    differs, given_up, waiting = wrong(p)
    assert "incident 1.1: differs" in differs.what and "rebuild" in differs.remedy
    assert given_up.what == "1 messages were given up: 1.1/main: not_in_channel"
    assert waiting.what.startswith("1 messages wait")
    p.db.write_bytes(b"no database")
    assert "cannot be read" in only(p).what


def test_a_network_filesystem(ward: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.database, "_filesystem", lambda path: "nfs4")
    assert "lies on nfs4" in only(ward()).what


def test_another_distribution_with_our_names(ward: Callable[..., Patient], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "packages_distributions", lambda: {"commands": ["xidbot", "discord-bot"]})
    assert only(ward()).what == "package `commands` also belongs to discord-bot"


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ward: Callable[..., Patient]) -> None:
    p = ward()
    monkeypatch.setattr(doctor_site, "patient", lambda site, db: p)
    done = CliRunner().invoke(command, [], obj={"config": str(p.site.path), "db": None})
    assert done.exit_code == 0, done.output
    assert all(line.startswith("ok  ") for line in done.stdout.splitlines())
    assert "looking at prometheus" in done.stderr
    told = json.loads(CliRunner().invoke(command, ["--json"], obj={"config": str(p.site.path), "db": None}).stdout)
    assert {one["mark"] for one in told} == {"ok"}


def test_a_broken_site_file_is_a_finding_too(tmp_path: Path) -> None:
    file = tmp_path / "xidbot.yaml"
    file.write_text("site: {nam: lab}\n")
    done = CliRunner().invoke(command, [], obj={"config": str(file), "db": None})
    assert done.exit_code == 2
    assert done.stdout.startswith("fail  site file: ") and "did you mean 'name'?" in done.stdout


def test_what_it_is_made_of_needs_no_network(ward: Callable[..., Patient]) -> None:
    made = patient(ward().site, Path("x.db"))
    assert made.metrics.url == "http://127.0.0.1:9"
