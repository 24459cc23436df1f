"""A backtest from its question to its outcome, over a small cluster's past in memory or behind a bare HTTP server."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bot import cli
from bot.backtest import Alarm, Replayed, alarms
from bot.backtest_files import Label
from bot.backtest_notes import Notes
from bot.backtest_report import alarmed_seconds
from bot.backtest_run import Asked, Outcome, outcome
from bot.config import PrometheusSite
from bot.errors import ConfigError, Unreachable
from bot.events import IncidentOpened, StallChanged
from bot.model import AppXid, Incident, Stall
from bot.policy import Signal
from bot.storage.numbers import MountFacts
from tests.unit.past import DAY, HOUR, MINUTE, NODES, SIGNALS, STEP, T0, Past, policy, run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("XIDBOT_CONFIG", raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path / "cache" / "xidbot"


def asked(hours: int = 6, **facts: Any) -> Asked:
    """A run on all nodes but the last, which is its spare."""
    given = {"runs": [run(nodes=NODES[:5])], "labels": [], "policy": policy(), **facts}
    return Asked(PrometheusSite(url="http://prom"), start=T0, end=T0 + hours * HOUR, **given)


def notes(wanted: Asked) -> Notes:
    return Notes(wanted.name, wanted.start, again=wanted.again)


def answered(past: Past, wanted: Asked) -> Outcome:
    return outcome(wanted, past, lambda at: None, notes(wanted))


def told(found: Outcome) -> list[tuple[str, str, str, float]]:
    """kind, node, category, hour."""
    return [(a.kind, a.node, a.category, (a.start - T0) // MINUTE / 60) for a in found.alarms]


def sick(begin: int = 0) -> Past:
    """Within four hours a GPU of n1 vanishes, remaps grow on n2, n4 falls silent, and an Xid kills a GPU of n3."""
    past = Past()
    past.tells("gpu_missing", "n1", 7, begin + 10, begin + 60)
    past.tells("correctable_remap_growth", "n2", 40, begin + 30, begin + 150)
    past.silences("n4", begin + 160, begin + 180, "dcgm")
    past.tells("xid_reboot", "n3", 79, begin + 200, begin + 205)
    return past


# -- what comes of it --------------------------------------------------------------------------------------------------


def test_a_fault_is_an_alarm_from_its_beginning_until_its_evidence_has_ended() -> None:
    past = Past()
    past.tells("xid_reboot", "n3", 79, 60, 65)
    (found,) = answered(past, asked()).alarms
    assert (found.node, found.kind, found.category, found.score) == ("n3", "gpu_fault", "bus", 1.0)
    lasts = policy().signals["xid_reboot"].evidence.lasts
    assert 0 <= found.start - (T0 + HOUR) <= 2 * MINUTE
    assert 0 <= found.end - (T0 + HOUR + 5 * MINUTE + lasts) <= 3 * MINUTE
    assert "Xid 79" in found.why


@pytest.mark.parametrize(
    ("signal", "code", "part"), [("xid_reset", 95, "ecc"), ("xid_reset", 119, "gsp"), ("xid_test", 145, "nvlink")]
)
def test_an_xid_s_alarm_names_the_part_that_the_code_is_about(signal: str, code: int, part: str) -> None:
    past = Past()
    past.tells(signal, "n3", code, 60, 65)
    found = answered(past, asked(policy=policy(*SIGNALS, "xid_reset", "xid_test")))
    assert [(alarm.node, alarm.category) for alarm in found.alarms] == [("n3", part)]


def test_a_healthy_past_has_no_alarms_and_failures_that_nothing_showed_are_not_found() -> None:
    found = answered(Past(), asked(labels=[Label("n1", "", "bus", 79, T0 + HOUR, None)]))
    assert (list(found.alarms), found.report.as_json()["detected"]) == ([], 0)


def test_what_the_bot_would_have_done_is_counted_and_changes_nothing() -> None:
    found = answered(sick(), asked())
    assert [alarm[:2] for alarm in told(found)] == [
        ("gpu_fault", "n1"),
        ("precursor", "n2"),
        ("blind", "n4"),
        ("gpu_fault", "n3"),
    ]
    assert found.report.peak_held >= 1
    assert "mode observe" not in found.report.stopped


def test_an_alarm_that_still_stands_ends_with_the_range() -> None:
    past = Past()
    past.tells("gpu_missing", "n1", 7, 60, 999)
    (found,) = answered(past, asked(2)).alarms
    assert found.end == T0 + 2 * HOUR


def test_the_last_look_lies_before_the_end() -> None:
    past = Past()
    past.tells("xid_reboot", "n3", 79, 120, 125)
    assert answered(past, asked(2)).alarms == []
    assert len(answered(past, asked(3)).alarms) == 1


# -- stopped and gone on -----------------------------------------------------------------------------------------------


def test_after_a_failure_of_the_source_it_goes_on_and_comes_to_the_same(cache: Path) -> None:
    """It stops while n1 and n2 are being told of."""
    wanted, past = asked(28), sick(begin=23 * 60 + 20)
    whole = answered(past, wanted)
    past.broken = T0 + DAY - 3 * HOUR
    with pytest.raises(Unreachable):
        answered(past, wanted)
    assert list(cache.iterdir()), "how far it came is noted"
    past.broken, past.asked = None, []
    again = answered(past, wanted)
    assert again.alarms == whole.alarms and again.report == whole.report
    first = min(start for signal, start, _, step in past.asked if signal == "xid_reboot")
    assert first >= T0 + DAY - HOUR, "what was done is not asked for again"
    assert list(cache.iterdir()) == [], "what is finished is forgotten"


def test_begun_anew_it_forgets_where_it_stopped(cache: Path) -> None:
    notes(asked()).write(Replayed([], T0 + HOUR))
    assert notes(asked()).read().until == T0 + HOUR
    assert notes(asked(again=True)).read() == Replayed([], T0)
    assert list(cache.iterdir()) == []


def test_another_question_does_not_go_on_from_this_one() -> None:
    wanted = asked()
    others = [
        replace(wanted, start=T0 - DAY),
        replace(wanted, end=T0 + 2 * DAY),
        replace(wanted, runs=[run(begin=-500)]),
        replace(wanted, policy=policy("gpu_missing")),
        replace(wanted, prometheus=PrometheusSite(url="http://other")),
    ]
    assert len({wanted.name, *(other.name for other in others)}) == 6
    assert replace(wanted, labels=[Label("n1", "", "bus", None, T0, None)]).name == wanted.name, (
        "only counted at the end"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"labels": [Label("n9", "", "bus", 79, T0 + HOUR, None)]},
        {"prometheus": PrometheusSite(url="http://prom", node_labels=("Hostname",))},
        {"prometheus": PrometheusSite(url="http://prom", dcgm_jobs=("gpus",))},
        {"facts": MountFacts(nconnect=8)},
    ],
)
def test_whatever_changes_what_is_decided_is_another_question(other: dict[str, Any]) -> None:
    notes(asked()).write(Replayed([], T0 + HOUR))
    assert notes(replace(asked(), **other)).read().until == T0


def test_notes_that_cannot_be_read_say_how_to_begin_anew(cache: Path) -> None:
    notes(asked()).write(Replayed([], T0 + HOUR))
    (path,) = cache.glob("backtest-*.jsonl")
    for text in ("", "yesterday", f"{T0}\nReadingChanged {{", f"{T0}\nNothingKnown {{}}"):
        path.write_text(text)
        with pytest.raises(ConfigError, match="no notes to go on from") as caught:
            notes(asked()).read()
        assert "--again" in caught.value.remedy
    assert notes(asked(again=True)).read() == Replayed([], T0)


def test_time_between_two_alarms_is_no_time_under_alarm() -> None:
    apart = [Alarm("n1", T0 + at, T0 + at + MINUTE, "precursor", "bus", 0.7) for at in (0, 10 * MINUTE)]
    assert alarmed_seconds(apart) == 2 * MINUTE
    assert alarmed_seconds([*apart, replace(apart[0], end=T0 + 2 * MINUTE)]) == 3 * MINUTE


def test_a_storage_incident_that_stalls_again_is_an_alarm_for_each_stall() -> None:
    first = Stall("nfs:/ckpt", "slow_save", "unknown", T0)
    incident = Incident(1, 1, "checkpoint_stall", "nfs:/ckpt", T0, stall=first)
    later = [
        replace(first, verdict="client_slots"),
        replace(first, verdict="client_slots", ended=T0 + HOUR),
        Stall("nfs:/ckpt", "hang", "server", T0 + 2 * HOUR),
        Stall("nfs:/ckpt", "hang", "server", T0 + 2 * HOUR, ended=T0 + 3 * HOUR),
    ]
    events = [StallChanged(T0 + n, 1, 1, stall, ()) for n, stall in enumerate(later)]
    done = Replayed([IncidentOpened(T0, incident, "hash"), *events], T0 + DAY)
    assert [(a.category, a.start - T0, a.end - T0) for a in alarms(done, policy())] == [
        ("client_slots", 0, HOUR),
        ("server", 2 * HOUR, 3 * HOUR),
    ]


def test_it_tells_how_far_it_is() -> None:
    seen: list[int] = []
    outcome(asked(2), Past(), seen.append)
    assert seen[0] == T0 and seen[-1] == T0 + 2 * HOUR - MINUTE and seen == sorted(seen)


# -- the command -------------------------------------------------------------------------------------------------------

RANGE = ("--from", "2026-11-30T00:00:00Z", "--to", "2026-11-30T00:30:00Z")
NOBODY = "http://127.0.0.1:9"  # nothing listens there
SITE = """
site: {{name: haein, timezone: Asia/Seoul}}
prometheus: {{url: "{url}"}}
scheduler: {{kind: slurm}}
{more}
"""


def backtest(*words: str, config: str | None = None) -> Result:
    first = ["--config", config] if config else []
    return CliRunner().invoke(cli.main, [*first, "backtest", *words])


@pytest.fixture
def empty() -> Iterator[str]:
    """A Prometheus in which nothing was ever written."""

    class Empty(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind = "matrix" if "range" in self.path else "vector"
            body = json.dumps({"status": "success", "data": {"resultType": kind, "result": []}}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Empty)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


REFUSED: dict[str, tuple[tuple[str, ...], str]] = {
    "no metrics": (RANGE, "give --prometheus URL, or a site file"),
    "no address": (("--prometheus", "prom:9090", *RANGE), "--prometheus: 'prom:9090' is no http(s) URL"),
    "no time": (("--prometheus", NOBODY, "--from", "now", "--to", "1800000000"), "--from: 'now' is no time"),
    "endless": (("--prometheus", NOBODY, "--from", "0", "--to", "inf"), "--to: 'inf' are no Unix seconds"),
    "no zone": (("--prometheus", NOBODY, "--from", "2026-11-30T00:00:00", "--to", "2000000000"), "no time zone"),
    "backwards": (("--prometheus", NOBODY, "--from", "1800000000", "--to", "1799999999"), "does not lie after"),
    "no step": (("--prometheus", NOBODY, *RANGE, "--step", "0s"), "no time between two looks"),
    "no unit": (("--prometheus", NOBODY, *RANGE, "--step", "60"), "--step: '60' is not a duration"),
    "no file": (("--prometheus", NOBODY, *RANGE, "--sessions", "nowhere.csv"), "nowhere.csv: cannot be read"),
    "no place": (("--prometheus", NOBODY, *RANGE, "--alarms", "no/such/dir.json"), "no file can be written there"),
    "no site": (("--prometheus", NOBODY, *RANGE, "--against", "other.yaml"), "other.yaml: no such site file"),
}


@pytest.mark.parametrize(("words", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_asked_is_refused_before_anything_is_read(words: tuple[str, ...], said: str) -> None:
    result = backtest(*words)
    assert result.exit_code == 2 and said in result.output, result.output
    assert "Traceback" not in result.output


def test_a_bad_line_of_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("node,gpu,category,xid,start,end\nn1,,bus,79,soon,\n")
    result = backtest("--prometheus", NOBODY, *RANGE, "--labels", "labels.csv")
    assert result.exit_code == 2 and "labels.csv:2: 'soon' is no time" in result.output


def test_a_site_file_that_the_environment_names_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XIDBOT_CONFIG", "moved.yaml")
    result = backtest("--prometheus", NOBODY, *RANGE)
    assert result.exit_code == 2 and "moved.yaml: no such site file" in result.output


def test_metrics_that_cannot_be_reached_are_named() -> None:
    result = backtest("--prometheus", NOBODY, *RANGE)
    assert result.exit_code == 3 and "xidbot: prometheus: " in result.output, result.output
    assert len(result.output.strip().splitlines()) == 1


def test_an_empty_prometheus_gives_figures_and_an_empty_alarms_file(empty: str, tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("node,gpu,category,xid,start,end\nn1,,bus,79,2026-11-30T00:10:00Z,\n")
    words = ("--prometheus", empty, *RANGE, "--labels", "labels.csv", "--alarms", "alarms.json")
    figures = json.loads(backtest(*words, "--json").stdout)
    assert (figures["failures"], figures["detected"], figures["false_per_day"]) == (1, 0, 0)
    assert json.loads((tmp_path / "alarms.json").read_text()) == []


def test_another_policy_is_tried_on_the_same_metrics(empty: str, tmp_path: Path) -> None:
    """The second file's own Prometheus is not asked."""
    (tmp_path / "other.yaml").write_text(SITE.format(url=NOBODY, more="policy: {score: {open_at: 0.7}}"))
    (tmp_path / "xidbot.yaml").write_text(SITE.format(url=empty, more=""))
    result = backtest(*RANGE, "--against", "other.yaml", "--json")
    assert result.exit_code == 0, result.output
    figures = json.loads(result.stdout)
    assert figures.pop("against") == figures


