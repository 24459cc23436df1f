"""`xidbot demo`: a simulated cluster, with nothing but Python."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from bot.sandbox.demo import Progress

DAY = 86_400


@click.command("demo")
@click.option(
    "--headless", is_flag=True, help="No page and no waiting: the simulated people answer, as fast as it goes."
)
@click.option("--seed", type=int, default=1, show_default=True, help="The same seed brings the same trouble.")
@click.option("--days", type=click.IntRange(1, 366), default=7, show_default=True, help="Simulated days, headless.")
@click.option("--json", "as_json", is_flag=True, help="Headless: the figures as one JSON object.")
@click.option("--db", metavar="FILE", help="Keep the database there; it must not exist yet.")
@click.option(
    "--speed", type=click.FloatRange(1, 600), default=60, show_default=True, help="Simulated seconds in a real one."
)
@click.pass_context
def demo(ctx: click.Context, headless: bool, seed: int, days: int, as_json: bool, db: str | None, speed: float) -> None:
    """Simulated cluster, bot and Slack in one: a fault, a click, and the run comes back.

    Example: xidbot demo --headless --seed 7 --days 7 --json
    """
    db = db or (ctx.obj or {}).get("db")
    if headless or as_json:
        _headless(seed, days, db, as_json)
    else:
        _live(seed, speed, db)


def _headless(seed: int, days: int, db: str | None, as_json: bool) -> None:
    import json

    from bot.sandbox.demo import headless

    with _progress(days) as progress:
        told = headless(seed, days, db, progress)
    click.echo(json.dumps(told) if as_json else _spoken(told))


@contextmanager
def _progress(days: int) -> Iterator[Progress]:
    """A bar on the terminal, and nothing where nobody looks."""
    if not sys.stderr.isatty():
        yield lambda passed: None
        return
    with click.progressbar(length=days * DAY, label=f"{days} days", file=sys.stderr) as bar:
        yield lambda passed: bar.update(passed - bar.pos)


def _spoken(told: Mapping[str, Any]) -> str:
    kinds = ", ".join(f"{count} {kind}" for kind, count in told["kinds"].items())
    lines = [
        f"{told['days']} simulated days in {told['wall_s']:.1f} s",
        f"{told['incidents']} incidents: {kinds}",
        f"{told['messages']} messages, {told['actions']} actions",
    ]
    for name in sorted({chain["class"] for chain in told["chains"]}):
        mine = [chain for chain in told["chains"] if chain["class"] == name]
        regained, survived = (sum(chain[fact] for chain in mine) for fact in ("regained", "survived"))
        tries = sum(chain["attempts"] for chain in mine)
        lines.append(f"{name}: {len(mine)} chains, {tries} attempts, {regained} regained, {survived} survived")
    return "\n".join(lines)


def _live(seed: int, speed: float, db: str | None) -> None:
    import signal

    from bot.sandbox.live import live

    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    live(seed, speed, Terminal(), db, stop.wait)


class Terminal:
    """One line that is written over on a terminal; elsewhere a line now and then."""

    EVERY = 100  # looks between two lines where nothing can be written over

    def __init__(self) -> None:
        self._tty = sys.stdout.isatty()
        self._shown, self._looks = "", 0

    def say(self, text: str) -> None:
        self._clear()
        click.echo(text)

    def status(self, text: str) -> None:
        self._looks += 1
        if self._tty and text != self._shown:
            self._clear()
            click.echo(text, nl=False)
            self._shown = text
        elif not self._tty and self._looks % self.EVERY == 1:
            click.echo(text)

    def _clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[2K", nl=False)
            self._shown = ""
