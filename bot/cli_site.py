"""What commands of the line begin with: the site file, the database, and what stands in it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from pathlib import Path

    from bot.site import Site
    from bot.state import State


def site_of(ctx: click.Context) -> Site:
    """Raises ConfigError."""
    from bot.config import path_of
    from bot.site import read_site

    return read_site(path_of(ctx.obj["config"]))


def zone_and_database(ctx: click.Context) -> tuple[str, Path]:
    """A database named by hand needs no site file; its days are then those of UTC."""
    from pathlib import Path

    from bot.config import path_of
    from bot.site import read_site

    given = ctx.obj["config"]
    if ctx.obj["db"] and given is None and not path_of(None).exists():
        return "UTC", Path(ctx.obj["db"])
    site = read_site(path_of(given)).config.site
    return site.timezone, Path(ctx.obj["db"] or site.database)


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
