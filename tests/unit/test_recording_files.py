"""A recording as files: what they hold, and that a run which was interrupted goes on."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from bot import backtest_files
from bot.cli import main
from bot.errors import UsageError
from bot.sandbox.recording import Recording
from bot.sandbox.recording.folder import write
from bot.sandbox.recording.writers import Format

SEED, DAYS, NODES = 4, 2, 4
LINE = re.compile(r"(\w+)\{(.*)\} (\S+) (\d+)")


@pytest.fixture(scope="module")
def recording() -> Recording:
    return Recording(SEED, DAYS, NODES)


@pytest.fixture(scope="module")
def written(recording: Recording, tmp_path_factory: pytest.TempPathFactory) -> dict[Format, Path]:
    root = tmp_path_factory.mktemp("recordings")
    forms: tuple[Format, Format] = ("victoriametrics", "openmetrics")
    for form in forms:
        write(recording, root / form, form)
    return {form: root / form for form in forms}


def samples(recording: Recording, name: str, day: int) -> tuple[list[dict[str, str]], np.typing.NDArray[np.float64]]:
    return next((labels, values) for own, _, labels, values in recording.day(day) if own == name)


@pytest.mark.parametrize("name", ["DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "node_intr_total", "DCGM_FI_DEV_XID_ERRORS"])
def test_json_lines_hold_the_samples(name: str, recording: Recording, written: dict[Format, Path]) -> None:
    labels, values = samples(recording, name, 1)
    lines = (written["victoriametrics"] / "2026-03-03.jsonl").read_text().splitlines()
    found = [line for line in map(json.loads, lines) if line["metric"].pop("__name__") == name]
    assert [line["metric"] for line in found] == labels
    for line, column in zip(found, values.T, strict=True):
        there = ~np.isnan(column)
        assert line["values"] == column[there].tolist()
        assert line["timestamps"] == [1000 * at for at, known in zip(recording.times(1), there, strict=True) if known]


def test_open_metrics_hold_the_samples_family_by_family(recording: Recording, written: dict[Format, Path]) -> None:
    text = (written["openmetrics"] / "2026-03-02.om.txt").read_text().splitlines()
    types = [line.split()[2] for line in text if line.startswith("# TYPE")]
    assert len(types) == len(set(types)) and text[-1] == "# EOF" and "# TYPE node_intr counter" in text
    labels, values = samples(recording, "DCGM_FI_DEV_POWER_USAGE", 0)
    told = [LINE.fullmatch(line) for line in text if line.startswith("DCGM_FI_DEV_POWER_USAGE{")]
    assert [float(match[3]) for match in told if match] == values.T[~np.isnan(values.T)].tolist()
    assert told[0] and told[0][2].startswith(f'gpu="0",UUID="{labels[0]["UUID"]}"')


def test_a_backtest_reads_the_truth_as_it_is(recording: Recording, written: dict[Format, Path]) -> None:
    folder = written["openmetrics"]
    assert backtest_files.runs(folder / "sessions.csv") == [
        backtest_files.Run(run.session, run.job, run.nodes, run.start, run.end, run.state) for run in recording.runs
    ]
    assert backtest_files.labels(folder / "labels.csv") == list(recording.labels)
    assert backtest_files.storage_labels(folder / "storage-labels.csv") == list(recording.storage_labels)
    assert (folder / "application.csv").read_text().startswith("node,gpu,xid,start,end\n")


def test_a_day_that_is_missing_is_written_and_the_others_are_left_alone(recording: Recording, tmp_path: Path) -> None:
    write(recording, tmp_path, "victoriametrics")
    first, second = sorted(tmp_path.glob("*.jsonl"))
    kept, stamp = second.read_bytes(), first.stat().st_mtime_ns
    second.rename(second.with_name(second.name + ".part"))
    write(Recording(SEED, DAYS, NODES), tmp_path, "victoriametrics")
    assert second.read_bytes() == kept and first.stat().st_mtime_ns == stamp
    assert not list(tmp_path.glob("*.part"))


def test_packed_lines_are_the_same_lines(recording: Recording, written: dict[Format, Path], tmp_path: Path) -> None:
    write(recording, tmp_path, "victoriametrics", packed=True)
    plain = written["victoriametrics"] / "2026-03-02.jsonl"
    assert gzip.decompress((tmp_path / "2026-03-02.jsonl.gz").read_bytes()) == plain.read_bytes()
    assert "Content-Encoding: gzip" in (tmp_path / "README.txt").read_text()


def test_a_folder_with_something_else_is_refused(recording: Recording, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").touch()
    with pytest.raises(UsageError, match="not empty"):
        write(recording, tmp_path, "openmetrics")
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]


@pytest.mark.parametrize("other", [(SEED + 1, DAYS, NODES), (SEED, DAYS + 1, NODES), (SEED, DAYS, NODES + 1)])
def test_a_folder_with_another_recording_is_refused(other: tuple[int, int, int], written: dict[Format, Path]) -> None:
    with pytest.raises(UsageError, match="another recording"):
        write(Recording(*other), written["openmetrics"], "openmetrics")


def test_what_the_disk_cannot_hold_is_refused_before_it_is_begun(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="GiB are needed"):
        write(Recording(1, days=366, nodes=120), tmp_path, "openmetrics")
    assert not list(tmp_path.glob("*.csv"))


def test_the_command_says_what_it_wrote(tmp_path: Path) -> None:
    ask = ["simulate", "--days", "1", "--nodes", "4", "--seed", "3", "--start", "2026-05-01", "--out", str(tmp_path)]
    done = CliRunner().invoke(main, ask)
    assert done.exit_code == 0 and "1 days of 4 nodes, 2 failures (1 with an Xid)" in done.output
    assert (tmp_path / "2026-05-01.jsonl").exists()
    refused = CliRunner().invoke(main, [*ask, "--format", "openmetrics", "--gzip"])
    assert refused.exit_code == 2 and "packed" in refused.output
