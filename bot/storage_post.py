"""Pictures of storage in Slack: in a stall's thread when it opens and when it ends, and after `checkpoints`. The last
step of the deliver loop: what goes wrong here must not hold up messages."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from bot.digest_post import LOOK_AFTER, SETTLED_AFTER, File, Files
from bot.errors import Rejected, SourceError, UsageError
from bot.model import Answer, Incident, Stall
from bot.saves import run_named
from bot.state import State
from store.slots import Slots
from store.store import Store

log = logging.getLogger(__name__)
WORD = "checkpoints"


@dataclass(frozen=True, slots=True)
class Pictures:
    """files None: nothing is connected, or it takes no files."""

    store: Store
    slots: Slots
    tz: str
    channel: str
    files: Files | None = None


def post_pictures(p: Pictures, state: State, now: int) -> None:
    """Raises StoreError only."""
    if p.files is None:
        return
    for incident in state.all(Incident):
        if incident.stall is not None and incident.stall.trace:
            _of_stall(p, incident, incident.stall, now)
    for answer in state.all(Answer):
        if answer.source == "slack" and answer.ok and now - answer.at < SETTLED_AFTER:
            _of_saves(p, answer, state, now)


def _of_stall(p: Pictures, incident: Incident, stall: Stall, now: int) -> None:
    """Once its message stands. A stall that is over before the first one could be shown is shown once."""
    if now - (stall.ended or incident.opened) >= SETTLED_AFTER:
        return
    thread = p.slots.ts(incident.tag, "main")
    when = f"ended-{stall.ended}" if stall.ended is not None else "open"
    if thread:
        name = f"storage-{incident.tag}-{when}.png"
        title = f"{stall.export}, the hour before {'its end' if stall.ended is not None else 'it was seen'}"
        _show(p, f"stall-chart:{incident.tag}:{when}", p.channel, thread, (name, title), now, lambda: _stall(p, stall))


def _stall(p: Pictures, stall: Stall) -> bytes:
    from bot.storage_charts import stall_chart

    return stall_chart(stall, p.tz)


def _of_saves(p: Pictures, answer: Answer, state: State, now: int) -> None:
    command, _, word = answer.text.strip().partition(" ")
    request = p.store.request(answer.request) if command.lower() == WORD else None
    if request is None:
        return
    try:
        session = run_named(state, word.strip())
    except UsageError:
        return  # it is forgotten since
    history = state.saves_of(session.key)
    if not any(s.seconds is not None for s in history.saves):
        return

    def draw() -> bytes:
        from bot.storage_charts import saves_chart

        return saves_chart(session, history, p.tz)

    named = (f"saves-{session.name}.png", f"How long saves took, {session.name}")
    _show(p, f"saves-chart:{answer.request}", request.channel or p.channel, request.thread, named, now, draw)


def _show(
    p: Pictures, cursor: str, channel: str, thread: str, named: tuple[str, str], now: int, draw: Callable[[], bytes]
) -> None:
    """A crash or an unclear answer leaves `trying`: then the thread is looked at before a second upload. Where there is
    no thread to look at, once must do."""
    state, _, not_before = p.store.cursor(cursor).partition(" ")
    if state == "done" or now < int(not_before or 0):
        return
    assert p.files is not None
    p.store.set_cursor(cursor, f"trying {now + LOOK_AFTER}" if thread else "done")
    name, title = named
    try:
        if not (state == "trying" and p.files.find(channel, thread, [name])):
            picture: File = (name, title, draw())
            p.files.upload(channel, thread, [picture])
    except Rejected as error:
        log.warning("%s, given up: %s", name, error)
    except SourceError as error:
        log.warning("%s: %s", name, error)
        return
    p.store.set_cursor(cursor, "done")
