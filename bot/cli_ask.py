"""A command of Slack from the command line: the running bot answers it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from commands import Command

if TYPE_CHECKING:
    from bot.model import Answer
    from bot.site import Site
    from store.store import Store

WAIT_FOR_ANSWER = 15.0  # s; a round takes at most one step and a hanging scheduler's deadline


def ask(site: Site, store: Store, command: Command, words: tuple[str, ...]) -> int:
    """0 answered well, 1 refused; `queued` where no bot runs."""
    import getpass
    import time

    from bot.model import Request

    text = " ".join((command.name, *words))
    number = store.ask(Request(text=text, user=f"os:{getpass.getuser()}", at=int(time.time())))
    if command.name in ("pause", "resume"):
        _tell_gate(site, command.name, words)
    if not store.lease_holder():
        click.echo(f"queued as request {number}: no bot is running on {store.database.path}")
        return 0
    answer = _await(store, number)
    if answer is None:
        click.echo(f"queued as request {number}: the bot has not answered yet")
        return 0
    click.echo(answer.reply)
    return 0 if answer.ok else 1


def _await(store: Store, number: int) -> Answer | None:
    """The answer as soon as the running bot has given it."""
    import time

    until = time.monotonic() + WAIT_FOR_ANSWER
    while time.monotonic() < until:
        answer = store.answer(number)
        if answer:
            return answer
        time.sleep(0.1)
    return None


def _tell_gate(site: Site, verb: str, words: tuple[str, ...]) -> None:
    """Pausing must work when the bot hangs: straight to the gate."""
    import time

    from bot.app import make_gate
    from bot.errors import GateError
    from bot.model import Argv

    gate = make_gate(site)
    if gate is None:
        return
    operands = ("--why", " ".join(words)) if verb == "pause" and words else ()
    try:
        report = gate.run(Argv(verb, operands), f"cli:{verb}:gate:{int(time.time())}")
        click.echo(f"gate: {verb} {'done' if report.exit in (0, 3) else report.text}", err=True)
    except GateError as error:
        click.echo(f"gate: {error}", err=True)
