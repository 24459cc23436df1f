"""The folder of a recording: its days, the truth beside them, and how to load it."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from bot.errors import UsageError
from bot.sandbox.recording.families import FAMILIES
from bot.sandbox.recording.fleet import ROWS, hostlist
from bot.sandbox.recording.recording import Recording
from bot.sandbox.recording.writers import BYTES, Format, day_file, write_day

MANIFEST = "recording.json"
PACKS = 5  # a packed file is at least so many times smaller
VERSION = 1  # of what a seed means: a folder begun with another one cannot be gone on with
Row = Sequence[object]
Done = Callable[[int], None]


def write(
    recording: Recording, folder: Path, form: Format, packed: bool = False, done: Done = lambda day: None
) -> None:
    """Raises UsageError where the folder holds something else or the disk is too small. `done` hears of each day."""
    _claim(recording, folder, form, packed)
    missing = [d for d in range(recording.days) if not day_file(recording, d, folder, form, packed).exists()]
    _room(recording, folder, form, packed, len(missing))
    write_truth(recording, folder)
    (folder / "README.txt").write_text(_readme(recording, form, packed))
    for number in range(recording.days):
        if number in missing:
            write_day(recording, number, folder, form, packed)
        done(number)


def _claim(recording: Recording, folder: Path, form: Format, packed: bool) -> None:
    """An empty folder becomes ours; one that was begun with the same words is gone on with."""
    wanted = {"seed": recording.seed, "days": recording.days, "nodes": len(recording.fleet), "start": recording.start,
              "format": form, "gzip": packed, "version": VERSION}  # fmt: skip
    manifest = folder / MANIFEST
    if manifest.exists():
        if _read(manifest) != wanted:
            raise UsageError(f"{folder} holds another recording", f"see {manifest}, or take another folder")
        return
    folder.mkdir(parents=True, exist_ok=True)
    if any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty and holds no recording", "take another folder")
    manifest.write_text(json.dumps(wanted, indent=1) + "\n")


def _read(manifest: Path) -> object:
    try:
        return json.loads(manifest.read_text())
    except ValueError:
        return None


def _room(recording: Recording, folder: Path, form: Format, packed: bool, days: int) -> None:
    needed = expected_bytes(recording, form, packed) * days // recording.days
    free = shutil.disk_usage(folder).free
    if needed > free:
        fewer = "--gzip, fewer days" if form == "victoriametrics" and not packed else "fewer days"
        raise UsageError(f"about {needed >> 30} GiB are needed in {folder}, {free >> 30} are free", f"{fewer} or nodes")


def expected_bytes(recording: Recording, form: Format, packed: bool) -> int:
    series = len(recording.fleet) * (2 + sum(family.width for family in FAMILIES.values()))
    return series * ROWS * recording.days * BYTES[form] // (PACKS if packed else 1)


# -- the truth ---------------------------------------------------------------------------------------------------------


def write_truth(recording: Recording, folder: Path) -> None:
    for name, head, rows in _tables(recording):
        with (folder / name).open("w", newline="") as file:
            table = csv.writer(file, lineterminator="\n")
            table.writerow(head.split())
            table.writerows(["" if cell is None else cell for cell in row] for row in rows)


def _tables(r: Recording) -> Iterable[tuple[str, str, Iterable[Row]]]:
    yield (
        "sessions.csv",
        "session job nodes start end state",
        ((run.session, run.job, hostlist(run.nodes), moment(run.start), moment(run.end), run.state) for run in r.runs),
    )
    yield (
        "labels.csv",
        "node gpu category xid start end",
        ((f.node, f.gpu, f.category, f.xid, moment(f.start), moment(f.end)) for f in r.labels),
    )
    yield (
        "application.csv",
        "node gpu xid start end",
        ((a.node, a.gpu, a.xid, moment(a.start), moment(a.end)) for a in r.application),
    )
    yield (
        "storage-labels.csv",
        "start end verdict node",
        ((moment(s.start), moment(s.end), s.verdict, s.node) for s in r.storage_labels),
    )
    yield (
        "nuisances.csv",
        "kind nodes start end",
        ((n.kind, hostlist(n.nodes), moment(n.start), moment(n.end)) for n in r.nuisances),
    )


def moment(at: int | None) -> str | None:
    """RFC 3339; None stays None: it has not ended."""
    return None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


# -- how to load it ----------------------------------------------------------------------------------------------------


def _readme(recording: Recording, form: Format, packed: bool) -> str:
    load = OPENMETRICS if form == "openmetrics" else PACKED if packed else PLAIN
    return README.format(
        days=recording.days, nodes=len(recording.fleet), seed=recording.seed, start=moment(recording.start),
        end=moment(recording.end), load=load,
    )  # fmt: skip


README = """A simulated recording: {days} days of {nodes} nodes, seed {seed}, a sample a minute.

{load}
Then: xidbot backtest --prometheus URL --from {start} --to {end} --step 60s \\
        --sessions sessions.csv --labels labels.csv --storage-labels storage-labels.csv

sessions.csv        who ran where (empty end: still running)
labels.csv          hardware that failed, until it was back in service (empty gpu: the node; empty xid: no code)
application.csv     Xids that a program caused; the hardware is well
storage-labels.csv  saves that the storage held up
nuisances.csv       what only looks like trouble, for those who ask why an alarm came
"""
PLAIN = """VictoriaMetrics (it keeps a month unless told otherwise):
  victoria-metrics -storageDataPath=vm -retentionPeriod=100y -httpListenAddr=127.0.0.1:8428 &
  for day in *.jsonl; do curl -fsS -T "$day" -X POST 127.0.0.1:8428/api/v1/import; done
  curl -fsS 127.0.0.1:8428/internal/force_flush
URL is http://127.0.0.1:8428
"""
PACKED = PLAIN.replace("*.jsonl", "*.jsonl.gz").replace("-fsS -T", "-fsS -H 'Content-Encoding: gzip' -T")
OPENMETRICS = """Prometheus (it keeps 15 days unless told otherwise):
  for day in *.om.txt; do
    promtool tsdb create-blocks-from -q --max-block-duration=720h openmetrics "$day" tsdb
  done
  prometheus --storage.tsdb.path=tsdb --storage.tsdb.retention.time=100y --config.file=prometheus.yml &
URL is http://127.0.0.1:9090; prometheus.yml may be empty
"""
