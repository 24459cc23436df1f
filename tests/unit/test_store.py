"""The log is the truth: append-only, atomic, one writer, rebuilt to the same."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from bot import events as ev
from bot.errors import LeaseHeld, StoreError
from bot.model import Answer, Hold, Request
from bot.state import KINDS, PROJECT
from store import database
from store.codec import load_event
from store.store import Store, check


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(tmp_path / "x.db")
    yield made
    made.close()


HOLD = Hold("node-17", "1.1", "Xid 79", "U1", 100, 200)


def test_every_event_has_a_projection_and_a_default_for_nothing() -> None:
    assert set(PROJECT) == set(ev.EVENTS.values())
    assert all(f.default is MISSING for f in fields(ev.Event))


def test_events_and_projections_are_written_together(store: Store) -> None:
    store.append([ev.NodeHeld(100, HOLD)])
    assert store.state().our_holds() == [HOLD]
    with pytest.raises(KeyError):
        store.append([ev.Paused(101, "U1", "x"), ev.ActionEnded(101, "no:such:key:-", "done")])
    assert store.state().meta.paused_by == ""
    assert [type(e).__name__ for _, e in store.events()] == ["NodeHeld"]
    assert check(store.database.path) == []


def test_a_new_process_finds_the_same_state(store: Store) -> None:
    store.append([ev.NodeHeld(100, HOLD), ev.Paused(101, "U1", "x")])
    again = Store.open(store.database.path)
    assert again.state().our_holds() == [HOLD]
    assert again.state().meta.paused_by == "U1"
    again.close()


def test_the_log_cannot_be_changed(store: Store) -> None:
    store.append([ev.Paused(1, "U1", "x")])
    for statement in ("update events set at = 2", "delete from events"):
        with pytest.raises(sqlite3.IntegrityError, match="append-only"), store.database.write() as connection:
            connection.execute(statement)


def test_rebuild_finds_and_mends_what_was_tampered_with(store: Store) -> None:
    store.append([ev.NodeHeld(100, HOLD)])
    with store.database.write() as connection:
        connection.execute("update docs set body = replace(body, 'Xid 79', 'Xid 31')")
    assert check(store.database.path) == ["hold node-17@1.1: differs"]
    assert store.rebuild() == ["hold node-17@1.1: differs"]
    assert check(store.database.path) == []


def test_a_second_writer_is_refused_while_the_first_lives(store: Store, tmp_path: Path) -> None:
    store.take_lease()
    code = (
        "import sys; from store.store import Store; s = Store.open(sys.argv[1])\n"
        "try:\n s.take_lease()\nexcept Exception as e: print(type(e).__name__)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code, str(store.database.path)], capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == "LeaseHeld"


def test_a_lease_ends_with_its_time_or_its_process(store: Store) -> None:
    store.take_lease(now=1000)
    other = Store.open(store.database.path)
    other.holder = "elsewhere:1"
    with pytest.raises(LeaseHeld):
        other.take_lease(now=1050)
    other.take_lease(now=1061)
    other.holder = store.holder.replace(store.holder.split(":")[1], "999999999")
    other.take_lease(now=1122)
    store.take_lease(now=1123)  # the process 999999999 of this host does not exist
    other.close()


def test_a_request_delivered_twice_is_one(store: Store) -> None:
    one = Request("retry x", "U1", 1, dedupe="T1")
    assert store.ask(one) == store.ask(one)
    assert store.ask(Request("retry x", "U1", 1)) != store.ask(Request("retry x", "U1", 1))
    assert len(store.inbox()) == 3
    first = store.inbox()[0]
    store.append([ev.RequestAnswered(2, Answer(first.id, "U1", first.text, "done", True, 2))])
    assert first not in store.inbox()
    assert store.answer(first.id) is not None


def test_many_threads_lose_nothing(store: Store) -> None:
    def write(n: int) -> None:
        for i in range(20):
            store.append([ev.Paused(n * 100 + i, f"U{n}", "x")])
            store.ask(Request("help", f"U{n}", i))

    threads = [threading.Thread(target=write, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store.events()) == 160
    assert len(store.inbox()) == 160


def test_a_transaction_that_cannot_be_committed_leaves_none_open(store: Store) -> None:
    store.database._connection.execute("pragma foreign_keys = on")
    with store.database.write() as connection:
        connection.execute("create table child (p references parent (id) deferrable initially deferred)")
        connection.execute("create table parent (id integer primary key)")
    with pytest.raises(sqlite3.IntegrityError, match="FOREIGN KEY"), store.database.write() as connection:
        connection.execute("insert into child values (7)")
    store.append([ev.Paused(1, "U1", "x")])
    assert store.state().meta.paused_by == "U1"


def test_what_sqlite_has_rolled_back_itself_keeps_its_own_error(store: Store) -> None:
    store.set_cursor("a", "1")
    with pytest.raises(sqlite3.IntegrityError, match="UNIQUE"), store.database.write() as connection:
        connection.execute("insert or rollback into cursors (name, value) values ('a', '2')")
    assert store.cursor("a") == "1"


def test_readers_cannot_write(store: Store) -> None:
    with store.database.read() as connection, pytest.raises(sqlite3.OperationalError, match="readonly"):
        connection.execute("delete from docs")


def test_a_network_filesystem_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/x / ext4 rw 0 0\nnas:/x {tmp_path}/nas nfs4 rw 0 0\n")
    assert database._filesystem(tmp_path / "nas" / "x.db", mounts) == "nfs4"
    assert database._filesystem(tmp_path / "x.db", mounts) == "ext4"
    monkeypatch.setattr(database, "_filesystem", lambda path: "nfs4")
    with pytest.raises(StoreError, match="local disk"):
        Store.open(tmp_path / "x.db")


def test_an_event_of_a_newer_version_is_named() -> None:
    with pytest.raises(StoreError, match="unknown event 'Teleported'"):
        load_event("Teleported", 9, "{}")


def test_every_kind_of_document_has_its_own_class() -> None:
    assert len({kind.cls for kind in KINDS}) == len({kind.name for kind in KINDS}) == len(KINDS)
