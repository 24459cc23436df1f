"""What arrives over HTTP: alerts by their firing, and the markers of saves. Operational state, not part of the log."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence

from bot.alerts import STALE_AFTER, Alert
from bot.markers import Marker
from store.database import Database

KEEP = 7 * 86_400  # s after the last word of an alert; as long as the store keeps ended documents in memory
KEEP_MARKERS = 30 * 86_400  # s; far longer than any run goes without a save
# Two Alertmanagers of one cluster tell the same twice, the later one up to 15 s and a retry later (alertmanager 3865):
# a firing that comes so soon after the same firing's end is old news.
LATE = 60

_TOLD = """
    insert into alerts (fingerprint, starts, ends, labels, annotations, first, told, cut)
    values (:fingerprint, :starts, :ends, :labels, :annotations, :now, :now, :cut)
    on conflict (fingerprint, starts) do update set
        ends = excluded.ends, labels = excluded.labels, annotations = excluded.annotations, cut = excluded.cut,
        told = excluded.told
    where excluded.ends is not null or ends is null or told < excluded.told - :late
"""
# The same alert can fire once at a time: a newer firing ends the one before, if nobody told us that it had ended.
_FOLLOWED = """
    update alerts as a set ends = (
        select min(b.starts) from alerts b where b.fingerprint = a.fingerprint and b.starts > a.starts)
    where fingerprint = :fingerprint and ends is null
        and exists (select 1 from alerts b where b.fingerprint = a.fingerprint and b.starts > a.starts)
"""
_FIRED = """
    select * from alerts where coalesce(ends, told + :stale) > :since and min(starts, first) <= :until
    order by starts, fingerprint
"""


class Inbound:
    """Any thread may write and read."""

    def __init__(self, database: Database) -> None:
        self._database = database

    # -- alerts ----------------------------------------------------------------------------------

    def tell(self, alerts: Sequence[Alert], now: int) -> None:
        """All or none. Told twice, it is one; what the last word says holds."""
        with self._database.write() as connection:
            for alert in alerts:
                values = _alert_values(alert, now)
                connection.execute(_TOLD, values)
                connection.execute(_FOLLOWED, values)
            connection.execute("delete from alerts where told < ?", (now - KEEP,))

    def alerts(self, since: int, until: int) -> list[Alert]:
        """Those that fired at some time between the two, oldest first."""
        with self._database.read() as connection:
            values = {"since": since, "until": until, "stale": STALE_AFTER}
            return [_alert(row) for row in connection.execute(_FIRED, values)]

    # -- markers ---------------------------------------------------------------------------------

    def push(self, marker: Marker) -> bool:
        """False: the same marker was there already (every rank of a job may send it)."""
        with self._database.write() as connection:
            connection.execute("delete from pushed_checkpoints where at < ?", (marker.at - KEEP_MARKERS,))
            done = connection.execute(
                "insert or ignore into pushed_checkpoints (at, job, session, step, started, completed, bytes, path)"
                " values (?, ?, ?, ?, ?, ?, ?, ?)",
                (marker.at, marker.job, marker.session, marker.step, marker.started, marker.completed)
                + (marker.bytes, marker.path),
            )
            return done.rowcount > 0

    def markers(self, names: Collection[str], since: int = 0) -> list[Marker]:
        """Those that name one of these as their job or session and came since then, in the order they came."""
        with self._database.read() as connection:
            rows = connection.execute(
                "select * from pushed_checkpoints where at >= :since and (job in (select value from json_each(:names))"
                " or session in (select value from json_each(:names))) order by id",
                {"since": since, "names": json.dumps(sorted(set(names) - {""}))},
            )
            return [_marker(row) for row in rows]


def _alert_values(alert: Alert, now: int) -> dict[str, object]:
    return {
        "fingerprint": alert.fingerprint,
        "starts": alert.starts,
        "ends": alert.ends,
        "labels": json.dumps(dict(alert.labels), sort_keys=True),
        "annotations": json.dumps(dict(alert.annotations), sort_keys=True),
        "cut": alert.cut,
        "now": now,
        "late": LATE,
    }


def _alert(row: sqlite3.Row) -> Alert:
    values = dict(row)
    return Alert(**{**values, "labels": json.loads(values["labels"]), "annotations": json.loads(values["annotations"])})


def _marker(row: sqlite3.Row) -> Marker:
    return Marker(**{name: value for name, value in dict(row).items() if name != "id"})
