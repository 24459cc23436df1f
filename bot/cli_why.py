"""`xidbot why`: reads the database, whether a bot runs on it or not, and writes nothing."""

from __future__ import annotations

import sys

import click

from bot.cli_site import read_state, site_of


@click.command("why", short_help="Which stage is missing: seen, signal, decision, guard, next.")
@click.argument("word", metavar="SESSION|NODE|INCIDENT")
@click.option("--json", "as_json", is_flag=True, help="The stages as JSON.")
@click.pass_context
def why(ctx: click.Context, word: str, as_json: bool) -> None:
    """What xidbot sees and thinks of a run, a node or an incident, and where it stops.

    Exit 1 when it is not known or something stops it, 3 when the database cannot be read.

    Example: xidbot why session-123
    """
    import json
    import time
    from dataclasses import asdict
    from pathlib import Path

    from bot.why import explain, told

    site = site_of(ctx)
    state = read_state(Path(ctx.obj["db"] or site.config.site.database))
    stages = explain(word, state, site.policy, int(time.time()), site.config.site.timezone)
    click.echo(json.dumps([asdict(stage) for stage in stages], indent=2) if as_json else told(stages))
    sys.exit(1 if stages[0].verdict == "no" or any(stage.verdict == "stop" for stage in stages) else 0)