def test_help_names_every_option() -> None:
    result = backtest("--help")
    assert result.exit_code == 0
    for option in (
        "--prometheus",
        "--from",
        "--to",
        "--step",
        "--sessions",
        "--labels",
        "--alarms",
        "--against",
        "--json",
    ):
        assert option in result.output


# -- the application's Xids, which only exporters tell of --------------------------------------------------------------


@dataclass
class GpuPast(Past):
    """Implements ports.XidSource: what a node shows is on its GPU 3, but for `everywhere`."""

    everywhere: bool = False

    def xids(self, signal: Signal, at: int, nodes: Collection[str]) -> list[AppXid]:
        shown = self.matrix(signal, at, at, STEP, nodes)
        codes = {node: int(value) for node, value in zip(shown.hosts, shown.values[0], strict=True) if value > 0}
        gpus = range(8) if self.everywhere else (3,)
        return [AppXid(node, str(gpu), code, at) for node, code in codes.items() for gpu in gpus]


def twice(past: GpuPast, *nodes: str) -> Asked:
    """Two runs one after the other; Xid 31 ends both, on these nodes."""
    for node in nodes:
        past.tells("xid_restart_app", node, 31, 58, 68)
        past.tells("xid_restart_app", node, 31, 198, 208)
    runs = [run("1", NODES[:4], 0, 60, session="llm"), run("2", NODES[:4], 90, 200, session="vision")]
    return asked(runs=runs, policy=policy(*SIGNALS, "xid_restart_app", "xid_repeated"))


def test_an_applications_xid_that_stays_with_a_gpu_is_an_alarm_within_five_minutes() -> None:
    past = GpuPast()
    (found,) = answered(past, twice(past, "n2")).alarms
    assert (found.node, found.kind, found.category) == ("n2", "precursor", "gsp")
    assert 198 <= (found.start - T0) // MINUTE <= 203 and found.end and found.end < T0 + 6 * HOUR


@pytest.mark.parametrize(("everywhere", "nodes"), [(True, ("n2",)), (False, NODES[:4])])
def test_one_that_many_gpus_of_the_run_show_is_the_programs(everywhere: bool, nodes: tuple[str, ...]) -> None:
    past = GpuPast(everywhere=everywhere)
    assert answered(past, twice(past, *nodes)).alarms == []


def test_a_source_that_cannot_tell_gpus_apart_blames_none() -> None:
    past = GpuPast()
    wanted = twice(past, "n2")
    assert answered(Past(past.told), wanted).alarms == []
