"""`xidbot config example` and `xidbot init`: how a site file comes into being."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

if TYPE_CHECKING:
    from bot.model import Cluster
    from bot.sources.prometheus import PrometheusSource

USUAL = ("node", "Hostname", "instance")
PATTERN = r"^([^.:]+)"
GPUS = '{__name__=~"DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_FB_USED"}'


@click.group("config", short_help="The site file: `config example` prints a full one.")
def config() -> None:
    """The site file."""


@config.command("example")
def show_example() -> None:
    """Print a full site file with what each key means. It is valid as it stands.

    Example: xidbot config example > xidbot.yaml
    """
    from bot.config_example import example

    click.echo(example(), nl=False)


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


@click.command("init", short_help="Look around and write a first, read-only site file.")
@click.option("--prometheus", "url", metavar="URL", help="Prometheus, without /api/v1.")
@click.option("--name", help="The site's name; the cluster's if none.")
@click.option("--timezone", default="UTC", show_default=True, help="Of messages and digests.")
@click.option("--slurm-conf", metavar="FILE", help="slurm.conf, where it is not at its usual place.")
@click.option("--partition", help="Runs in this partition are under care.")
@click.option("--qos", help="Runs with this QOS are under care.")
@click.option("--yes", is_flag=True, help="Ask nothing: take what was given and what was found.")
@click.pass_context
def init(
    ctx: click.Context,
    url: str | None,
    name: str | None,
    timezone: str,
    slurm_conf: str | None,
    partition: str | None,
    qos: str | None,
    yes: bool,
) -> None:
    """Asks, looks at Prometheus and the scheduler, shows the site file and writes it: mode observe, no gate.

    Never overwrites a file. Exit 2 when there is one, or when what was given does not make a site file.

    Example: xidbot init --prometheus http://prom:9090 --partition train --yes
    """
    from bot.config import path_of

    path = path_of(ctx.obj["config"])
    if path.exists():
        _refuse(f"{path} is there already; `xidbot doctor` looks whether it is right")
    if url is None and yes:
        _refuse("--yes asks nothing, so --prometheus URL must be given")
    url = url or str(click.prompt("Prometheus URL", default="http://localhost:9090"))
    cluster = _scheduler(slurm_conf)
    found = Found(name or (cluster.name if cluster else "site"), timezone, url.rstrip("/"), slurm_conf or "")
    _metrics(found, cluster.nodes if cluster else ())
    found.match = _match(cluster, partition, qos, ask=not yes)
    _write(path, _valid(found), ask=not yes)


def _refuse(why: str) -> NoReturn:
    click.echo(f"xidbot: {why}", err=True)
    sys.exit(2)


# -- looking --------------------------------------------------------------------------------------


def _scheduler(conf: str | None) -> Cluster | None:
    """None, and said so, where it cannot be read from here."""
    import time

    from bot.errors import SourceError
    from bot.schedulers.slurm import SlurmScheduler

    try:
        cluster = SlurmScheduler(conf).snapshot(int(time.time()))
    except SourceError as error:
        click.echo(f"the scheduler cannot be read from here: {error}", err=True)
        return None
    click.echo(f"cluster {cluster.name}: {len(cluster.nodes)} nodes, {len(cluster.jobs)} jobs", err=True)
    return cluster


def _metrics(found: Found, nodes: Collection[str]) -> None:
    """Fills in the labels that lead to nodes and the jobs of the GPU exporters."""
    from bot.errors import SourceError
    from bot.http_session import DeadlineSession
    from bot.sources.prometheus import PrometheusSource

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


def exporters(source: PrometheusSource) -> list[str]:
    """Scrape jobs that bring GPU metrics."""
    return sorted(labels["job"] for labels, _ in source.instant(f"count by (job) ({GPUS})") if "job" in labels)


def node_labels(series: Iterable[dict[str, str]], nodes: Collection[str]) -> list[str]:
    """The labels whose values lead to nodes, the one that does so most often first; the usual ones after it."""
    import re

    hits: Counter[str] = Counter()
    for labels in series:
        for label, value in labels.items():
            cut = re.search(PATTERN, value)
            hits[label] += bool(cut and cut[1] in nodes)
    leading = [label for label, count in sorted(hits.items(), key=lambda h: (-h[1], _rank(h[0]))) if count]
    return [*leading, *(label for label in USUAL if label not in leading)]


def _rank(label: str) -> tuple[int, str]:
    return (USUAL.index(label) if label in USUAL else len(USUAL), label)


def _match(cluster: Cluster | None, partition: str | None, qos: str | None, *, ask: bool) -> dict[str, str]:
    """Which runs are under care: what was given, else what is asked, with the largest that was seen as default."""
    given = {"partition": partition, "qos": qos}
    if not ask or partition or qos:
        return {key: value for key, value in given.items() if value}
    for key in given:
        seen = used(cluster, key) if cluster else []
        click.echo(f"{key}: {', '.join(seen) or 'none seen'}", err=True)
        given[key] = click.prompt(f"Runs under care, {key} (empty: any)", default=seen[0] if seen else "")
    return {key: value for key, value in given.items() if value}


def used(cluster: Cluster, key: str) -> list[str]:
    """Partitions or QOS of the jobs in the queue, those with the most GPUs first."""
    gpus: Counter[str] = Counter()
    for job in cluster.jobs.values():
        gpus[getattr(job, key)] += job.node_count * max(1, job.gpus_per_node)
    return [value for value, _ in gpus.most_common() if value]


# -- writing --------------------------------------------------------------------------------------


def site_text(found: Found) -> str:
    import json

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
    from bot.config import Config
    from bot.yamlfile import parse, validate

    text = site_text(found)
    validate(Config, parse(text, "the new site file"))
    return text


def _write(path: Path, text: str, *, ask: bool) -> None:
    click.echo(text)
    if ask and not click.confirm(f"Write {path}?", default=True):
        click.echo("nothing was written", err=True)
        return
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        _refuse(f"{path}: {error.strerror}")
    click.echo(f"{path} written; next: `xidbot doctor`, then `xidbot run`", err=True)
