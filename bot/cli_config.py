"""`xidbot config example` and `xidbot init`: how a site file comes into being."""

from __future__ import annotations

import sys
from typing import NoReturn

import click


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
    from bot.config_init import first_site

    path = path_of(ctx.obj["config"])
    if path.exists():
        _refuse(f"{path} is there already; `xidbot doctor` looks whether it is right")
    if url is None and yes:
        _refuse("--yes asks nothing, so --prometheus URL must be given")
    url = url or str(click.prompt("Prometheus URL", default="http://localhost:9090"))
    given = {"partition": partition, "qos": qos}
    try:
        first_site(path, url, name, timezone, slurm_conf, given, ask=not yes)
    except OSError as error:
        _refuse(f"{path}: {error.strerror}")


def _refuse(why: str) -> NoReturn:
    click.echo(f"xidbot: {why}", err=True)
    sys.exit(2)
