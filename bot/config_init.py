"""A first site file from what is there: asks, looks, shows, writes."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click

from bot.config import Config
from bot.errors import SourceError
from bot.http_session import DeadlineSession
from bot.model import Cluster
from bot.schedulers.slurm import SlurmScheduler
from bot.sources.discover import GPUS, PATTERN, USUAL, exporters, node_labels
from bot.sources.prometheus import PrometheusSource
from bot.yamlfile import parse, validate


@dataclass
class Found:
    """What goes into the first site file."""

    name: str
    timezone: str
    url: str
    conf: str = ""
    labels: list[str] = field(default_factory=lambda: list(USUAL))
    jobs: list[str] = field(default_factory=list)
    match: dict[str, str] = field(default_factory=dict)


def first_site(
    path: Path,
    url: str,
    name: str | None,
    timezone: str,
    conf: str | None,
    match: dict[str, str | None],
    *,
    ask: bool,
) -> None:
    """Raises ConfigError for what does not make a site file, OSError where it cannot be written."""
    cluster = _scheduler(conf)
    found = Found(name or (cluster.name if cluster else "site"), timezone, url.rstrip("/"), conf or "")
    _metrics(found, cluster.nodes if cluster else ())
    found.match = _match(cluster, match, ask=ask)
    _write(path, _valid(found), ask=ask)


# -- looking --------------------------------------------------------------------------------------


def _scheduler(conf: str | None) -> Cluster | None:
    """None, and said so, where it cannot be read from here."""
    try:
        cluster = SlurmScheduler(conf).snapshot(int(time.time()))
    except SourceError as error:
        click.echo(f"the scheduler cannot be read from here: {error}", err=True)
        return None
    click.echo(f"cluster {cluster.name}: {len(cluster.nodes)} nodes, {len(cluster.jobs)} jobs", err=True)
    return cluster


def _metrics(found: Found, nodes: Collection[str]) -> None:
    """Fills in the labels that lead to nodes and the jobs of the GPU exporters."""
    try:
        source = PrometheusSource(found.url, DeadlineSession(), USUAL, PATTERN, ())
        labels = [dict(labels) for labels, _ in source.instant(f"max without (gpu, UUID) ({GPUS})")]
        found.jobs = exporters(source)
    except SourceError as error:
        click.echo(f"Prometheus cannot be read from here: {error}", err=True)
        return
    found.labels = node_labels(labels, nodes)
    where = f"label {found.labels[0]} leads to the nodes" if nodes else "no node to compare with"
    click.echo(f"{len(labels)} GPU series, jobs {', '.join(found.jobs) or 'none'}; {where}", err=True)


def _match(cluster: Cluster | None, given: dict[str, str | None], *, ask: bool) -> dict[str, str]:
    """Which runs are under care: what was given, else what is asked, with the largest that was seen as default."""
    found = {key: value for key, value in given.items() if value}
    for key in given if ask and not found else ():
        seen = used(cluster, key) if cluster else []
        click.echo(f"{key}: {', '.join(seen) or 'none seen'}", err=True)
        found[key] = str(click.prompt(f"Runs under care, {key} (empty: any)", default=seen[0] if seen else ""))
    return {key: value for key, value in found.items() if value}


def used(cluster: Cluster, key: str) -> list[str]:
    """Partitions or QOS of the jobs in the queue, those with the most GPUs first."""
    gpus: Counter[str] = Counter()
    for job in cluster.jobs.values():
        gpus[getattr(job, key)] += job.node_count * max(1, job.gpus_per_node)
    return [value for value, _ in gpus.most_common() if value]


# -- writing --------------------------------------------------------------------------------------


def site_text(found: Found) -> str:
    scheduler = {"kind": "slurm", **({"conf": found.conf} if found.conf else {})}
    prometheus: dict[str, Any] = {"url": found.url, "node_labels": found.labels, "node_pattern": PATTERN}
    prometheus |= {"dcgm_jobs": found.jobs} if found.jobs else {}
    site = {"name": found.name, "timezone": found.timezone, "write_mode": "observe", "database": "xidbot.db"}
    parts = {
        "site": site,
        "prometheus": prometheus,
        "scheduler": scheduler,
        "sessions": [{"match": found.match}] if found.match else [],
    }
    head = "# Read-only: xidbot looks and tells. `xidbot config example` shows every key.\n"
    return head + "".join(f"{key}: {json.dumps(value, ensure_ascii=False)}\n" for key, value in parts.items())


def _valid(found: Found) -> str:
    """Raises ConfigError for what does not make a site file."""
    text = site_text(found)
    validate(Config, parse(text, "the new site file"))
    return text


def _write(path: Path, text: str, *, ask: bool) -> None:
    """Shown first. Raises OSError, also for a file that is there."""
    click.echo(text)
    if ask and not click.confirm(f"Write {path}?", default=True):
        click.echo("nothing was written", err=True)
        return
    with path.open("x", encoding="utf-8") as file:
        file.write(text)
    click.echo(f"{path} written; next: `xidbot doctor`, then `xidbot run`", err=True)
