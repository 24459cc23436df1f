"""The log and what it adds up to. One writer; everything else looks through read-only connections."""

from __future__ import annotations

import os
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bot.errors import LeaseHeld
from bot.events import VERSION, Event
from bot.model import Answer, Incident, Plan, Recovery, Request
from bot.state import BY_NAME, State, fold
from store import codec
from store.database import Database, connect_read_only

KEEP = 7 * 86400  # s that finished documents stay in memory: the longest look-back of any budget is 24 h
LEASE = "writer"
LEASE_FOR = 60.0  # s; renewed every round. A killed bot of this host is followed at once: its process is gone


class Store:
    """Raises StoreError; LeaseHeld when another bot writes to this database."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._lock = threading.RLock()
        self._state = self._load()
        self.holder = f"{socket.gethostname()}:{os.getpid()}"

    @classmethod
    def open(cls, path: Path | str) -> Store:
        return cls(Database(path))

    def close(self) -> None:
        self.database.close()

    # -- the log ---------------------------------------------------------------------------------

    def append(self, events: Sequence[Event]) -> None:
        """Events and their projections, all or none."""
        if not events:
            return
        with self._lock:
            draft = self._state.copy()
            with self.database.write() as connection:
                for event in events:
                    _insert(connection, event)
                    draft.apply(event)
                _save(connection, draft, max(event.at for event in events))
            draft.changed.clear()
            self._state = draft

    def state(self) -> State:
        """A copy that nobody else changes."""
        with self._lock:
            return self._state.copy()

    def events(self, *, tag: str = "", after: int = 0, limit: int = 100_000) -> list[tuple[int, Event]]:
        """(number, event) after a number, in order; with a tag only those of one incident."""
        with self.database.read() as connection:
            found = list(read_events(connection, after, limit))
        return [(n, e) for n, e in found if not tag or tag_of(e) == tag]

    def trim(self, now: int) -> None:
        """Forget finished documents in memory; the database keeps them."""
        with self._lock, self.database.read() as connection:
            old = connection.execute("select kind, id from docs where live = 0 and at < ?", (now - KEEP,))
            for row in old:
                self._state.docs[row["kind"]].pop(row["id"], None)

    def _load(self) -> State:
        state = State(self._find)
        with self.database.read() as connection:
            newest = connection.execute("select coalesce(max(at), 0) from events").fetchone()[0]
            rows = connection.execute("select kind, id, body from docs where live = 1 or at >= ?", (newest - KEEP,))
            for row in rows:
                state.docs[row["kind"]][row["id"]] = codec.load(BY_NAME[row["kind"]].cls, row["body"])
        return state

    def _find(self, kind: str, key: str) -> Any:
        with self.database.read() as connection:
            row = connection.execute("select body from docs where kind = ? and id = ?", (kind, key)).fetchone()
        return codec.load(BY_NAME[kind].cls, row["body"]) if row else None

    # -- one writer ------------------------------------------------------------------------------

    def take_lease(self, now: float | None = None) -> None:
        """Take or renew. Raises LeaseHeld while another live holder has it."""
        now = time.time() if now is None else now
        with self.database.write() as connection:
            row = connection.execute("select holder, until from leases where name = ?", (LEASE,)).fetchone()
            if row and row["holder"] != self.holder and row["until"] > now and _alive(row["holder"]):
                raise LeaseHeld(
                    f"{self.database.path}: {row['holder']} writes to this database",
                    "one bot per database: stop the other one, or wait until its lease ends",
                )
            connection.execute(
                "insert into leases values (?, ?, ?) on conflict (name) do update set holder = excluded.holder,"
                " until = excluded.until",
                (LEASE, self.holder, now + LEASE_FOR),
            )

    def drop_lease(self) -> None:
        with self.database.write() as connection:
            connection.execute("delete from leases where name = ? and holder = ?", (LEASE, self.holder))

    def lease_holder(self, now: float | None = None) -> str:
        """Who writes now; empty = nobody."""
        now = time.time() if now is None else now
        with self.database.read() as connection:
            row = connection.execute("select holder, until from leases where name = ?", (LEASE,)).fetchone()
        return row["holder"] if row and row["until"] > now and _alive(row["holder"]) else ""

    # -- what people asked -----------------------------------------------------------------------

    def ask(self, request: Request) -> int:
        """Number of the request; the same dedupe key delivered twice is one request."""
        dedupe = request.dedupe or None
        with self.database.write() as connection:
            connection.execute(
                "insert or ignore into inbox (dedupe, at, source, user, text, channel, thread, response_url)"
                " values (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    dedupe,
                    request.at,
                    request.source,
                    request.user,
                    request.text,
                    request.channel,
                    request.thread,
                )
                + (request.response_url,),
            )
            if dedupe is None:
                return int(connection.execute("select last_insert_rowid()").fetchone()[0])
            return int(connection.execute("select id from inbox where dedupe = ?", (dedupe,)).fetchone()[0])

    def inbox(self) -> list[Request]:
        """Unanswered requests, oldest first. Answered = its RequestAnswered is in the log."""
        with self.database.read() as connection:
            rows = connection.execute(
                "select * from inbox i where answered = 0 and not exists"
                " (select 1 from docs d where d.kind = 'answer' and d.id = cast(i.id as text)) order by id"
            )
            return [_request(row) for row in rows]

    def answer(self, number: int) -> Answer | None:
        """Straight from the database: the bot that answers is another process."""
        found: Answer | None = self._find("answer", str(number))
        return found

    def request(self, number: int) -> Request | None:
        with self.database.read() as connection:
            row = connection.execute("select * from inbox where id = ?", (number,)).fetchone()
        return _request(row) if row else None

    # -- cursors ---------------------------------------------------------------------------------

    def cursor(self, name: str) -> str:
        """How far somebody has come; empty = not begun."""
        with self.database.read() as connection:
            row = connection.execute("select value from cursors where name = ?", (name,)).fetchone()
        return str(row["value"]) if row else ""

    def set_cursor(self, name: str, value: str) -> None:
        with self.database.write() as connection:
            connection.execute(
                "insert into cursors values (?, ?) on conflict (name) do update set value = excluded.value",
                (name, value),
            )

    # -- rebuild ---------------------------------------------------------------------------------

    def rebuild(self) -> list[str]:
        """Write the projections anew from the log; returns what differed before."""
        with self._lock, self.database.write() as connection:
            problems, state = compare(connection)
            connection.execute("delete from docs")
            at = connection.execute("select coalesce(max(at), 0) from events").fetchone()[0]
            _save(connection, state, at)
        self._state = self._load()
        return problems


def check(path: Path) -> list[str]:
    """`rebuild --check`: every document that differs from what the log adds up to. Empty = all is well."""
    connection = connect_read_only(path)
    try:
        return compare(connection)[0]
    finally:
        connection.close()


def compare(connection: sqlite3.Connection) -> tuple[list[str], State]:
    state = fold(event for _, event in read_events(connection))
    stored = {(r["kind"], r["id"]): r["body"] for r in connection.execute("select kind, id, body from docs")}
    rebuilt = {(kind, key): codec.dump(doc) for kind, table in state.docs.items() for key, doc in table.items()}
    differing = sorted(k for k in stored.keys() | rebuilt.keys() if stored.get(k) != rebuilt.get(k))
    return [_difference(key, stored, rebuilt) for key in differing], state


def _difference(key: tuple[str, str], stored: dict[tuple[str, str], str], rebuilt: dict[tuple[str, str], str]) -> str:
    kind = "missing" if key not in stored else "not in the log" if key not in rebuilt else "differs"
    return f"{key[0]} {key[1]}: {kind}"


def read_events(connection: sqlite3.Connection, after: int = 0, limit: int = -1) -> Iterator[tuple[int, Event]]:
    rows = connection.execute(
        "select id, type, version, body from events where id > ? order by id limit ?", (after, limit)
    )
    for row in rows:
        yield row["id"], codec.load_event(row["type"], row["version"], row["body"])


def tag_of(event: Event) -> str:
    """The incident episode that an event belongs to; empty where it belongs to none."""
    number, episode = getattr(event, "incident", None), getattr(event, "episode", None)
    if isinstance(number, int):
        return f"{number}.{episode}"
    for name in ("incident", "plan", "recovery"):
        inner = getattr(event, name, None)
        if isinstance(inner, Incident | Plan | Recovery):
            return inner.tag
        if isinstance(inner, str):
            return inner.split("/")[0] if name == "recovery" else ".".join(inner.split(".")[:2])
    action = getattr(event, "action", None)
    cause = action.cause if action else str(getattr(event, "key", "")).split(":")[0]
    return cause if cause[:1].isdigit() else ""


def _insert(connection: sqlite3.Connection, event: Event) -> None:
    connection.execute(
        "insert into events (at, recorded, type, version, body) values (?, ?, ?, ?, ?)",
        (event.at, time.time(), type(event).__name__, VERSION, codec.dump(event)),
    )


def _save(connection: sqlite3.Connection, state: State, at: int) -> None:
    """Only what changed. A document that a live one replaced keeps its key."""
    for name, key in sorted(state.changed):
        doc = state.docs[name][key]
        connection.execute(
            "insert into docs values (?, ?, ?, ?, ?) on conflict (kind, id) do update set live = excluded.live,"
            " at = excluded.at, body = excluded.body",
            (name, key, int(BY_NAME[name].live(doc)), at, codec.dump(doc)),
        )


def _request(row: sqlite3.Row) -> Request:
    fields = ("text", "user", "at", "source", "channel", "thread", "response_url", "id")
    return Request(**{name: row[name] for name in fields}, dedupe=row["dedupe"] or "")


def _alive(holder: str) -> bool:
    """A holder on this host whose process is gone holds nothing; on another host only time tells."""
    host, _, pid = holder.rpartition(":")
    if host != socket.gethostname() or not pid.isdigit():
        return True
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
