"""A real Prometheus that scrapes our exporter."""

import json
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.real.exporter import Exporter
from tests.real.supervise import Process, eventually, free_port


class Prometheus:
    """Jobs dcgm and node with one target per node, job trainer. As in the field `instance` tells node:port;
    `label_nodes` adds the label `node`, else only dcgm's Hostname names the node. more: other scrape jobs."""

    def __init__(
        self,
        root: Path,
        exporter: Exporter,
        scrape: str = "1s",
        label_nodes: bool = False,
        more: Sequence[dict[str, Any]] = (),
    ) -> None:
        self.root, self.exporter, self._more = root, exporter, more
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.root.mkdir(parents=True, exist_ok=True)
        (root / "prometheus.yml").write_text(json.dumps(self._config(scrape, label_nodes)))  # JSON is YAML
        self._start()

    def _config(self, scrape: str, label_nodes: bool) -> dict[str, Any]:
        jobs = [
            {"job_name": job, "static_configs": self._targets(job, port, label_nodes)}
            for job, port in (("dcgm", 9400), ("node", 9100))
        ]
        trainer = {
            "job_name": "trainer",
            "metrics_path": "/trainer",
            "honor_labels": True,  # the gauges carry a `job` of their own: the scheduler's
            "static_configs": [{"targets": [self.exporter.address]}],
        }
        timing = {"scrape_interval": scrape, "scrape_timeout": scrape}
        return {"global": timing, "scrape_configs": [*jobs, trainer, *self._more]}

    def _targets(self, job: str, port: int, label_nodes: bool) -> list[dict[str, Any]]:
        return [
            {
                "targets": [self.exporter.address],
                "labels": {"__metrics_path__": f"/{node}/{job}", "instance": f"{node}:{port}"}
                | ({"node": node} if label_nodes else {}),
            }
            for node in self.exporter.nodes
        ]

    def _start(self) -> None:
        argv = ["prometheus", f"--config.file={self.root}/prometheus.yml", f"--storage.tsdb.path={self.root}/tsdb",
                f"--web.listen-address=127.0.0.1:{self.port}", "--web.enable-admin-api",
                "--log.level=warn"]  # fmt: skip
        self._process = Process(argv, self.root / "prometheus.log")
        try:
            eventually(self._ready, every=0.02, why="Prometheus is ready")
        except AssertionError as error:
            self.stop()
            raise AssertionError(f"{error}\n{self._process.tail()}") from None

    def _ready(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5) as answer:
            return bool(answer.status == 200)

    def scraped(self) -> None:
        """Waits until every target was scraped once. After a start that takes Prometheus 5 s, whatever the
        scrape interval is: so long it gathers targets first."""
        targets = 2 * len(self.exporter.nodes) + 1
        eventually(lambda: self.value("count(up)") == targets, why="all targets scraped")

    def forget(self) -> None:
        """Nothing remembered: a look-back must not find the faults of the last test."""
        time.sleep(0.2)  # a scrape on its way still brings old values
        everything = urllib.parse.urlencode({"match[]": '{__name__=~".+"}'})
        url = f"{self.url}/api/v1/admin/tsdb/delete_series?{everything}"
        with urllib.request.urlopen(url, b"", timeout=10) as answer:
            assert answer.status == 204

    def query(self, promql: str) -> list[dict[str, Any]]:
        """The series of an instant query, each with `metric` and `value` ([time, text])."""
        form = urllib.parse.urlencode({"query": promql}).encode()
        with urllib.request.urlopen(f"{self.url}/api/v1/query", form, timeout=10) as answer:
            result: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return result

    def value(self, promql: str) -> float | None:
        """The one value of an instant query, None when there is none."""
        found = self.query(promql)
        assert len(found) < 2, f"{promql} has {len(found)} values"
        return float(found[0]["value"][1]) if found else None

    def pause(self) -> None:
        """Prometheus hangs."""
        self._process.pause()

    def resume(self) -> None:
        self._process.resume()

    def restart(self) -> None:
        """kill -9, and back at the same address with what it had stored."""
        self.stop()
        self._start()

    def stop(self) -> None:
        self._process.stop()
