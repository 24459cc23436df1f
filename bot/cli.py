"""The command line. `--help` loads click alone; everything else is imported when a command runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from bot.cli_ask import ask as asked
from bot.cli_backtest import backtest
from bot.cli_checkpoints import checkpoints
from bot.cli_config import config, init
from bot.cli_demo import demo
from bot.cli_digest import digest
from bot.cli_doctor import doctor
from bot.cli_signals import signals
from bot.cli_simulate import simulate
from bot.cli_site import site_of
from bot.cli_why import why
from commands import COMMANDS, Command

if TYPE_CHECKING:
    from bot.site import Site
    from bot.slack import Tokens


class Main(click.Group):
    """Errors of ours become one clear line and their exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        from bot.errors import XidbotError

        try:
            return super().invoke(ctx)
        except XidbotError as error:
            click.echo(f"xidbot: {error}", err=True)
            sys.exit(error.exit_code)


@click.group(cls=Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="xidbot")
@click.option("--config", "config_path", metavar="FILE", help="Site file ($XIDBOT_CONFIG, ./xidbot.yaml).")
@click.option("--db", metavar="FILE", help="Database (site.database, ./xidbot.db).")
@click.option("-v", "--verbose", is_flag=True, help="Log more.")
@click.pass_context
def main(ctx: click.Context, config_path: str | None, db: str | None, verbose: bool) -> None:
    """Keeps GPU training runs alive, tells on-call what broke and why, and keeps the record of how it ended."""
    ctx.obj = {"config": config_path, "db": db, "verbose": verbose}


def _logging(ctx: click.Context) -> None:
    import logging

    level = logging.DEBUG if ctx.obj["verbose"] else logging.INFO
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)-7s %(name)s: %(message)s", stream=sys.stderr)
    for chatty in ("apscheduler", "slack_sdk", "slack_bolt", "urllib3", "websocket"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


@main.command()
@click.pass_context
def run(ctx: click.Context) -> None:
    """The service: watch, decide, act, deliver, until stopped."""
    import signal

    from bot.app import App
    from bot.clock import LiveClock

    _logging(ctx)
    with _connected(site_of(ctx), ctx.obj["db"]) as (site, tokens):
        app = App(site, ctx.obj["db"], tokens)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: app.stop())
        try:
            app.run(LiveClock())
        finally:
            app.close()


@contextmanager
def _connected(site: Site, db: str | None) -> Iterator[tuple[Site, Tokens]]:
    """Slack with the site's tokens; without any the local workspace, said aloud."""
    from bot.app import slack_tokens

    tokens = slack_tokens(site)
    if tokens:
        yield site, tokens
        return
    from bot.sandbox.run import local_workspace

    with local_workspace(site, db) as (local, tokens, url):
        click.echo(f"no Slack tokens: a local workspace stands in for Slack at {url}", err=True)
        yield local, tokens


@main.command()
@click.pass_context
def tick(ctx: click.Context) -> None:
    """One round and out. Exit 1 when an incident is open, 3 when a source could not be read."""
    import time

    from bot.app import App

    _logging(ctx)
    app = App(site_of(ctx), ctx.obj["db"])
    try:
        seen = app.once(int(time.time()))
        unread = [s for s in seen.sources if s.problem]
        for source in unread:
            click.echo(f"{source.name}: {source.problem}", err=True)
        found = app.store.state().open_incidents()
        click.echo(f"{len(found)} open incidents")
    finally:
        app.close()
    sys.exit(3 if unread else 1 if found else 0)


@main.command("check-config")
@click.pass_context
def check_config(ctx: click.Context) -> None:
    """Read the site file and print the merged policy's hash."""
    site = site_of(ctx)
    merged = site.policy
    click.echo(
        f"{site.path}: fine. policy {merged.hash}, write mode {merged.write_mode}, "
        f"{len(merged.signals)} signals, {len(merged.playbooks)} playbooks, {len(merged.sessions)} session rules"
    )
    if not merged.sessions:
        click.echo("no session rule: no run is under xidbot's care, and nothing is ever requeued", err=True)


@main.command()
@click.option("--check", is_flag=True, help="Only compare; exit 1 where something differs.")
@click.pass_context
def rebuild(ctx: click.Context, check: bool) -> None:
    """Write the projections anew from the log of events."""
    from pathlib import Path

    from store import store

    path = Path(ctx.obj["db"] or site_of(ctx).config.site.database)
    problems = store.check(path) if check else _rebuild(path)
    for problem in problems:
        click.echo(problem)
    click.echo(f"{len(problems)} documents differ" if problems else "the projections are what the log adds up to")
    sys.exit(1 if problems and check else 0)


def _rebuild(path: Any) -> list[str]:
    from store.store import Store

    opened = Store.open(path)
    try:
        opened.take_lease()
        return opened.rebuild()
    finally:
        opened.drop_lease()
        opened.close()


# -- the commands of Slack ------------------------------------------------------------------------


def _asker(command: Command) -> Callable[..., None]:
    @click.pass_context
    def ask(ctx: click.Context, words: tuple[str, ...]) -> None:
        site = site_of(ctx)
        from bot.app import open_store

        store = open_store(site, ctx.obj["db"])
        try:
            code = asked(site, store, command, words)
        finally:
            store.close()
        sys.exit(code)

    return ask


for _command in COMMANDS:
    _made = click.command(
        _command.name,
        help=f"{_command.help}\n\nUsage: {_command.usage}\n\nExample: xidbot {_command.example}",
        short_help=_command.help,
    )(_asker(_command))
    _made.params.append(click.Argument(["words"], nargs=-1, type=click.UNPROCESSED))
    main.add_command(_made)

# After the table: checkpoints, digest and why look at the database themselves, also while no bot runs.
for _own in (backtest, checkpoints, config, demo, digest, doctor, init, signals, simulate, why):
    main.add_command(_own)
