"""`xidbot simulate`: a cluster's history with known faults, to try detectors on."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from bot.sandbox.recording.writers import Format


@click.command("simulate")
@click.option("--days", type=click.IntRange(1, 366), default=55, show_default=True, help="Length of the recording.")
@click.option("--nodes", type=click.IntRange(4, 999), default=63, show_default=True, help="Nodes of 8 GPUs each.")
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed makes the same recording.")
@click.option(
    "--start",
    type=click.DateTime(["%Y-%m-%d"]),
    default="2026-03-02",
    show_default=True,
    help="First day; it begins at midnight in UTC.",
)
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder: new, empty, or begun before.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["victoriametrics", "openmetrics"]),
    default="victoriametrics",
    show_default=True,
    help="JSON lines for /api/v1/import, or text for promtool's create-blocks-from.",
)
@click.option("--gzip", "packed", is_flag=True, help="Pack the JSON lines; VictoriaMetrics reads them as they are.")
def simulate(days: int, nodes: int, seed: int, start: datetime, out: Path, form: Format, packed: bool) -> None:
    """Write a recording with known faults: metrics, sessions and labels.

    README.txt in the folder says how to load it. A run that was interrupted goes on where it stopped.

    Example: xidbot simulate --days 2 --nodes 63 --seed 7 --out recording
    """
    from bot.errors import UsageError
    from bot.sandbox.recording import Recording
    from bot.sandbox.recording.folder import write

    if packed and form == "openmetrics":
        raise UsageError("promtool reads no packed files", "leave --gzip out")
    recording = Recording(seed, days, nodes, int(start.replace(tzinfo=UTC).timestamp()))
    with click.progressbar(length=days, label=f"{days} days", file=sys.stderr) as bar:
        write(recording, out, form, packed, lambda day: bar.update(1))
    coded = sum(failure.xid is not None for failure in recording.failures)
    click.echo(
        f"{out}: {days} days of {nodes} nodes, {len(recording.failures)} failures ({coded} with an Xid), "
        f"{len(recording.storage_labels)} storage stalls"
    )
