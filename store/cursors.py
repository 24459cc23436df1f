"""Where readers of logs were, by name. Operational state: not part of the log, and not rebuilt."""

from __future__ import annotations

from store.database import Database


class Cursors:
    """Any thread may read and write."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, name: str) -> str | None:
        """None: nothing was ever kept under this name."""
        with self._database.read() as connection:
            found = connection.execute("select value from cursors where name = ?", (name,)).fetchone()
        return str(found["value"]) if found else None

    def put(self, name: str, value: str) -> None:
        with self._database.write() as connection:
            connection.execute("insert or replace into cursors (name, value) values (?, ?)", (name, value))
