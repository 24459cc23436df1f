"""Prometheus' answers in, matrices and checkpoints out. What Prometheus makes of our PromQL: tests/real."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import requests

from bot import policy as policies
from bot.errors import BadReply, Unreachable
from bot.http_session import DeadlineSession
from bot.model import AppXid, Checkpoint
from bot.policy import CheckpointGauges, Signal
from bot.ports import Matrix
from bot.sources.prometheus import MAX_POINTS, PrometheusCheckpoints, PrometheusSource

AT, STEP = 1_800_000_000, 15
CATALOGUE = policies.signals(None)
NODES = frozenset({"node-01", "node-02", "a100-server-b"})

Series = tuple[Mapping[str, str], Mapping[int, str]]  # labels, time → value
Answer = Callable[[str], Sequence[Series]]


class Canned(DeadlineSession):
    """Answers each query from a function and keeps what was asked."""

    def __init__(self, answer: Answer | bytes) -> None:
        super().__init__()
        self.answer = answer
        self.asked: list[dict[str, Any]] = []

    def request(self, method: Any, url: Any, *args: Any, **kwargs: Any) -> requests.Response:
        self.asked.append({"url": url, **(kwargs.get("params") or {})})
        response = requests.Response()
        response.status_code = 200
        response._content = self.answer if isinstance(self.answer, bytes) else self._data(self.answer, url)
        return response

    def _data(self, answer: Answer, url: str) -> bytes:
        query = self.asked[-1]["query"]
        many = url.endswith("query_range") or query.endswith("]")
        rows = [
            {"metric": labels, "values": list(points.items())}
            if many
            else {"metric": labels, "value": [AT, points[AT]]}
            for labels, points in answer(query)
        ]
        return json.dumps({"status": "success", "data": {"result": rows}}).encode()


def source(answer: Answer | bytes, labels: Sequence[str] = ("node", "Hostname", "instance")) -> PrometheusSource:
    return PrometheusSource("http://prom", Canned(answer), labels, r"^([^.:]+)", ["dcgm", "gpu.metrics"])


def asked(it: PrometheusSource) -> list[dict[str, Any]]:
    assert isinstance(it._session, Canned)
    return it._session.asked


def matrix(rows: Sequence[Series], signal: str | Signal = "row_remap_failure", start: int = AT, **more: Any) -> Matrix:
    it = CATALOGUE[signal] if isinstance(signal, str) else signal
    return source(lambda query: rows, **more).matrix(it, start, AT, STEP, NODES)


def last(found: Matrix) -> dict[str, float | None]:
    return {h: None if np.isnan(v) else float(v) for h, v in zip(found.hosts, found.values[-1], strict=True)}


# -- which node --------------------------------------------------------------------------------------------------------

HOSTS: list[tuple[dict[str, str], str, bool]] = [
    ({"node": "node-01"}, "node-01", True),
    ({"node": "node-01", "Hostname": "node-02"}, "node-01", True),
    ({"Hostname": "node-01.cluster.example", "instance": "10.0.0.1:9400"}, "node-01", True),
    ({"instance": "node-02:9400"}, "node-02", True),
    # the label that is asked first does not lead to a node (gpu-operator 242, dcgm-exporter 581)
    ({"Hostname": "nvidia-dcgm-exporter-42gcj", "instance": "node-01:9400"}, "node-01", True),
    ({"Hostname": "3f546054f69d", "instance": "10.244.69.159:9400"}, "3f546054f69d", False),
    # two strangers must not become one host called 10
    ({"instance": "10.244.69.159:9400"}, "10.244.69.159:9400", False),
    ({"instance": "node-99:9400"}, "node-99:9400", False),
    ({"Hostname": "", "instance": "node-02:1"}, "node-02", True),
    ({"instance": ":9400"}, ":9400", False),
    ({"job": "dcgm"}, "(no node label)", False),
]


@pytest.mark.parametrize(("labels", "host", "known"), HOSTS)
def test_labels_lead_to_a_node_or_to_a_stranger(labels: dict[str, str], host: str, known: bool) -> None:
    found = matrix([(labels, {AT: "1"})])
    assert (found.hosts, found.known) == ((host,), (known,))


@pytest.mark.parametrize("label", ["kubernetes_node", "exported_instance", "exported_Hostname"])
def test_a_site_names_the_label_of_its_nodes(label: str) -> None:
    labels = {"Hostname": "nvidia-dcgm-exporter-42gcj", label: "a100-server-b", "instance": "10.244.69.159:9400"}
    found = matrix([(labels, {AT: "1"})], labels=[label, "instance"])
    assert last(found) == {"a100-server-b": 1.0} and found.known == (True,)


# -- values ------------------------------------------------------------------------------------------------------------


def test_series_of_one_node_are_merged_by_the_worst() -> None:
    rows = [
        ({"Hostname": "node-01"}, {AT - 15: "1", AT: "0"}),
        ({"instance": "node-01:9400"}, {AT - 15: "0", AT: "NaN"}),
        ({"node": "node-02"}, {AT - 15: "1"}),
    ]
    found = matrix(rows, start=AT - 30)
    assert found.times.tolist() == [AT - 30, AT - 15, AT]
    np.testing.assert_array_equal(found.values, [[np.nan, np.nan], [1, 1], [0, np.nan]])


@pytest.mark.parametrize(
    "blank",
    ["9223372036854775794", "9223372036854775792", "140737488355328.0", "2147483632", "NaN", "-1", "+Inf", "-Inf"],
)
@pytest.mark.parametrize("signal", [name for name, signal in CATALOGUE.items() if signal.exporter == "dcgm"])
def test_a_blank_is_no_value(blank: str, signal: str) -> None:
    assert last(matrix([({"node": "node-01"}, {AT: blank})], signal)) == {"node-01": None}


def test_no_series_is_a_normal_answer() -> None:
    found = matrix([], start=AT - 30)
    assert (found.hosts, found.known, found.values.shape) == ((), (), (3, 0))


def test_points_that_were_not_asked_for_are_left_out() -> None:
    """VictoriaMetrics may move a range to multiples of the step."""
    assert last(matrix([({"node": "node-01"}, {AT - 15: "1", AT: "0", AT + 15: "1"})])) == {"node-01": 0.0}


XIDS: list[tuple[str, list[tuple[str | None, str]], float | None]] = [
    ("xid_reboot", [(None, "0")], 0),
    ("xid_reboot", [(None, "0"), ("79", "1")], 79),
    ("xid_reboot", [(None, "0"), ("79", "3"), ("45", "8"), ("31", "1")], 79),
    ("xid_reset", [(None, "0"), ("79", "3")], 0),
    ("xid_reset", [("48", "1"), ("119", "1"), (None, "0")], 119),
    ("xid_reset", [("48", "0"), (None, "0")], 0),
    ("xid_test", [("200", "1"), (None, "0")], 200),
    ("xid_test", [("9223372036854775807", "1"), (None, "0")], 0),
    ("xid_test", [("", "1")], None),
    ("xid_restart_app", [("31", "1"), ("43", "1"), (None, "0")], 31),
]


@pytest.mark.parametrize(("signal", "rows", "value"), XIDS)
def test_the_value_of_an_xid_is_its_code(signal: str, rows: list[tuple[str | None, str]], value: float | None) -> None:
    """And a code of another class hides nothing."""
    series = [({"node": "node-01"} | ({"xid": code} if code is not None else {}), {AT: v}) for code, v in rows]
    assert last(matrix(series, signal)).get("node-01") == value


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_placeholders_are_filled_in() -> None:
    query = 'max by ($by) ($gpu) up{$dcgm} y=~"z$"'
    signal = CATALOGUE["xid_reboot"].model_copy(update={"query": query})
    it = source(lambda query: [])
    it.matrix(signal, AT, AT, STEP, NODES)
    assert asked(it)[0]["query"] == (
        "max by (node, Hostname, instance) (node, Hostname, instance, gpu, UUID) "
        'up{job=~"dcgm|gpu\\\\.metrics"} y=~"z$"'
    )


@pytest.mark.parametrize("signal", [name for name, signal in CATALOGUE.items() if signal.query])
def test_no_placeholder_is_left(signal: str) -> None:
    it = source(lambda query: [])
    it.matrix(CATALOGUE[signal], AT, AT, STEP, NODES)
    assert "$" not in asked(it)[0]["query"]


def test_times_are_unix_seconds() -> None:
    it = source(lambda query: [])
    it.matrix(CATALOGUE["dbe"], AT - 60, AT, STEP, NODES)
    (one,) = asked(it)
    assert (one["start"], one["end"], one["step"]) == (AT - 60, AT, "15")


def test_a_long_range_comes_in_parts() -> None:
    """Prometheus refuses more than 11,000 points, and its advice is the wrong way round (prometheus 1968)."""
    it = source(lambda query: [({"node": "node-01"}, {asked(it)[-1]["end"]: "1"})])
    start = AT - 2 * MAX_POINTS * STEP
    found = it.matrix(CATALOGUE["dbe"], start, AT, STEP, NODES)
    parts = [(one["start"], one["end"]) for one in asked(it)]
    assert len(found.times) == 2 * MAX_POINTS + 1 and len(parts) == 3
    assert parts[0][0] == start and parts[-1] == (AT, AT)
    assert all(begin == end + STEP for (_, end), (begin, _) in zip(parts, parts[1:], strict=False))
    assert all((end - begin) // STEP < MAX_POINTS for begin, end in parts)
    assert np.flatnonzero(found.values[:, 0] == 1).tolist() == [MAX_POINTS - 1, 2 * MAX_POINTS - 1, 2 * MAX_POINTS]


NONSENSE = [
    b"hello",
    b"[]",
    b"{}",
    b'{"data":',
    b'{"data":{"result":null}}',
    b'{"status":"success","data":{}}',
    b'{"status":"success","data":{"result":[{"metric":{}}]}}',
    b'{"status":"success","data":{"result":[{"metric":{},"values":[[1,"x"]]}]}}',
]


@pytest.mark.parametrize("body", NONSENSE)
def test_nonsense_is_a_bad_reply(body: bytes) -> None:
    with pytest.raises(BadReply, match="prometheus: an answer that cannot be understood"):
        source(body).matrix(CATALOGUE["dbe"], AT, AT, STEP, NODES)


# -- details and health ------------------------------------------------------------------------------------------------


def test_details_name_the_gpus() -> None:
    rows = [
        ({"node": "node-01", "gpu": "10", "UUID": "a", "xid": "119"}, {AT: "1"}),
        ({"node": "node-01", "gpu": "3", "UUID": "b", "xid": "119"}, {AT: "1"}),
        ({"node": "node-01", "gpu": "4", "UUID": "c", "xid": "48"}, {AT: "1"}),
        ({"node": "node-01", "gpu": "5", "UUID": "d"}, {AT: "0"}),
        ({"node": "node-02", "xid": "48"}, {AT: "1"}),
    ]
    it = source(lambda query: rows)
    assert it.details(CATALOGUE["xid_reset"], AT, NODES) == {
        "node-01": "Xid 119 (GSP does not answer) on GPUs 3, 10; Xid 48 (double-bit ECC error) on GPU 4"
    }
    assert "count_values by (node, Hostname, instance, gpu, UUID)" in asked(it)[0]["query"]
    assert asked(it)[0]["time"] == str(AT)


def test_an_applications_xids_are_told_with_their_gpus() -> None:
    told = [
        ("31", {"gpu": "3", "UUID": "GPU-a", "Hostname": "node-01"}),
        ("31", {"gpu": "3", "UUID": "GPU-a", "Hostname": "node-01", "GPU_I_ID": "7"}),
        ("1", {"gpu": "5", "UUID": "GPU-b", "Hostname": "node-02", "xid": "13"}),
        ("0", {"gpu": "1", "UUID": "GPU-c", "Hostname": "node-02"}),
        ("94", {"gpu": "2", "UUID": "GPU-d", "Hostname": "node-02"}),
        ("31", {"gpu": "2", "UUID": "GPU-e", "Hostname": "elsewhere"}),
        ("31", {"Hostname": "node-01"}),
    ]
    it = source(lambda query: [(labels, {AT: value}) for value, labels in told])
    assert it.xids(CATALOGUE["xid_restart_app"], AT, NODES) == [
        AppXid("node-01", "3", 31, AT, "GPU-a"),
        AppXid("node-02", "5", 13, AT, "GPU-b"),
    ]


def test_a_count_of_gpus_has_no_details() -> None:
    it = source(lambda query: [({"node": "node-01", "gpu": "1"}, {AT: "1"})])
    assert it.details(CATALOGUE["gpu_missing"], AT, NODES) == {} and asked(it) == []


def test_health_tells_version_and_exporters() -> None:
    it = source(lambda query: [({"job": "dcgm"}, {AT: "8"})])
    found = it.check()
    assert (found.version, found.exporters) == ("", {"dcgm": 8})
    assert asked(it)[0]["query"] == 'count by (job) (up{job=~"dcgm|gpu\\\\.metrics"})'
    assert asked(it)[1]["url"] == "http://prom/api/v1/status/buildinfo"


def test_an_unreachable_server_is_not_healthy() -> None:
    with DeadlineSession(1) as session, pytest.raises(Unreachable):
        PrometheusSource("http://127.0.0.1:1", session, ["node"], "(.*)", ["dcgm"]).check()


# -- checkpoints -------------------------------------------------------------------------------------------------------

STEPS, STARTED, COMPLETED = (
    f"train_checkpoint_{name}" for name in ("step", "started_timestamp", "completed_timestamp")
)
JOBS = {"9041": ("9041", "solar-102b", "session-123")}


def saves(gauges: Mapping[str, Sequence[Series]], jobs: Mapping[str, Sequence[str]] = JOBS) -> list[Checkpoint]:
    def answer(query: str) -> Sequence[Series]:
        metric, names = re.fullmatch(r'(\w+){job=~"(.*)"}(?:\[3600s])?', query).groups()  # type: ignore[union-attr]
        wanted = names.replace("\\\\", "").split("|")
        return [row for row in gauges.get(metric, []) if row[0]["job"] in wanted]

    return list(PrometheusCheckpoints(source(answer), CheckpointGauges()).checkpoints(AT, jobs))


def gauge(*values: float, job: str = "9041", **labels: str) -> Series:
    """The newest value last."""
    return {"job": job, **labels}, {AT - STEP * i: str(v) for i, v in reversed(list(enumerate(reversed(values))))}


def test_the_newest_complete_save() -> None:
    found = saves({STEPS: [gauge(41000)], STARTED: [gauge(AT - 130.5)], COMPLETED: [gauge(AT - 60.2)]})
    assert found == [Checkpoint("9041", 41000, AT - 131, AT - 61)]


def test_while_the_next_one_is_saved_the_last_one_keeps_its_start() -> None:
    begun = gauge(AT - 700, AT - 130, AT - 20)
    found = saves({STEPS: [gauge(41000)], STARTED: [begun], COMPLETED: [gauge(AT - 60)]})
    assert found == [Checkpoint("9041", 41000, AT - 130, AT - 60)]


def test_a_start_that_is_not_known_is_not_made_up() -> None:
    found = saves({STEPS: [gauge(41000)], STARTED: [gauge(AT - 20)], COMPLETED: [gauge(AT - 60)]})
    assert found == [Checkpoint("9041", 41000, None, AT - 60)]


def test_absent_gauges_measure_nothing() -> None:
    assert saves({}) == []
    assert saves({STARTED: [gauge(AT - 20)]}) == [], "a save that only began"
    assert saves({STEPS: [gauge(0)], COMPLETED: [gauge(0)]}) == [], "the gauges of a run that has not saved yet"
    assert saves({STEPS: [gauge(41000)]}) == [Checkpoint("9041", 41000, None, None)]
    assert saves({COMPLETED: [gauge(AT)]}) == [Checkpoint("9041", None, None, AT)]


def test_the_processes_of_a_run_are_one() -> None:
    """The exporter of the attempt before is still there for a while."""
    steps = [gauge(41000, instance="a"), gauge(41250, instance="b")]
    found = saves({STEPS: steps, COMPLETED: [gauge(AT - 900, instance="a"), gauge(AT - 60, instance="b")]})
    assert found == [Checkpoint("9041", 41250, None, AT - 60)]


def test_a_run_is_found_under_any_of_its_names() -> None:
    assert saves({STEPS: [gauge(7, job="session-123")]}) == [Checkpoint("9041", 7, None, None)]
    both = [gauge(7, job="session-123"), gauge(9, job="9041")]
    assert saves({STEPS: both}) == [Checkpoint("9041", 9, None, None)], "the id before the others"


def test_a_name_that_two_runs_share_tells_nothing() -> None:
    jobs = {"1": ("1", "train", "session-1"), "2": ("2", "train", "session-2")}
    assert saves({STEPS: [gauge(7, job="train"), gauge(9, job="2")]}, jobs) == [Checkpoint("2", 9, None, None)]


def test_two_jobs_of_one_run_share_its_names() -> None:
    jobs = {"1": ("1", "train", "session-1"), "2": ("2", "train", "session-1")}
    assert [save.job for save in saves({STEPS: [gauge(7, job="train")]}, jobs)] == ["1", "2"]


def test_names_are_data_and_no_pattern() -> None:
    job = 'a".*|b\\'
    it = source(lambda query: [])
    PrometheusCheckpoints(it, CheckpointGauges()).checkpoints(AT, {job: (job,)})
    assert asked(it)[0]["query"] == r'train_checkpoint_step{job=~"a\"\\.\\*\\|b\\\\"}'


def test_a_query_that_drops_the_label_is_asked_for_each_name() -> None:
    gauges = CheckpointGauges(step='max(my_step{run="$job"})', started='x{run="$job"}', completed='y{run="$job"}')
    answers: dict[str, list[Series]] = {'max(my_step{run="9041"})': [({}, {AT: "5"})]}
    it = source(lambda query: answers.get(query, [({}, {AT: "9"})] if "=~" in query and "max" in query else []))
    assert PrometheusCheckpoints(it, gauges).checkpoints(AT, JOBS) == [Checkpoint("9041", 5, None, None)]


def test_without_jobs_or_gauges_nothing_is_asked() -> None:
    it = source(lambda query: [])
    assert PrometheusCheckpoints(it, CheckpointGauges()).checkpoints(AT, {}) == ()
    assert PrometheusCheckpoints(it, None).checkpoints(AT, JOBS) == ()
    assert asked(it) == []
