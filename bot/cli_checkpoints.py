"""`xidbot checkpoints`: reads the database, whether a bot runs on it or not, and writes nothing but the picture."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from bot.cli_site import read_state, zone_and_database

if TYPE_CHECKING:
    from pathlib import Path


@click.command("checkpoints", short_help="A run's saves: when, how large, how long, by whose word.")
@click.argument("word", metavar="SESSION")
@click.option("--last", default=20, show_default=True, type=click.IntRange(min=1), help="Saves shown.")
@click.option("--json", "as_json", is_flag=True, help="All that is known as JSON.")
@click.option("--png", metavar="FILE", help="Also draw how long they took.")
@click.pass_context
def checkpoints(ctx: click.Context, word: str, last: int, as_json: bool, png: str | None) -> None:
    """The saves of a run, ended or not: start, end, step, size, time taken, gap since the one before, whether it is
    known to be whole, and who told.

    Exit 2 for a run that is not known, 3 when the database cannot be read.

    Example: xidbot checkpoints session-123 --png saves.png
    """
    import json
    from pathlib import Path

    from bot import save_table
    from bot.saves import run_named

    tz, path = zone_and_database(ctx)
    state = read_state(path)
    session = run_named(state, word)
    history = state.saves_of(session.key)
    if as_json:
        click.echo(json.dumps(save_table.as_json(session, history), indent=2))
    else:
        click.echo(save_table.told(session, history, tz, last))
    if png:
        from bot.storage_charts import saves_chart

        _write(Path(png), saves_chart(session, history, tz))


def _write(path: Path, picture: bytes) -> None:
    from bot.errors import UsageError

    try:
        path.write_bytes(picture)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}") from error
