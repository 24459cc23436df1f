"""`xidbot why`: reads the database, whether a bot runs on it or not, and writes nothing."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from bot.state import State


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

    from bot.config import path_of
    from bot.site import read_site
    from bot.why import explain, told

    site = read_site(path_of(ctx.obj["config"]))
    state = read_state(Path(ctx.obj["db"] or site.config.site.database))
    stages = explain(word, state, site.policy, int(time.time()), site.config.site.timezone)
    click.echo(json.dumps([asdict(stage) for stage in stages], indent=2) if as_json else told(stages))
    sys.exit(1 if stages[0].verdict == "no" or any(stage.verdict == "stop" for stage in stages) else 0)


def read_state(path: Path) -> State:
    """What the log adds up to, from a connection that cannot write. Exits 3 when there is none."""
    import sqlite3

    from bot.errors import StoreError
    from bot.state import BY_NAME, State
    from store import codec
    from store.database import connect_read_only

    state = State()
    try:
        connection = connect_read_only(path)
        for row in connection.execute("select kind, id, body from docs"):
            state.docs[row["kind"]][row["id"]] = codec.load(BY_NAME[row["kind"]].cls, row["body"])
        connection.close()
    except (StoreError, sqlite3.Error) as error:
        click.echo(f"xidbot: {path}: cannot be read: {error}; has the bot run here, and may you read it?", err=True)
        sys.exit(3)
    return state
