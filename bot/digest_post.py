"""From a recorded DigestPosted to the message and its charts in Slack. The last step of the deliver loop: what goes
wrong here must not hold up other messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bot.compose_digest import digest_card, tag_of_week
from bot.digest import Digest, read_digest
from bot.errors import Rejected, SourceError
from bot.events import DigestPosted
from bot.weeks import week_of
from store.slots import Slots
from store.store import Store
from templates.blocks import card_blocks, fallback

log = logging.getLogger(__name__)
SETTLED_AFTER = 86_400  # s; what could not be shown by then is history
LOOK_AFTER = 60  # s between tries; an upload whose outcome is unclear may still be on its way
File = tuple[str, str, bytes]  # name, title, content


class Files(Protocol):
    """Files in a thread. Both raise what Chat does."""

    def upload(self, channel: str, thread: str, files: Sequence[File]) -> None: ...

    def find(self, channel: str, thread: str, names: Sequence[str]) -> bool:
        """Whether they stand there: asked before an upload is repeated."""
        ...


@dataclass(frozen=True, slots=True)
class Poster:
    """files None: nothing is connected, or it takes no files."""

    store: Store
    slots: Slots
    tz: str
    channel: str
    files: Files | None = None


def post_digests(poster: Poster, now: int) -> None:
    """Raises StoreError only."""
    for posted in poster.store.state().all(DigestPosted):
        if now - posted.at < SETTLED_AFTER:
            _want_message(poster, posted, now)
            _want_charts(poster, posted, now)


def _digest(poster: Poster, posted: DigestPosted) -> Digest:
    """As of when it was recorded."""
    return read_digest(poster.store.database.path, week_of(posted.week, poster.tz), posted.at)


def _want_message(poster: Poster, posted: DigestPosted, now: int) -> None:
    """Composed once for each time it was asked for. One slot per week: asked again, the message is edited."""
    cursor = f"digest:{posted.week}"
    if poster.store.cursor(cursor) == str(posted.at):
        return
    card = digest_card(_digest(poster, posted), posted.late)
    poster.slots.want(
        tag_of_week(posted.week),
        "main",
        channel=poster.channel,
        text=fallback(card),
        blocks=card_blocks(card),
        now=now,
    )
    poster.store.set_cursor(cursor, str(posted.at))


# -- charts ---------------------------------------------------------------------------------------


def _want_charts(poster: Poster, posted: DigestPosted, now: int) -> None:
    """Once the message stands. A crash leaves `trying`, and then the thread is looked at before a second upload."""
    cursor = f"digest-charts:{posted.week}"
    state, _, not_before = poster.store.cursor(cursor).partition(" ")
    thread = poster.slots.ts(tag_of_week(posted.week), "main")
    if poster.files is None or not thread or state == "done" or now < int(not_before or 0):
        return
    poster.store.set_cursor(cursor, f"trying {now + LOOK_AFTER}")
    try:
        _show_charts(poster.files, poster.channel, thread, _digest(poster, posted), again=state == "trying")
    except Rejected as error:
        log.warning("charts of %s, given up: %s", posted.week, error)
    except SourceError as error:
        log.warning("charts of %s: %s", posted.week, error)
        return
    poster.store.set_cursor(cursor, "done")


def _show_charts(files: Files, channel: str, thread: str, digest: Digest, *, again: bool) -> None:
    if not digest.lost and not digest.chains:
        return  # two empty pictures would only be noise
    from bot.charts import charts

    pictures = charts(digest)
    if not (again and files.find(channel, thread, [name for name, _, _ in pictures])):
        files.upload(channel, thread, pictures)
