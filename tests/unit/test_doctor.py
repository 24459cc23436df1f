"""`xidbot doctor` on parts that answer as they are told."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from click.testing import CliRunner

from bot import doctor, doctor_inputs, doctor_site
from bot import events as ev
from bot.cli_doctor import doctor as command
from bot.doctor import examine, exit_code
from bot.doctor_site import Finding, Patient, patient
from bot.errors import AuthFailed, GateError, Unreachable
from bot.http import Handlers, Listener, Reply
from bot.model import Argv, Cluster, Incident, Report, SourceState
from bot.ports import Matrix
from bot.schedulers.simulated import SimulatedScheduler
from bot.site import read_site
from bot.sources.prometheus import Health
from bot.sources.reader import Reader
from store import database
from store.store import Store
from tests.real.faultproxy import FaultProxy
from tests.real.supervise import free_port
from tests.unit.test_alertmanager import silence

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
    monkeypatch.setattr(database, "_filesystem", lambda path: "nfs4")
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


# -- what comes in, and files ------------------------------------------------------------------------------------------

MATCH = {"qos": "pretrain"}
FACT = "NVRM: Xid (PCI:0000:c1:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


def told(p: Patient, name: str) -> list[Finding]:
    """What one check of the table finds."""
    return list(doctor._looked(name, dict(doctor.CHECKS)[name], p))


def test_the_listener(ward: Callable[..., Patient], tmp_path: Path) -> None:
    (free,) = told(ward(http={"listen": f"127.0.0.1:{free_port()}"}), "http")
    assert free.mark == "ok" and "open to everybody on this machine" in free.what
    (absent,) = told(ward(http={"token_file": str(tmp_path / "none")}), "http")
    assert absent.mark == "fail" and "cannot be read for the listener's token" in absent.what
    (foreign,) = told(ward(http={"listen": "198.51.100.7:8095", "token_file": str(tmp_path / "xidbot.yaml")}), "http")
    assert "cannot listen on 198.51.100.7:8095" in foreign.what and "none of this machine's" in foreign.remedy


def test_a_port_that_is_taken_by_the_bot_or_by_another(ward: Callable[..., Patient]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        threading.Thread(target=lambda: other.accept()[0].close(), daemon=True).start()
        (taken,) = told(ward(http={"listen": f"127.0.0.1:{other.getsockname()[1]}"}), "http")
    assert taken.mark == "fail" and "another program" in taken.what
    for reply, mark, words in ((Reply(), "ok", "the bot listens"), (Reply(503, "cannot see slurm\n"), "warn", "slurm")):
        bot = Listener(("127.0.0.1", 0), Handlers(lambda _: Reply(), lambda _: Reply(), lambda: reply, Reply))  # noqa: B023
        bot.start()
        (found,) = told(ward(http={"listen": bot.url.removeprefix("http://")}), "http")
        bot.stop()
        assert found.mark == mark and words in found.what


def test_each_alertmanager(ward: Callable[..., Patient]) -> None:
    js = {"Content-Type": "application/json"}
    with FaultProxy("http://127.0.0.1:1") as good, FaultProxy("http://127.0.0.1:1") as bad:
        p = ward(alertmanager={"url": [good.url, bad.url]})
        good.fault(
            "/api/v2/silences", status=200, body=json.dumps([silence(("a", "=~", r"\pL"))]), headers=js, times=None
        )
        good.fault("/api/v2/alerts", status=200, body="", headers=js, times=None)
        bad.fault("/api/v2/silences", status=200, body="[]", headers=js, times=None)
        bad.fault("/api/v2/alerts", status=403, body="read only", times=None)
        unread, fine, refused = told(p, "alertmanager")
        assert unread.mark == "warn" and "cannot be applied here" in unread.what
        assert fine.mark == "ok" and fine.what == f"alertmanager {good.url}: 1 active silences, takes pages"
        assert refused.mark == "fail" and "403" in refused.what and bad.url in refused.what and refused.remedy
        assert not refused.out_of_reach
        assert [json.loads(seen.raw) for seen in good.requests if seen.path == "/api/v2/alerts"] == [[]]
    gone = told(p, "alertmanager")
    assert [f.out_of_reach for f in gone] == [True, True]


def journal(at: float, host: str = "node-01", **fields: str) -> str:
    entry = {"_HOSTNAME": host, "__REALTIME_TIMESTAMP": str(int(at * 1e6)), "MESSAGE": FACT, "_TRANSPORT": "kernel"}
    return json.dumps({k: v for k, v in (entry | fields).items() if v}) + "\n"


@pytest.mark.parametrize(
    ("lines", "mark", "says", "remedy"),
    [
        (lambda now: journal(now), "ok", "1 lines of 1 hosts in the last day, the kernel's own word", ""),
        (lambda now: journal(now, _TRANSPORT=""), "warn", "counts as a claim", "underscore"),
        (lambda now: journal(now, host="hv-9"), "fail", "no nodes of the scheduler: hv-9", "node_pattern"),
        (lambda now: "Dec  1 00:00:00 node-01 kernel: x\n" * 2, "warn", "no line of the last day", "still written"),
        (lambda now: journal(now - 2 * 86400) * 2, "warn", "no line of the last day", "still written"),
    ],
)
def test_a_journal_in_json(
    ward: Callable[..., Patient], tmp_path: Path, lines: Callable[[float], str], mark: str, says: str, remedy: str
) -> None:
    log = tmp_path / "journal.json"
    log.write_text(lines(time.time() - 60))
    found = told(ward(logs={"kernel_log": {"journal": [str(log)]}}), "kernel logs")
    assert any(f.mark == mark and says in f.what and remedy in f.remedy for f in found), found


def test_kernel_logs_that_are_not_there_or_come_from_a_command_that_fails(
    ward: Callable[..., Patient], tmp_path: Path
) -> None:
    command = ["sh", "-c", "echo No journal files were opened >&2; exit 1"]
    p = ward(logs={"kernel_log": {"syslog": [str(tmp_path / "*.log")], "command": command}})
    failed, absent = told(p, "kernel logs")
    assert failed.mark == "fail" and "No journal files were opened" in failed.what and failed.remedy
    assert absent.mark == "fail" and "no such file" in absent.what


def test_the_log_of_a_run(ward: Callable[..., Patient], tmp_path: Path) -> None:
    p = ward(sessions=[{"match": MATCH, "log": f"{tmp_path}/logs/$job.out"}])
    (absent,) = told(p, "job logs")
    assert absent.mark == "warn" and "session-123" in absent.what and "sessions.log" in absent.remedy
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "123.out").write_text("step 1\n")
    (found,) = told(p, "job logs")
    assert found.mark == "ok" and "session-123" in found.what
    assert told(ward(), "job logs")[0].what == "job logs: no rule names any"


def test_a_path_that_a_run_s_own_name_cannot_fill_in(ward: Callable[..., Patient], tmp_path: Path) -> None:
    p = ward(sessions=[{"match": MATCH, "log": f"{tmp_path}/$name.out"}])
    p.scheduler.jobs["123"] = replace(p.scheduler.jobs["123"], name="a/b")  # type: ignore[attr-defined]
    (found,) = told(p, "job logs")
    assert found.mark == "warn" and "cannot be filled in for session-123" in found.what


def test_the_checkpoint_directory_of_a_run(ward: Callable[..., Patient], tmp_path: Path) -> None:
    rule = {"match": MATCH, "checkpoint": {"directory": f"{tmp_path}/ckpt/$job"}}
    p, place = ward(sessions=[rule]), tmp_path / "ckpt" / "123"
    (absent,) = told(p, "checkpoint directories")
    assert absent.mark == "warn" and "there is no such directory" in absent.what
    (place / "iter_0000100").mkdir(parents=True)
    (place / "iter_0000100" / "shard-0").write_bytes(b"x")
    (unmarked,) = told(p, "checkpoint directories")
    assert "nothing there says" in unmarked.what and "sessions.checkpoint.marker" in unmarked.remedy
    (place / "latest_checkpointed_iteration.txt").write_text("100")
    (found,) = told(p, "checkpoint directories")
    assert found.mark == "ok" and "step 100 is whole, as latest_checkpointed_iteration.txt says" in found.what
    p.metrics.gauges = False  # type: ignore[attr-defined]
    assert wrong(p) == []  # no gauge is missing where the directory tells


def test_a_checkpoint_directory_on_a_storage_that_hangs(
    ward: Callable[..., Patient], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hanging = Reader(deadline=0.2, argv=(sys.executable, "-c", "import sys; sys.stdin.read()"))
    monkeypatch.setattr(doctor_inputs, "Reader", lambda: hanging)
    rule = {"match": MATCH, "checkpoint": {"directory": f"{tmp_path}/ckpt/$job"}, "log": f"{tmp_path}/$job.out"}
    p = ward(sessions=[rule])
    for name in ("checkpoint directories", "job logs"):
        (found,) = told(p, name)
        assert found.out_of_reach and "storage" in found.remedy
