"""What a digest needs of the database, read without writing while a bot may be running on it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bot.compose import needs_mention
from bot.errors import StoreError
from bot.events import Event, SaveSeen
from bot.model import Hold, Incident, KnownSave, Recovery, Session
from bot.state import BY_CLASS
from bot.weeks import Week
from store import codec
from store.database import connect_read_only


@dataclass(frozen=True, slots=True)
class Records:
    """runs: all sessions, by key. began, newest: times of the log's first and last event. saves: (session key, save) of
    those in the week.

    calls: when somebody was called in the week. posts: (when, whether in a thread) of the week's messages.
    """

    incidents: tuple[Incident, ...] = ()
    recoveries: tuple[Recovery, ...] = ()
    holds: tuple[Hold, ...] = ()
    runs: Mapping[str, Session] = field(default_factory=dict)
    calls: tuple[int, ...] = ()
    posts: tuple[tuple[float, bool], ...] = ()
    began: int | None = None
    newest: int = 0
    saves: tuple[tuple[str, KnownSave], ...] = ()


def read_records(path: Path, week: Week) -> Records:
    """One consistent look. Raises StoreError."""
    connection = connect_read_only(path)
    try:
        connection.execute("begin")
        return _records(connection, week)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: cannot be read: {error}", "is it a database of xidbot?") from error
    finally:
        connection.close()


def _records(connection: sqlite3.Connection, week: Week) -> Records:
    began, newest = connection.execute("select min(at), coalesce(max(at), 0) from events").fetchone()
    return Records(
        incidents=tuple(_docs(connection, Incident)),
        recoveries=tuple(_docs(connection, Recovery)),
        holds=tuple(_docs(connection, Hold)),
        runs={s.key: s for s in _docs(connection, Session)},
        calls=tuple(event.at for event in _calls(connection, week.start, week.end)),
        posts=tuple(_posts(connection, week.start, week.end)),
        began=began,
        newest=newest,
        saves=tuple(_saves(connection, week.start, week.end)),
    )


def _docs(connection: sqlite3.Connection, cls: type) -> Iterator[Any]:
    for row in connection.execute("select body from docs where kind = ? order by id", (BY_CLASS[cls].name,)):
        yield codec.load(cls, row["body"])


def _saves(connection: sqlite3.Connection, start: int, end: int) -> Iterator[tuple[str, KnownSave]]:
    """From the log, because a run's history keeps only the newest. What is told last of a save is what is known of it;
    nothing is told of one before it is made."""
    rows = connection.execute(
        "select type, version, body from events where type = 'SaveSeen' and at >= ? order by id", (start,)
    )
    found: dict[tuple[str, int], KnownSave] = {}
    for row in rows:
        event = codec.load_event(row["type"], row["version"], row["body"])
        assert isinstance(event, SaveSeen)
        found[event.session, event.save.number] = event.save
        for number in event.gone:
            found.pop((event.session, number), None)
    return ((session, save) for (session, _), save in found.items() if start <= save.at < end)


def _calls(connection: sqlite3.Connection, start: int, end: int) -> Iterator[Event]:
    rows = connection.execute(
        "select type, version, body from events where type in ('PlanProposed', 'PlanReminded', 'RecoveryEnded')"
        " and at >= ? and at < ?",
        (start, end),
    )
    events = (codec.load_event(row["type"], row["version"], row["body"]) for row in rows)
    return (event for event in events if needs_mention(event))


def _posts(connection: sqlite3.Connection, start: int, end: int) -> Iterator[tuple[float, bool]]:
    """A message's `ts` is when it was posted. Edits make no noise; an answer that one person sees has no ts."""
    rows = connection.execute("select ts, thread_slot <> '' or thread <> '' as reply from slots where ts <> ''")
    posts = ((float(row["ts"]), bool(row["reply"])) for row in rows)
    return (post for post in posts if start <= post[0] < end)
