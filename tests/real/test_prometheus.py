"""Every signal of the catalogue on a real Prometheus: good, bad, unknown, and what must not be taken for it.

All cases run at once, one node each. A case is a list of pages that its exporter shows one after the other; the
names and label sets are those of dcgm-exporter 3 and 4 (err_code is 4's; a new label value is a new series).
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from bot import policy as policies
from bot.errors import AuthFailed, BadReply, Unreachable
from bot.http_session import DeadlineSession
from bot.model import Observation, Reading
from bot.observe import LiveObserver
from bot.policy import CheckpointGauges
from bot.schedulers.simulated import SimulatedScheduler
from bot.sources.prometheus import PrometheusCheckpoints, PrometheusSource
from tests.real.exporter import BLANK, Exporter
from tests.real.faultproxy import FaultProxy
from tests.real.prometheus import Prometheus
from tests.real.supervise import eventually

pytestmark = pytest.mark.real

LABELS, PATTERN, JOBS = ["node", "Hostname", "instance"], r"^([^.:]+)", ["dcgm"]
GPUS = 2  # that each node should have
BLANKS = (BLANK, 2147483632, 140737488355328.0)

XID, COUNT, ACTIVE = "DCGM_FI_DEV_XID_ERRORS", "DCGM_EXP_XID_ERRORS_COUNT", "DCGM_FI_DEV_XID_ERRORS_ACTIVE"
TEMP, USED = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_FB_USED"
FAILURE = "DCGM_FI_DEV_ROW_REMAP_FAILURE"
WIDTH, MAX_WIDTH = "DCGM_FI_DEV_PCIE_LINK_WIDTH", "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"
VOLATILE, AGGREGATE = "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"
UNCORRECTABLE, CORRECTABLE = "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"

Page = str | None  # None: the exporter answers 503
Expected = Mapping[str, str | tuple[str, float]]  # signal → state, or state and value


def row(metric: str, value: float, gpu: int = 1, **labels: str) -> str:
    own = {"gpu": str(gpu), "UUID": f"GPU-$host-{gpu}", "device": f"nvidia{gpu}", "Hostname": "$host", **labels}
    text = ",".join(f'{name}="{label}"' for name, label in own.items() if label)
    return f"{metric}{{{text}}} {value:.10g}\n"


ALIVE = row(TEMP, 50, 0) + row(USED, 1000, 0) + row(TEMP, 50, 1) + row(USED, 1000, 1)


def page(*rows: str) -> str:
    return ALIVE + "".join(rows)


def xid3(code: float, gpu: int = 1, **labels: str) -> str:
    return row(XID, code, gpu, **labels)


def xid4(code: int, gpu: int = 1, **labels: str) -> str:
    return row(XID, code, gpu, err_code=str(code), err_msg=f"message {code}", **labels)


@dataclass(frozen=True)
class Case:
    pages: Sequence[Page]
    expected: Expected
    history: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)  # metric → (hours ago, value)


NO_XID = {f"xid_{a}": "good" for a in ("reboot", "reset", "repair", "test", "reset_idle", "restart_app")}


def only(signal: str, code: int) -> Expected:
    return {**NO_XID, signal: ("bad", code)}


CASES: dict[str, Case] = {
    # -- Xid: the gauge ------------------------------------------------------------------------------------------------
    "healthy": Case([page(xid3(0, 0), xid3(0))], NO_XID),
    "gauge-3": Case([page(xid3(0, 0), xid3(0)), page(xid3(0, 0), xid3(79))], only("xid_reboot", 79)),
    "gauge-4": Case([page(xid4(0, 0), xid4(0)), page(xid4(0, 0), xid4(79))], only("xid_reboot", 79)),
    "reset": Case([page(xid4(0)), page(xid4(119))], only("xid_reset", 119)),
    "repair": Case([page(xid3(0)), page(xid3(64))], only("xid_repair", 64)),
    "test": Case([page(xid4(0)), page(xid4(145))], only("xid_test", 145)),
    "not-in-the-table": Case([page(xid4(0)), page(xid4(200))], only("xid_test", 200)),
    "reset-idle": Case([page(xid4(0)), page(xid4(63))], only("xid_reset_idle", 63)),
    "restart-app": Case([page(xid4(0)), page(xid4(31))], only("xid_restart_app", 31)),
    "consequence": Case([page(xid4(0, 0), xid4(0)), page(xid4(45, 0), xid4(45))], NO_XID),
    "harmless-beside-fatal": Case([page(xid4(0, 0), xid4(0)), page(xid4(94, 0), xid4(79))],
                                  {**NO_XID, "xid_reboot": ("bad", 79), "xid_restart_app": ("bad", 94)}),
    "harmless-after-fatal": Case([page(xid4(0)), page(xid4(79)), page(xid4(45))], only("xid_reboot", 79)),
    "sticky-3": Case([page(xid3(79))], NO_XID),
    "sticky-4": Case([page(xid4(79))], NO_XID),
    "sticky-then-higher": Case([page(xid3(31)), page(xid3(79))], only("xid_reboot", 79)),
    "sticky-then-lower": Case([page(xid4(119)), page(xid4(79))], only("xid_reboot", 79)),
    "series-begins-with-it": Case([page(), page(xid3(79))], NO_XID),
    "exporter-restarts": Case([page(xid4(79)), None, page(xid4(79))], NO_XID),
    "during-a-lost-scrape": Case([page(xid4(0)), None, page(xid4(79))], only("xid_reboot", 79)),
    "pod-changes": Case([page(xid4(79, pod="a")), page(xid4(79, pod="b"))], NO_XID),
    "pod-dies-of-it": Case([page(xid4(0, pod="a")), page(xid4(79))], only("xid_reboot", 79)),
    "blank-in-between": Case([page(xid3(79)), page(xid3(BLANK)), page(xid3(79))], NO_XID),
    "mig": Case([page(*(xid3(code, GPU_I_ID=i, GPU_I_PROFILE="2g.20gb") for i in "356")) for code in (0, 48)],
                only("xid_reset", 48)),
    "exporter-pod": Case([page(xid4(0)).replace("$host", "nvidia-dcgm-exporter-42gcj"),
                          page(xid4(79)).replace("$host", "nvidia-dcgm-exporter-42gcj")],
                         {**only("xid_reboot", 79), "gpu_missing": "good"}),
    **{f"gauge-blank-{i}": Case([page(xid3(0)), page(xid3(blank))], {}) for i, blank in enumerate(BLANKS)},
    # -- Xid: the window counter ---------------------------------------------------------------------------------------
    "counter": Case([page(row(COUNT, 0)), page(row(COUNT, 0, 0), row(COUNT, 2, xid="48"))], only("xid_reset", 48)),
    "counter-active": Case([page(row(ACTIVE, 0)), page(row(ACTIVE, 1, xid="63"))], only("xid_reset_idle", 63)),
    "counter-many": Case([page(row(COUNT, 0)), page(row(COUNT, 8, 0, xid="45"), row(COUNT, 1, xid="79"),
                                                    row(COUNT, 3, xid="31"))],
                         {**NO_XID, "xid_reboot": ("bad", 79), "xid_restart_app": ("bad", 31)}),
    "counter-and-gauge": Case([page(xid4(0), row(COUNT, 0)), page(xid4(45), row(COUNT, 1, xid="79"),
                                                                  row(COUNT, 1, xid="45"))], only("xid_reboot", 79)),
    "counter-zero": Case([page(row(COUNT, 0, xid="79"))], NO_XID),
    "counter-blank": Case([page(row(COUNT, BLANK, xid="79"))], {"xid_reboot": "unknown", "xid_reset": "unknown"}),
    "no-xid-metric": Case([page()], dict.fromkeys(NO_XID, "unknown")),
    # -- GPUs and exporter ---------------------------------------------------------------------------------------------
    "all-gpus": Case([ALIVE], {"gpu_missing": ("good", 2), "gpus_gone": ("good", 2), "exporter_down": ("good", 0)}),
    "one-gpu-gone": Case([ALIVE, row(TEMP, 50, 0) + row(USED, 1, 0)], {"gpu_missing": ("bad", 1)}),
    "all-gpus-gone": Case([ALIVE, "# nothing\n"],
                          {"gpu_missing": "unknown", "gpus_gone": ("bad", 0), "exporter_down": "good"}),
    "gpu-without-temperature": Case([row(TEMP, 50, 0) + row(TEMP, BLANK) + row(USED, 5)], {"gpu_missing": ("good", 2)}),
    "gpu-all-blank": Case([ALIVE, row(TEMP, 50, 0) + row(TEMP, BLANK) + row(USED, BLANK)], {"gpu_missing": ("bad", 1)}),
    "mig-rows": Case([row(TEMP, 50, 0) + "".join(row(USED, 5, GPU_I_ID=i) for i in "1234")],
                     {"gpu_missing": ("good", 2)}),
    "mig-rows-of-one": Case([ALIVE, "".join(row(USED, 5, GPU_I_ID=i) for i in "1234")], {"gpu_missing": ("bad", 1)}),
    "down": Case([page(xid4(0), row(FAILURE, 0)), None],
                 {"exporter_down": ("bad", 1), "gpu_missing": "unknown", "gpus_gone": "unknown",
                  "row_remap_failure": "unknown"}
                 | dict.fromkeys(NO_XID, "unknown")),  # type: ignore[arg-type]
    # -- memory --------------------------------------------------------------------------------------------------------
    "width-known": Case([page(row(WIDTH, 8), row(MAX_WIDTH, 16), row(WIDTH, 8, 1), row(MAX_WIDTH, 8, 1))],
                        {"pcie_width": ("bad", 8)}),
    "width-beside-the-others": Case([page(row(WIDTH, 16, 0), row(WIDTH, 4), row(WIDTH, 16, 5))],
                                    {"pcie_width": ("bad", 12)}),
    "width-all-alike": Case([page(row(WIDTH, 8, 0), row(WIDTH, 8))], {"pcie_width": ("good", 0)}),
    "width-blank": Case([page(row(WIDTH, BLANK, 0), row(WIDTH, BLANK))], {"pcie_width": "unknown"}),
    "remap-well": Case([page(row(FAILURE, 0))], {"row_remap_failure": ("good", 0)}),
    "remap-failed": Case([page(row(FAILURE, 0, 0), row(FAILURE, 1))], {"row_remap_failure": ("bad", 1)}),
    "remap-beside-blank": Case([page(row(FAILURE, BLANK, 0), row(FAILURE, 1))], {"row_remap_failure": ("bad", 1)}),
    "remap-blank": Case([page(row(FAILURE, BLANK), row(FAILURE, -1, 0))], {"row_remap_failure": "unknown"}),
    "dbe-none": Case([page(row(VOLATILE, 0), row(AGGREGATE, 0))], {"dbe": ("good", 0)}),
    "dbe-old": Case([page(row(VOLATILE, 5), row(AGGREGATE, 7))], {"dbe": ("good", 0)}),
    "dbe-volatile": Case([page(row(VOLATILE, 0)), page(row(VOLATILE, 1))], {"dbe": ("bad", 1)}),
    "dbe-aggregate": Case([page(row(AGGREGATE, 2)), page(row(AGGREGATE, 4))], {"dbe": ("bad", 2)}),
    "dbe-both": Case([page(row(VOLATILE, 0), row(AGGREGATE, 2)), page(row(VOLATILE, 1), row(AGGREGATE, 3))],
                     {"dbe": ("bad", 1)}),
    "dbe-on-the-lesser-gpu": Case([page(row(VOLATILE, 9, 0), row(VOLATILE, 0)),
                                   page(row(VOLATILE, 9, 0), row(VOLATILE, 1))], {"dbe": ("bad", 1)}),
    "dbe-driver-reload": Case([page(row(VOLATILE, 5)), page(row(VOLATILE, 0))], {"dbe": ("good", 0)}),
    "dbe-blank-in-between": Case([page(row(VOLATILE, 5)), page(row(VOLATILE, BLANK)), page(row(VOLATILE, 5))],
                                 {"dbe": "good"}),
    "dbe-blank": Case([page(row(VOLATILE, BLANK))], {"dbe": "unknown"}),
    "dbe-not-exported": Case([page()], {"dbe": "unknown"}),
    "uncorrectable-old": Case([page(row(UNCORRECTABLE, 3))], {"uncorrectable_remap": ("good", 0)}),
    "uncorrectable-step": Case([page(row(UNCORRECTABLE, 3)), page(row(UNCORRECTABLE, 4))],
                               {"uncorrectable_remap": ("bad", 1)}),
    "uncorrectable-step-as-the-pod-dies": Case([page(row(UNCORRECTABLE, 0, pod="a")), page(row(UNCORRECTABLE, 1))],
                                               {"uncorrectable_remap": ("bad", 1)}),
    "uncorrectable-blank": Case([page(row(UNCORRECTABLE, 3)), page(row(UNCORRECTABLE, BLANK))],
                                {"uncorrectable_remap": "unknown"}),
    "uncorrectable-garbage": Case([page(row(UNCORRECTABLE, 3))], {"uncorrectable_remap": "good"},
                                  {UNCORRECTABLE: [(0.16, 3), (0.081, 0), (0.079, 3)]}),
    "correctable-day": Case([page(row(CORRECTABLE, 12))], {"correctable_remap_growth": ("bad", 9)},
                            {CORRECTABLE: [(25, 3), (9, 8)]}),
    "correctable-few": Case([page(row(CORRECTABLE, 11))], {"correctable_remap_growth": ("good", 8)},
                            {CORRECTABLE: [(25, 3)]}),
    "correctable-storm": Case([page(row(CORRECTABLE, 254))], {"correctable_remap_growth": ("bad", 254)},
                              {CORRECTABLE: [(25, 0)]}),
    "correctable-long-ago": Case([page(row(CORRECTABLE, 200))], {"correctable_remap_growth": ("good", 0)},
                                 {CORRECTABLE: [(27, 0), (26, 200)]}),
    "correctable-blank-before": Case([page(row(CORRECTABLE, 20))], {"correctable_remap_growth": ("good", 2)},
                                     {CORRECTABLE: [(25, 18), (10, BLANK), (9, 18)]}),
    "correctable-no-history": Case([page(row(CORRECTABLE, 200))], {"correctable_remap_growth": ("good", 0)}),
    "correctable-blank": Case([page(row(CORRECTABLE, BLANK))], {"correctable_remap_growth": "unknown"}),
    "correctable-not-exported": Case([page()], {"correctable_remap_growth": "unknown"}),
}  # fmt: skip
UNSCRAPED = "not-scraped"  # a node of the scheduler that Prometheus has never heard of
PHASES = 3
CASES_OF = [(case, signal) for case, it in CASES.items() for signal in it.expected]


class Pages:
    """An exporter for every case; all turn to their next page together. Looks like tests.real.exporter.Exporter."""

    def __init__(self) -> None:
        self.nodes = list(CASES)
        self.phase = 0
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.server_port}"

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def page(self, path: str) -> Page:
        node, _, part = path.strip("/").partition("/")
        if part != "dcgm":
            return "# nothing\n"
        pages = CASES[node].pages
        # a case with fewer pages shows its last one longest
        shown = pages[min(self.phase, len(pages) - 1)]
        return shown and shown.replace("$host", node)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = pages.page(self.path)
                body = (text or "").encode()
                self.send_response(503 if text is None else 200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


def backfill(root: Path, now: int) -> None:
    """Blocks with what the cases say of the past, a sample a minute until a minute ago."""
    families: dict[str, list[str]] = {}
    for node, case in CASES.items():
        for metric, points in case.history.items():
            labels = row(metric, 0).replace("$host", node).removeprefix(f"{metric}{{").rpartition("}")[0]
            name = f'{metric}{{{labels},instance="{node}:9400",job="dcgm"}}'
            begins = [(now - int(hours * 3600), value) for hours, value in points] + [(now - 60, 0.0)]
            for (begin, value), (end, _) in zip(begins, begins[1:], strict=False):
                families.setdefault(metric, []).extend(f"{name} {value:.10g} {t}" for t in range(begin, end, 30))
    text = "".join(f"# TYPE {m} gauge\n" + "\n".join(lines) + "\n" for m, lines in families.items()) + "# EOF\n"
    root.mkdir(parents=True)
    (root / "history.txt").write_text(text)
    subprocess.run(
        [
            "promtool",
            "tsdb",
            "create-blocks-from",
            "-q",
            "--max-block-duration=24h",
            "openmetrics",
            "history.txt",
            "tsdb",
        ],
        cwd=root,
        check=True,
        capture_output=True,
    )


@dataclass
class Field:
    prometheus: Prometheus
    source: PrometheusSource
    seen: Observation

    def reading(self, node: str, signal: str) -> Reading:
        return next(r for r in self.seen.readings if (r.node, r.signal) == (node, signal))


def scraped(prometheus: Prometheus, times: int) -> None:
    """Every exporter was asked so many times more."""
    count = 'min(count_over_time(up{job="dcgm"}[10m]))'
    before = prometheus.value(count) or 0
    eventually(lambda: (prometheus.value(count) or 0) >= before + times + 1, within=30, why="scrapes")


def source_of(url: str, deadline: float = 10) -> PrometheusSource:
    return PrometheusSource(url, DeadlineSession(deadline), LABELS, PATTERN, JOBS)


@pytest.fixture(scope="module")
def seen(real_root: Path) -> Iterator[Field]:
    """One look at all cases, after each has shown its pages."""
    quick = {name: {"persistence": "2s"} for name, s in policies.signals(None).items() if s.persistence}
    policy = policies.build(signal_overrides=quick, policy={"time": {"step": "1s", "window": "60s", "lag": "0s"}})
    root = real_root / "signals"
    backfill(root, int(time.time()))
    pages = Pages()
    prometheus = Prometheus(root, pages)  # type: ignore[arg-type]
    prometheus.scraped()
    for phase in range(PHASES):
        pages.phase = phase
        scraped(prometheus, 4)
    source = source_of(prometheus.url)
    scheduler = SimulatedScheduler(gpus=GPUS)
    scheduler.add_nodes([*CASES, UNSCRAPED])
    nothing = PrometheusCheckpoints(source, None)
    observer = LiveObserver(source, scheduler, nothing, policy, dict, source.details)
    yield Field(prometheus, source, observer.observe(int(time.time()) - 1))
    prometheus.stop()
    pages.stop()


@pytest.mark.parametrize(("case", "signal"), CASES_OF)
def test_a_signal_tells_what_it_should(seen: Field, case: str, signal: str) -> None:
    wanted = CASES[case].expected[signal]
    state, value = (wanted, None) if isinstance(wanted, str) else wanted
    found = seen.reading(case, signal)
    assert found.state == state, found
    assert value is None or found.value == pytest.approx(value, abs=0.01)
    assert found.known


@pytest.mark.parametrize("state", ["good", "bad", "unknown"])
def test_every_signal_of_the_cases_is_shown_in_every_state(state: str) -> None:
    """Those that a page can make bad; the others are compared with their recording in test_backtest.py."""
    every = {signal for case in CASES.values() for signal in case.expected}
    wanted = {
        s for case in CASES.values() for s, e in case.expected.items() if (e if isinstance(e, str) else e[0]) == state
    }
    by_absence = {"exporter_down"} if state == "unknown" else set()  # see the node that is not scraped
    assert wanted | by_absence == every


def test_a_node_that_is_not_scraped_is_unknown_in_every_respect(seen: Field) -> None:
    measured = [r for r in seen.seen.readings if r.signal != "health_check"]  # that the scheduler tells
    assert {r.state for r in measured if r.node == UNSCRAPED} == {"unknown"}
    assert seen.seen.scores is not None and UNSCRAPED not in seen.seen.scores


def test_a_whole_blank_gauge_is_unknown(seen: Field) -> None:
    for i in range(len(BLANKS)):
        found = [r for r in seen.seen.readings if r.node == f"gauge-blank-{i}" and r.signal.startswith("xid_")]
        assert {r.state for r in found} == {"unknown"} and {r.value for r in found} == {None}


def test_the_ramp_reaches_the_soft_cap(seen: Field) -> None:
    assert seen.reading("correctable-day", "correctable_remap_growth").evidence == pytest.approx(0.60, abs=0.01)
    assert seen.reading("correctable-storm", "correctable_remap_growth").evidence == pytest.approx(0.79)


def test_nothing_was_wrong_with_the_look(seen: Field) -> None:
    assert [source.problem for source in seen.seen.sources] == ["", ""]
    assert {r.node for r in seen.seen.readings} == {*CASES, UNSCRAPED}


TEXTS = {
    ("gauge-4", "xid_reboot"): "Xid 79 (GPU has fallen off the bus) on GPU 1",
    (
        "harmless-beside-fatal",
        "xid_restart_app",
    ): "Xid 94 (contained ECC error; the process ends, the GPU does not) on GPU 0",
    ("counter", "xid_reset"): "Xid 48 (double-bit ECC error) on GPU 1",
    ("harmless-after-fatal", "xid_reboot"): "Xid 79 (GPU has fallen off the bus) on GPU 1",
    ("remap-failed", "row_remap_failure"): "row remapping has failed on GPU 1",
    ("one-gpu-gone", "gpu_missing"): "GPU count 1 of 2 while the exporter is up",
    ("down", "exporter_down"): "the GPU exporter does not answer",
    ("correctable-day", "correctable_remap_growth"): "rows remapped for correctable errors within 24 h: 9 on GPU 1",
}


@pytest.mark.parametrize(("case", "signal"), TEXTS)
def test_a_bad_reading_names_its_gpu(seen: Field, case: str, signal: str) -> None:
    assert seen.reading(case, signal).text == TEXTS[case, signal]


# -- the server and what stands before it ------------------------------------------------------------------------------


def test_health(seen: Field) -> None:
    health = seen.source.check()
    assert health.version.startswith("2.") and health.exporters == {"dcgm": len(CASES)}


def test_a_broken_query_is_told_in_prometheus_own_words(seen: Field) -> None:
    broken = policies.signals({"dbe": {"query": "max by ($by) (up"}})["dbe"]
    with pytest.raises(BadReply, match="bad_data: .*parse error: unclosed left parenthesis"):
        seen.source.matrix(broken, 0, 60, 1, ())
    many = policies.signals({"dbe": {"query": "up * on () up"}})["dbe"]
    with pytest.raises(BadReply, match="execution: .*many-to-many"):
        now = int(time.time())
        seen.source.matrix(many, now, now, 1, ())


def test_more_points_than_prometheus_gives_at_once(seen: Field) -> None:
    now = int(time.time())
    found = seen.source.matrix(policies.signals(None)["exporter_down"], now - 22_000, now, 1, set(CASES))
    assert len(found.times) == 22_001 and len(found.hosts) == len(CASES)
    assert found.values[-1].max() == 1 and found.values[0].size


def test_a_range_without_data_is_a_normal_answer(seen: Field) -> None:
    assert seen.source.matrix(policies.signals(None)["dbe"], 1_000_000, 1_000_060, 15, ()).hosts == ()


@pytest.fixture
def proxy(seen: Field) -> Iterator[FaultProxy]:
    with FaultProxy(seen.prometheus.url) as proxy:
        yield proxy


def test_faults_before_prometheus(seen: Field, proxy: FaultProxy) -> None:
    source, signal, now = source_of(proxy.url, 3), policies.signals(None)["xid_reboot"], int(time.time())
    proxy.fault("query_range", status=401, body="no")
    proxy.fault("query_range", status=200, body="<html>Sign in</html>", headers={"Content-Type": "text/html"})
    proxy.fault("query_range", redirect="https://login.example/")
    proxy.fault("query_range", status=429, headers={"Retry-After": "30"})
    proxy.fault("query_range", drop=True)
    for kind in (AuthFailed, AuthFailed, AuthFailed, Unreachable, Unreachable):
        with pytest.raises(kind):
            source.matrix(signal, now, now, 1, set(CASES))
    assert len(source.matrix(signal, now, now, 1, set(CASES)).hosts) > 10
    asked = proxy.requests[-1]
    assert (asked.method, asked.path) == ("POST", "/api/v1/query_range") and "count_values" in asked.body


def test_a_prometheus_that_hangs_and_comes_back(seen: Field) -> None:
    source, signal, now = source_of(seen.prometheus.url, 1), policies.signals(None)["exporter_down"], int(time.time())
    seen.prometheus.pause()
    try:
        with pytest.raises(Unreachable, match="no whole answer within 1 s"):
            source.matrix(signal, now, now, 1, set(CASES))
    finally:
        seen.prometheus.resume()
    eventually(lambda: source.matrix(signal, now, now, 1, set(CASES)).hosts)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_checkpoints_of_a_trainer_through_its_restarts(prom: Prometheus, exporter: Exporter, tmp_path: Path) -> None:
    saves = PrometheusCheckpoints(source_of(prom.url), CheckpointGauges())
    jobs = {"9041": ("9041", "train", "session-1"), "90410": ("90410", "train", "session-2")}
    exporter.trainers.append(tmp_path)
    begin = time.time() - 60

    def exported(**gauges: float) -> None:
        text = "".join(f'train_checkpoint_{name}{{job="9041"}} {value:.3f}\n' for name, value in gauges.items())
        (tmp_path / "new").write_text(text)
        (tmp_path / "new").rename(tmp_path / "9041.prom")

    def newest() -> tuple[int | None, int | None, int | None] | None:
        found = saves.checkpoints(int(time.time()), jobs)
        assert [save.job for save in found] in ([], ["9041"])
        return (found[0].step, found[0].started, found[0].completed) if found else None

    assert newest() is None, "not measured"
    exported(step=100, started_timestamp=begin, completed_timestamp=begin + 10)
    first = (100, int(begin), int(begin + 10))
    eventually(lambda: newest() == first)
    totals = CheckpointGauges(**{name: f"max({query})" for name, query in CheckpointGauges().model_dump().items()})
    summed = PrometheusCheckpoints(source_of(prom.url), totals)
    found = eventually(lambda: summed.checkpoints(int(time.time()), {"9041": ("9041",)}))
    assert (found[0].step, found[0].completed) == (first[0], first[2]), "also where the label does not survive"
    exported(step=100, started_timestamp=begin + 20, completed_timestamp=begin + 10)
    eventually(lambda: prom.value("train_checkpoint_started_timestamp") == pytest.approx(begin + 20, abs=0.01))
    assert newest() == first, "the next one is under way"
    exported(step=200, started_timestamp=begin + 20, completed_timestamp=begin + 30)
    eventually(lambda: newest() == (200, int(begin + 20), int(begin + 30)))
    (tmp_path / "9041.prom").unlink()
    eventually(lambda: newest() is None, why="the trainer is gone")
    exported(step=0, completed_timestamp=0)
    eventually(lambda: prom.value("train_checkpoint_step") == 0)
    assert newest() is None, "a new trainer that has saved nothing"
