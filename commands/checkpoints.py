"""A run's saves."""

from __future__ import annotations

from collections.abc import Iterator

from bot.model import KnownSave, Observation
from bot.save_table import told
from bot.saves import run_named
from commands.run import Asked, Reply, usage

SHOWN = 12  # rows that a Slack section holds without being cut


def checkpoints(asked: Asked) -> Reply:
    """The picture follows where it was asked (bot.storage_post)."""
    if len(asked.words) != 1:
        raise usage("checkpoints")
    services = asked.services
    session = run_named(services.state, asked.words[0])
    history = services.state.saves_of(session.key)
    return Reply(f"```\n{told(session, history, services.tz, SHOWN, _under_way(services.seen, session.key))}\n```")


def _under_way(seen: Observation, session: str) -> Iterator[KnownSave]:
    """A burst that has not ended, where the counters show one."""
    runs = (run for view in seen.storage if view.known for run in view.sessions if run.session == session)
    for burst in (b for run in runs for b in run.saves if b.end is None):
        yield KnownSave(burst.start, None, bytes=int(burst.bytes), slow=burst.slow, sources=("counters",))
