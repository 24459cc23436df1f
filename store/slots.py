"""Message slots: what each place in Slack should show, and what it shows as far as we know.

A slot is (tag, slot): `412.1`/`main`, `412.1`/`story-3`, `r7`/`answer`. States:

    new       due: never sent, or edited since
    posting   a call was begun and its outcome is not known; also what a crash leaves behind
    sent      as wanted
    failed    given up, with the problem; tried again only when something else is wanted

`sent` is the hash of what was last put out; in `posting` it is what may be out.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Literal

from bot.ports import Posted
from store.database import Database

SlotState = Literal["new", "posting", "sent", "failed"]
Block = dict[str, object]


@dataclass(frozen=True, slots=True)
class SlotRow:
    """One slot as it stood when it was read. channel: where to send it (a reply's is its parent's).

    ts: its message, empty until known. thread: ts of the message it replies to. first_wanted: since when it is due.
    """

    tag: str
    slot: str
    channel: str
    text: str
    blocks: tuple[Block, ...]
    wanted: str
    sent: str
    state: SlotState
    ts: str
    thread: str
    whisper_to: str
    response_url: str
    tries: int
    reposts: int
    not_before: float
    first_wanted: int
    problem: str

    @property
    def block_id(self) -> str:
        """What its message is found again by."""
        return f"{self.tag}.{self.slot}"

    @property
    def shown(self) -> str:
        """Hash of what surely stands there; empty when a call is open, because then nobody knows."""
        return "" if self.state == "posting" else self.sent

    @property
    def posted(self) -> Posted:
        return Posted(self.channel, self.ts)


_UPSERT = """
    insert into slots (tag, slot, channel, thread_slot, whisper_to, response_url, thread, text, blocks, wanted,
        first_wanted, seq)
    values (:tag, :slot, :channel, :thread_slot, :whisper_to, :response_url, :thread, :text, :blocks, :wanted,
        :now, (select coalesce(max(seq), 0) + 1 from slots))
    on conflict (tag, slot) do update set
        channel = excluded.channel, text = excluded.text, blocks = excluded.blocks, wanted = excluded.wanted,
        response_url = excluded.response_url, thread = excluded.thread,
        state = case when state = 'posting' then state when excluded.wanted = sent then 'sent' else 'new' end,
        first_wanted = case when state in ('sent', 'failed') then excluded.first_wanted else first_wanted end,
        not_before = case when state = 'failed' or channel <> excluded.channel then 0 else not_before end,
        tries = case when state = 'failed' then 0 else tries end,
        problem = case when state = 'failed' or excluded.wanted = sent then '' else problem end
    where wanted <> excluded.wanted or channel <> excluded.channel
"""

# A reply goes where its parent stands, which is not where new messages go once the site file names another channel.
_ROWS = """
    select s.tag, s.slot, s.text, s.blocks, s.wanted, s.sent, s.state, s.ts, s.whisper_to, s.response_url,
        s.tries, s.reposts, s.not_before, s.first_wanted, s.problem,
        coalesce(p.ts, s.thread) as thread,
        case when s.ts <> '' then s.sent_channel else coalesce(nullif(p.sent_channel, ''), s.channel) end as channel
    from slots s left join slots p on s.thread_slot <> '' and p.tag = s.tag and p.slot = s.thread_slot
"""

_DUE = f"""
    select * from ({_ROWS}
        where s.state in ('new', 'posting') and s.not_before <= :now
            and (s.thread_slot = '' or p.ts <> '')
            and not (s.thread_slot <> '' and s.ts = '' and exists (
                select 1 from slots e
                where e.tag = s.tag and e.thread_slot = s.thread_slot and e.seq < s.seq and e.ts = ''
                    and e.state in ('new', 'posting')))
        order by s.thread_slot <> '' or s.ts <> '', s.first_wanted, s.seq)
    where whisper_to <> '' or channel not in (select value from json_each(:without))
    limit :limit
