"""`xidbot backtest`: the site's own past through the same score and decide."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from bot.backtest_run import Asked, Outcome


@click.command("backtest", short_help="Which alarms the past would have raised, and how many were true.")
@click.option("--prometheus", "url", metavar="URL", help="Where the metrics are; the site file's, if none is given.")
@click.option("--from", "start", required=True, metavar="T", help="RFC 3339 or Unix seconds.")
@click.option("--to", "end", required=True, metavar="T", help="RFC 3339 or Unix seconds.")
@click.option("--step", default="60s", show_default=True, metavar="DURATION", help="Between two looks.")
@click.option("--sessions", metavar="CSV", help="Who ran where: session,job,nodes,start,end,state.")
@click.option("--labels", metavar="CSV", help="What truly failed: node,gpu,category,xid,start,end.")
@click.option("--storage-labels", metavar="CSV", help="Which stalls were true: start,end,verdict,node.")
@click.option("--alarms", metavar="FILE", help="Write every alarm there, as JSON.")
@click.option("--against", metavar="YAML", help="A second site file: what would change with its policy.")
@click.option("--json", "as_json", is_flag=True, help="The figures as JSON.")
@click.option("--again", is_flag=True, help="Begin anew instead of going on where the last run was stopped.")
@click.pass_context
def backtest(ctx: click.Context, /, **options: str | bool | None) -> None:
    """Which alarms the past would have raised, and how many of them were true.

    Nothing is written but the alarms file. A run that was stopped goes on where it was, days at a time. Without a
    site file the shipped policy and labels are taken, and the GPU exporters' jobs are found by what they export.

    Exit 2 for a file or a time that cannot be read, 3 when the metrics cannot be.

    Example: xidbot backtest --prometheus http://prom:9090 --from 2026-10-01T00:00:00Z --to 2026-11-01T00:00:00Z
    """
    from bot.backtest_run import asked, run
    from bot.backtest_text import difference, text

    wanted = asked(ctx.obj["config"], options)
    outcome = _with_bar("replaying", wanted, run)
    other = _with_bar("replaying the other policy", wanted.against, run) if wanted.against else None
    if options["as_json"]:
        click.echo(outcome.json(other))
    else:
        click.echo(text(outcome))
        if other:
            click.echo(difference(outcome, other))
    if wanted.alarms:
        _write(wanted.alarms, outcome.alarms_json())


def _write(path: Path, text: str) -> None:
    from bot.errors import UsageError

    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--alarms {path}: {error.strerror}") from error


def _with_bar(label: str, wanted: Asked, run: Callable[[Asked, Callable[[int], None]], Outcome]) -> Outcome:
    length = max(wanted.end - wanted.start, 1)
    with click.progressbar(length=length, label=label, file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        return run(wanted, lambda at: bar.update(max(at - wanted.start - bar.pos, 0)))
