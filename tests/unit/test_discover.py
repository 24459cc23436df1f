"""What a Prometheus shows of itself. The server's side of it: tests/real/test_prometheus.py."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from bot.sources.discover import PATTERN, USUAL, exporters, node_labels
from tests.unit.test_prometheus import AT, Series, asked, source

NODES = {"node-01", "node-02", "node-03"}


def order(*series: dict[str, str], nodes: Collection[str] = NODES) -> list[str]:
    return node_labels(series, nodes)


def test_the_label_that_leads_to_nodes_comes_first() -> None:
    rows = [
        {"instance": f"10.0.0.{i}:9400", "kubernetes_node": f"node-0{i}", "Hostname": "dcgm-x7f"} for i in (1, 2, 3)
    ]
    assert order(*rows) == ["kubernetes_node", *USUAL]


def test_the_label_that_does_so_more_often_comes_first() -> None:
    rows = [{"instance": "node-01:9400", "host": "node-01"}, {"instance": "10.0.0.2:9400", "host": "node-02"}]
    assert order(*rows)[:2] == ["host", "instance"]


def test_of_two_that_do_so_alike_the_usual_one_comes_first() -> None:
    rows = [{"zone": "node-01", "instance": "node-01:9400", "Hostname": "node-01"}]
    assert order(*rows) == ["Hostname", "instance", "zone", "node"]


def test_domains_and_ports_are_no_part_of_a_name() -> None:
    assert order({"exported_instance": "node-02.cluster.local:9400"})[0] == "exported_instance"
    assert PATTERN == r"^([^.:]+)"


def test_where_nothing_leads_to_a_node_the_usual_labels_stay() -> None:
    assert order({"instance": "10.0.0.1:9400", "gpu": "0"}, {"empty": ""}) == list(USUAL)
    assert order() == list(USUAL)
    assert order({"instance": "node-01:9400"}, nodes=()) == list(USUAL)


def test_labels_that_hold_a_node_by_chance_do_not_win() -> None:
    rows = [{"Hostname": f"node-0{i}", "pod": "node-01"} for i in (1, 2, 3)] + [{"Hostname": "node-01", "pod": "x"}]
    assert order(*rows)[0] == "Hostname"


@pytest.mark.parametrize("at", [None, AT])
def test_gpu_exporters_are_the_jobs_that_bring_gpu_metrics(at: int | None) -> None:
    answer: list[Series] = [({"job": "gpu.metrics"}, {AT: "8"}), ({"job": "dcgm"}, {AT: "504"}), ({}, {AT: "1"})]
    it = source(lambda query: answer)
    assert exporters(it, at) == ["dcgm", "gpu.metrics"]
    assert asked(it)[-1]["query"].startswith("count by (job)")
    assert asked(it)[-1].get("time") == (None if at is None else str(at))


def test_where_nobody_brings_gpu_metrics_there_is_no_exporter() -> None:
    assert exporters(source(lambda query: [])) == []
