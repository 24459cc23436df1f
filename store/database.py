"""One SQLite file: one locked writer connection, read-only connections for everything that looks.

A path-opened connection refuses other threads and an unlocked shared one loses writes, so the writer is shared under
one lock and every write begins IMMEDIATE (a deferred one fails at once when another process commits in between).
"""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlite_utils

from bot.errors import StoreError
from store.migrations import migrations

BUSY_MS = 10_000
NETWORK_FILESYSTEMS = frozenset({"nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "beegfs", "fuse.sshfs", "9p", "ceph"})


class Database:
    """Opens (and migrates) the file. Raises StoreError where SQLite would lose data or cannot be used.

    durable=False: for a database that is thrown away; what was committed may be lost with the machine.
    """

    def __init__(self, path: Path | str, *, durable: bool = True) -> None:
        self.path = Path(path)
        _refuse_network_filesystem(self.path)
        self._lock = threading.RLock()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._connection = sqlite3.connect(
                self.path, check_same_thread=False, isolation_level=None, timeout=BUSY_MS / 1000
            )
            self._connection.row_factory = sqlite3.Row
            self._connection.execute("pragma journal_mode=wal")
            self._connection.execute(f"pragma synchronous={'full' if durable else 'off'}")
            with self._lock:
                migrations.apply(sqlite_utils.Database(self._connection))
        except (sqlite3.Error, OSError) as error:
            raise StoreError(f"{self.path}: cannot be opened as a database: {error}") from error

    @contextmanager
    def write(self) -> Iterator[sqlite3.Connection]:
        """One transaction: all of it or none. The commit may fail too (a full disk), and of some errors SQLite has
        rolled back already: either way the next transaction finds none open."""
        with self._lock:
            self._connection.execute("begin immediate")
            try:
                yield self._connection
                self._connection.execute("commit")
            except BaseException:
                if self._connection.in_transaction:
                    self._connection.execute("rollback")
                raise

    @contextmanager
    def read(self) -> Iterator[sqlite3.Connection]:
        """A connection that cannot write, for one look."""
        connection = connect_read_only(self.path)
        try:
            yield connection
        finally:
            connection.close()

    def close(self) -> None:
        with self._lock:
            self._connection.close()


def connect_read_only(path: Path) -> sqlite3.Connection:
    try:
        connection = sqlite3.connect(
            f"file:{path.resolve()}?mode=ro", uri=True, isolation_level=None, timeout=BUSY_MS / 1000
        )
    except sqlite3.Error as error:
        raise StoreError(f"{path}: cannot be read: {error}", "has xidbot run here, and may you read it?") from error
    connection.row_factory = sqlite3.Row
    return connection


def _refuse_network_filesystem(path: Path) -> None:
    """WAL needs shared memory: on a network filesystem a second host corrupts the file (cases S40)."""
    kind = _filesystem(path)
    if kind in NETWORK_FILESYSTEMS:
        raise StoreError(f"{path} lies on {kind}", "put site.database on a local disk: SQLite is not safe there")


def _filesystem(path: Path, mounts: Path = Path("/proc/self/mounts")) -> str:
    """Type of the filesystem that holds the path; empty where the system does not tell."""
    target = os.path.realpath(path)
    best, kind = "", ""
    try:
        lines = mounts.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return ""
    for line in lines:
        _, point, fstype, *_ = line.split(" ")
        point = point.encode().decode("unicode_escape")
        inside = target == point or target.startswith(point.rstrip("/") + "/")
        if inside and len(point) >= len(best):
            best, kind = point, fstype
    return kind
