"""The tables, as named steps that are applied once, in order.

events is the truth. docs holds the projections (rebuilt from events by `xidbot rebuild`). Everything else is
operational: inbox, slots, leases and cursors are not rebuilt.
"""

from __future__ import annotations

from sqlite_utils import Database, Migrations

migrations = Migrations("xidbot")


@migrations()
def m001_initial(db: Database) -> None:
    statements = (
        """create table events (
            id integer primary key autoincrement, at integer not null, recorded real not null,
            type text not null, version integer not null, body text not null)""",
        "create index events_at on events(at)",
        "create index events_type on events(type, at)",
        """create trigger events_append_only_update before update on events
            begin select raise(abort, 'events are append-only'); end""",
        """create trigger events_append_only_delete before delete on events
            begin select raise(abort, 'events are append-only'); end""",
        """create table docs (
            kind text not null, id text not null, live integer not null, at integer not null, body text not null,
            primary key (kind, id)) without rowid""",
        "create index docs_live on docs(kind, live, at)",
        """create table inbox (
            id integer primary key autoincrement, dedupe text unique, at integer not null, source text not null,
            user text not null, text text not null, channel text not null, thread text not null,
            response_url text not null, answered integer not null default 0)""",
        """create table slots (
            tag text not null, slot text not null, channel text not null, thread_slot text not null default '',
            whisper_to text not null default '', response_url text not null default '',
            thread text not null default '', text text not null, blocks text not null, wanted text not null,
            sent text not null default '', state text not null default 'new', ts text not null default '',
            sent_channel text not null default '', tries integer not null default 0,
            not_before real not null default 0, first_wanted integer not null, problem text not null default '',
            seq integer not null default 0, reposts integer not null default 0,
            primary key (tag, slot)) without rowid""",
        "create index slots_due on slots(state, not_before)",
        "create index slots_seq on slots(seq)",
        "create index slots_message on slots(sent_channel, ts)",
        "create table leases (name text primary key, holder text not null, until real not null) without rowid",
        "create table cursors (name text primary key, value text not null) without rowid",
    )
    for statement in statements:
        db.conn.execute(statement)


@migrations()
def m002_inbound(db: Database) -> None:
    """What comes over HTTP: alerts by their firing, and markers. What a marker leaves out is null, and no null equals
    another."""
    statements = (
        """create table alerts (
            fingerprint text not null, starts integer not null, ends integer, labels text not null,
            annotations text not null, first integer not null, told integer not null, cut integer not null default 0,
            primary key (fingerprint, starts)) without rowid""",
        """create table pushed_checkpoints (
            id integer primary key autoincrement, at integer not null, job text not null, session text not null,
            step integer, started integer, completed integer, bytes integer, path text not null default '')""",
        """create unique index pushed_checkpoints_once on pushed_checkpoints(
            job, session, ifnull(step, -1), ifnull(started, -1), ifnull(completed, -1))""",
        "create index pushed_checkpoints_session on pushed_checkpoints(session)",
    )
    for statement in statements:
        db.conn.execute(statement)
