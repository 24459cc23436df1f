"""`xidbot signals`: what is looked for, and what each signal says now."""

from __future__ import annotations

import sys

import click


@click.command("signals", short_help="What is looked for, what it says now, and why it says nothing.")
@click.option("--prometheus", "url", metavar="URL", help="Where the metrics are; the site file's, if none is given.")
@click.option("--json", "as_json", is_flag=True, help="The same as JSON.")
@click.pass_context
def signals(ctx: click.Context, url: str | None, as_json: bool) -> None:
    """The merged catalogue, and on how many nodes each signal is good, bad or unknown, and why unknown.

    Asks what the bot would ask, and writes nothing. With an address and no site file every host of the metrics is a
    node, and the GPU exporters are found by what they export. With neither the catalogue alone is shown.

    Exit 0 nothing is bad, 1 something is, 2 the site file or the address is wrong, 3 something cannot be read.

    Example: xidbot signals --prometheus http://prom:9090
    """
    from bot import policy as policies
    from bot.config import path_of
    from bot.site import read_site
    from bot.survey_text import as_json as written
    from bot.survey_text import catalogue, catalogue_json, text

    config = ctx.obj["config"]
    site = read_site(path_of(config)) if config or path_of(None).exists() else None
    if site is None and url is None:
        shipped = policies.signals(None).values()
        click.echo(catalogue_json(shipped) if as_json else catalogue(shipped))
        return
    from bot.survey_site import of_site, of_url

    found = of_site(site, ctx.obj["db"], url) if site else of_url(str(url), policies.build())
    click.echo(written(found) if as_json else text(found))
    sys.exit(found.exit_code)
