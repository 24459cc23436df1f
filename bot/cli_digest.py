"""`xidbot digest`: looks at the database without writing, or asks the running bot to post."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from bot.cli_site import site_of, zone_and_database

if TYPE_CHECKING:
    from bot.digest import Digest
    from bot.weeks import Week


@click.command("digest", short_help="A week's figures: what broke, who recovered it, what it cost.")
@click.option(
    "--week", "text", metavar="YYYY-Wnn", help="Calendar week in the site's zone; the last whole one if none."
)
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
@click.option("--post", is_flag=True, help="Have the running bot post it in the channel.")
@click.pass_context
def digest(ctx: click.Context, text: str | None, as_json: bool, post: bool) -> None:
    """A week's figures: what to do, what broke, who recovered it and how well, what it cost.

    Exit 2 for a week that does not exist, 3 when the database cannot be read; with --post 1 when the bot refuses.

    Example: xidbot digest --week 2026-W48
    """
    import time

    from bot.digest import read_digest
    from bot.errors import StoreError

    now = int(time.time())
    tz, path = zone_and_database(ctx)
    week = _week(text, now, tz)
    if post:
        sys.exit(_post(ctx, week))
    try:
        found = read_digest(path, week, now)
    except StoreError as error:
        click.echo(f"xidbot: {error}", err=True)
        sys.exit(3)
    click.echo(_json(found) if as_json else _text(found))


def _week(text: str | None, now: int, tz: str) -> Week:
    from bot.weeks import last_week, week_of

    return week_of(text, tz) if text else last_week(now, tz)


def _post(ctx: click.Context, week: Week) -> int:
    from bot.app import open_store
    from bot.cli_ask import ask
    from commands import BY_NAME

    site = site_of(ctx)
    store = open_store(site, ctx.obj["db"])
    try:
        return ask(site, store, BY_NAME["digest"], (week.name,))
    finally:
        store.close()


def _json(found: Digest) -> str:
    import json

    return json.dumps(found.as_json(), indent=2)


def _text(found: Digest) -> str:
    """The message as a terminal shows it."""
    import html

    from bot.compose_digest import digest_card
    from templates.blocks import card_blocks, plain

    text = "\n\n".join(plain([block]) for block in card_blocks(digest_card(found)))
    return html.unescape(text.replace("```\n", "").replace("\n```", ""))
