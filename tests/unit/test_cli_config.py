"""The full example is whole and true; `init` looks, shows, writes once."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from pydantic import BaseModel

from bot import policy
from bot.cli_config import config, init
from bot.config import Config
from bot.config_example import EXAMPLES, SHOWN, WHY, example
from bot.config_init import used
from bot.errors import Unreachable
from bot.schedulers.simulated import SimulatedScheduler
from bot.schedulers.slurm import SlurmScheduler
from bot.site import read_site
from bot.sources.discover import exporters, node_labels
from bot.sources.prometheus import PrometheusSource
from bot.yamlfile import _inner_model

# -- config example ------------------------------------------------------------------------------------------------------


def keys(model: type[BaseModel], above: str = "") -> set[str]:
    found = set()
    for name, info in model.model_fields.items():
        inner = _inner_model(info.annotation)
        found |= {above + name} | (keys(inner, f"{above}{name}.") if inner else set())
    return found


def written(tmp_path: Path, text: str) -> Path:
    (tmp_path / "xidbot.yaml").write_text(text)
    return tmp_path / "xidbot.yaml"


def optional_on(text: str) -> str:
    return re.sub(r"^(\s+)# (\w+: )", r"\1\2", text, flags=re.M)


def test_the_example_is_valid_and_changes_no_shipped_decision(tmp_path: Path) -> None:
    done = CliRunner().invoke(config, ["example"])
    site = read_site(written(tmp_path, done.stdout))
    shipped = policy.build()
    assert site.policy.numbers == shipped.numbers
    assert site.policy.signals == shipped.signals
    assert site.policy.write_mode == "observe"
    assert site.config.slack is not None and site.config.slack.roles.viewer == "*"


def test_the_playbooks_are_the_shipped_ones(tmp_path: Path) -> None:
    import playbooks

    assert read_site(written(tmp_path, example())).policy.playbooks == playbooks.load()


def test_the_optional_keys_are_valid_too(tmp_path: Path) -> None:
    text = optional_on(example())
    assert text.count("\n") == example().count("\n") and text != example()
    site = read_site(written(tmp_path, text))
    assert site.config.sessions[0].match.model_dump(exclude_none=True).keys() == policy.Match.model_fields.keys()
    assert str(site.config.prometheus.token_file) == "/etc/xidbot/prom.token"


def test_every_key_stands_in_it_with_what_it_means(tmp_path: Path) -> None:
    assert keys(Config) == WHY.keys()
    assert {*EXAMPLES, *SHOWN} <= WHY.keys()
    found = read_site(written(tmp_path, optional_on(example()))).config.model_dump()
    assert found["prometheus"].keys() == keys(Config.model_fields["prometheus"].annotation)  # type: ignore[arg-type]
    for line in WHY.values():
        assert line in example()


# -- init ----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> SimulatedScheduler:
    """A cluster whose nodes the label Hostname names, and an exporter with a job name of its own."""
    scheduler = SimulatedScheduler()
    scheduler.add_nodes(["node-01", "node-02", "node-03", "node-04"])
    scheduler.submit("7", 3, partition="train", qos="pretrain")
    scheduler.submit("8", 1, partition="debug", qos="small")
    monkeypatch.setattr(SlurmScheduler, "snapshot", lambda self, now: scheduler.snapshot(now))

    def instant(self: PrometheusSource, query: str, at: int | None = None) -> list[Any]:
        if query.startswith("count by (job)"):
            return [({"job": "gpus"}, np.array([[1.0, 32.0]]))]
        hosts = ("node-01.lab", "node-02.lab")
        return [({"Hostname": h, "instance": "10.0.0.1:9400"}, np.array([[1.0, 50.0]])) for h in hosts]

    monkeypatch.setattr(PrometheusSource, "instant", instant)
    return scheduler


def run(path: Path, *words: str, keyboard: str = "") -> Result:
    return CliRunner().invoke(init, list(words), obj={"config": str(path), "db": None}, input=keyboard)


def test_without_questions(tmp_path: Path, world: SimulatedScheduler) -> None:
    path = tmp_path / "xidbot.yaml"
    done = run(path, "--prometheus", "http://prom:9090/", "--qos", "pretrain", "--timezone", "Asia/Seoul", "--yes")
    assert done.exit_code == 0, done.output
    site = read_site(path)
    assert (site.config.site.name, site.config.site.timezone, site.policy.write_mode) == (
        "simcl",
        "Asia/Seoul",
        "observe",
    )
    assert site.config.prometheus.url == "http://prom:9090"
    assert site.config.prometheus.node_labels == ("Hostname", "node", "instance")
    assert site.config.prometheus.dcgm_jobs == ("gpus",)
    assert site.config.scheduler.gate == ()
    assert site.policy.sessions[0].match.model_dump(exclude_none=True) == {"qos": "pretrain"}
    assert path.read_text() in done.stdout


def test_with_questions_the_largest_runs_are_the_default(tmp_path: Path, world: SimulatedScheduler) -> None:
    path = tmp_path / "xidbot.yaml"
    done = run(path, keyboard="http://prom:9090\n\n\ny\n")
    assert done.exit_code == 0, done.output
    match = read_site(path).policy.sessions[0].match
    assert (match.partition, match.qos) == ("train", "pretrain")


def test_shown_and_not_wanted(tmp_path: Path, world: SimulatedScheduler) -> None:
    done = run(tmp_path / "xidbot.yaml", keyboard="http://prom:9090\n\n\nn\n")
    assert done.exit_code == 0
    assert "nothing was written" in done.stderr and not (tmp_path / "xidbot.yaml").exists()


def test_it_never_overwrites(tmp_path: Path, world: SimulatedScheduler) -> None:
    path = written(tmp_path, "mine")
    done = run(path, "--prometheus", "http://prom:9090", "--yes")
    assert done.exit_code == 2 and "is there already" in done.stderr
    assert path.read_text() == "mine"


def test_nothing_answers_and_a_site_file_is_written_all_the_same(
    tmp_path: Path, world: SimulatedScheduler, monkeypatch: pytest.MonkeyPatch
) -> None:
    def down(*_: Any) -> Any:
        raise Unreachable("prometheus", "Connection refused")

    world.broken = "squeue did not answer"
    monkeypatch.setattr(PrometheusSource, "instant", down)
    done = run(tmp_path / "xidbot.yaml", "--prometheus", "http://prom:9090", "--yes")
    assert done.exit_code == 0
    assert "the scheduler cannot be read" in done.stderr and "Prometheus cannot be read" in done.stderr
    site = read_site(tmp_path / "xidbot.yaml")
    assert site.config.prometheus.node_labels == ("node", "Hostname", "instance")
    assert site.policy.sessions == ()


def test_what_does_not_make_a_site_file(tmp_path: Path, world: SimulatedScheduler) -> None:
    assert run(tmp_path / "a", "--yes").exit_code == 2
    wrong = run(tmp_path / "a", "--prometheus", "http://prom", "--timezone", "Mars/Base", "--yes")
    assert "is no time zone" in str(wrong.exception)
    far = run(tmp_path / "no" / "folder", "--prometheus", "http://prom", "--yes")
    assert far.exit_code == 2 and "No such file" in far.stderr


def test_labels_are_ranked_by_how_often_they_lead_to_nodes() -> None:
    series = [{"pod": "exporter-1", "node": "node-01"}, {"node": "gone", "kubernetes_node": "node-02"},
              {"kubernetes_node": "node-03"}]  # fmt: skip
    assert node_labels(series, {"node-01", "node-02", "node-03"})[:2] == ["kubernetes_node", "node"]
    assert node_labels(series, ()) == ["node", "Hostname", "instance"]


def test_used_counts_gpus(world: SimulatedScheduler) -> None:
    assert used(world.snapshot(0), "qos") == ["pretrain", "small"]


def test_exporters_without_a_job_label_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PrometheusSource, "instant", lambda self, query, at=None: [({}, None), ({"job": "b"}, None)])
    assert exporters(PrometheusSource.__new__(PrometheusSource)) == ["b"]


def test_help_loads_click_alone() -> None:
    code = (
        "import sys\nfrom bot import cli_config, cli_doctor, cli_why\n"
        "print(sorted({'numpy', 'pydantic', 'yaml', 'requests', 'slack_sdk', 'sqlite_utils'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