"""


class Slots:
    """Any thread may want; only the one sender claims and reports."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def want(
        self,
        tag: str,
        slot: str,
        *,
        channel: str,
        text: str,
        blocks: Sequence[Block] = (),
        now: int,
        thread_slot: str = "",
        whisper_to: str = "",
        response_url: str = "",
        thread: str = "",
    ) -> None:
        """The slot should show this. Saying it again changes nothing; only the newest wish is sent.

        thread_slot: it is a reply to that slot's message. whisper_to: only this person sees it, in `thread` if given.
        """
        body = json.dumps(list(blocks), ensure_ascii=False)
        values = {
            "tag": tag, "slot": slot, "channel": channel, "text": text, "blocks": body, "wanted": _hash(text, body),
            "now": now, "thread_slot": thread_slot, "whisper_to": whisper_to, "response_url": response_url,
            "thread": thread,
        }  # fmt: skip
        with self._database.write() as connection:
            connection.execute(_UPSERT, values)

    def due(self, now: float, limit: int = 50, without: Collection[str] = ()) -> list[SlotRow]:
        """What to send now: new messages first, then edits and replies as they became due, so that neither starves the
        other; of each thread only the next new line.

        without: channels that may not be written to at the moment (whispers are not bound by that).
        """
        values = {"now": now, "limit": limit, "without": json.dumps(sorted(without))}
        return self._rows(_DUE, values)

    def claim(self, row: SlotRow) -> None:
        """Written down before Slack is asked, so that a crash leaves a trace."""
        self._set(row, "state = 'posting', sent = :wanted, tries = tries + 1", wanted=row.wanted)

    def sent(self, row: SlotRow, posted: Posted, wanted: str, problem: str = "") -> None:
        """`wanted` (a hash) is out. An edit that came meanwhile stays due. problem: what was lost on the way."""
        self._set(
            row,
            """ts = :ts, sent_channel = :channel, sent = :wanted, tries = 0, not_before = 0, problem = :problem,
            state = case when wanted = :wanted then 'sent' else 'new' end""",
            ts=posted.ts,
            channel=posted.channel,
            wanted=wanted,
            problem=problem,
        )

    def unclear(self, row: SlotRow, not_before: float, problem: str) -> None:
        """It may be out: to be looked up, not sooner than `not_before`."""
        self._set(row, "state = 'posting', not_before = :at, problem = :problem", at=not_before, problem=problem)

    def absent(self, row: SlotRow) -> None:
        """Looked up and not there: it is to be posted."""
        self._set(row, "state = 'new', sent = ''")

    def later(self, row: SlotRow, not_before: float, problem: str) -> None:
        """It did not work; what stood there before still stands, where that is known."""
        self._set(
            row,
            """sent = :sent, not_before = :at, problem = :problem,
            state = case when wanted = :sent then 'sent' else 'new' end""",
            sent=row.shown,
            at=not_before,
            problem=problem,
        )

    def gone(self, row: SlotRow) -> None:
        """Somebody deleted its message: it is to be posted anew, in the same thread."""
        self._set(row, "state = 'new', ts = '', sent_channel = '', sent = '', reposts = reposts + 1")

    def failed(self, row: SlotRow, problem: str) -> None:
        """Given up; kept for `doctor`."""
        self._set(row, "state = 'failed', sent = :sent, problem = :problem", sent=row.shown, problem=problem)

    def ts(self, tag: str, slot: str) -> str:
        """Of its message; empty while there is none that we know of."""
        found = self._one("select ts from slots where tag = ? and slot = ?", (tag, slot))
        return str(found["ts"]) if found else ""

    def by_message(self, channel: str, ts: str) -> tuple[str, str] | None:
        """(tag, slot) of a message."""
        found = self._one("select tag, slot from slots where sent_channel = ? and ts = ?", (channel, ts))
        return (found["tag"], found["slot"]) if found else None

    def problems(self) -> list[SlotRow]:
        """What could not be sent as wanted, oldest first."""
        return self._rows(f"{_ROWS} where s.problem <> '' order by s.seq", {})

    def waiting(self) -> int:
        """How many are not yet as wanted."""
        found = self._one("select count(*) as n from slots where state in ('new', 'posting')", ())
        return int(found["n"]) if found else 0

    def _set(self, row: SlotRow, assignments: str, **values: object) -> None:
        with self._database.write() as connection:
            connection.execute(
                f"update slots set {assignments} where tag = :tag and slot = :slot",
                {"tag": row.tag, "slot": row.slot, **values},
            )

    def _rows(self, query: str, values: dict[str, object]) -> list[SlotRow]:
        with self._database.read() as connection:
            return [_row(found) for found in connection.execute(query, values)]

    def _one(self, query: str, values: tuple[str, ...]) -> sqlite3.Row | None:
        with self._database.read() as connection:
            found: sqlite3.Row | None = connection.execute(query, values).fetchone()
            return found


def _row(found: sqlite3.Row) -> SlotRow:
    values = dict(found)
    return SlotRow(**{**values, "blocks": tuple(json.loads(values["blocks"]))})


def _hash(text: str, blocks: str) -> str:
    return sha256(json.dumps([text, blocks]).encode()).hexdigest()[:16]
