"""What is wanted is never forgotten, and what is sent is known exactly or known to be unclear."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.ports import Posted
from store.database import Database
from store.slots import Slots

CHANNEL = "C01"


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    database = Database(tmp_path / "x.db")
    yield database
    database.close()


@pytest.fixture
def slots(database: Database) -> Slots:
    return Slots(database)


def want(slots: Slots, text: str = "one", slot: str = "main", now: int = 100, thread_slot: str = "") -> None:
    slots.want("412.1", slot, channel=CHANNEL, text=text, blocks=[], now=now, thread_slot=thread_slot)


def send(slots: Slots, ts: str = "1.0", now: float = 100) -> None:
    row = slots.due(now)[0]
    slots.claim(row)
    slots.sent(row, Posted(row.channel, ts), row.wanted)


def names(slots: Slots, now: float = 1000) -> list[str]:
    return [row.slot for row in slots.due(now)]


def test_wanting_the_same_again_changes_nothing(slots: Slots) -> None:
    want(slots)
    want(slots, now=200)
    (row,) = slots.due(1000)
    assert (row.first_wanted, row.state, row.text, row.blocks) == (100, "new", "one", ())
    send(slots)
    want(slots, now=300)
    assert slots.due(1000) == []


def test_an_edit_is_due_and_an_edit_back_is_not(slots: Slots) -> None:
    want(slots)
    send(slots, "1.0")
    want(slots, "two", now=500)
    (row,) = slots.due(1000)
    assert (row.ts, row.first_wanted, row.posted) == ("1.0", 500, Posted(CHANNEL, "1.0"))
    want(slots, "one", now=600)
    assert slots.due(1000) == []


def test_blocks_count_as_content(slots: Slots) -> None:
    want(slots)
    send(slots)
    slots.want("412.1", "main", channel=CHANNEL, text="one", blocks=[{"type": "divider"}], now=200)
    assert slots.due(1000)[0].blocks == ({"type": "divider"},)


def test_messages_come_before_replies_and_older_before_newer(slots: Slots) -> None:
    for slot, now in (("a", 300), ("b", 200), ("c", 200)):
        want(slots, slot=slot, now=now)
    want(slots, slot="line-1", now=100, thread_slot="b")
    assert names(slots) == ["b", "c", "a"]
    send(slots, "1.0")
    assert names(slots) == ["c", "a", "line-1"]
    assert slots.due(1000)[2].thread == "1.0"


def test_of_a_thread_only_the_next_line_is_due(slots: Slots) -> None:
    want(slots)
    send(slots)
    for number in range(3):
        want(slots, slot=f"line-{number}", thread_slot="main", now=100)
    assert names(slots) == ["line-0"]
    slots.later(slots.due(1000)[0], 2000, "Slack asks to wait")
    assert names(slots) == [], "a later line may not overtake"
    send(slots, "2.0", now=3000)
    assert names(slots) == ["line-1"]


def test_a_line_that_failed_holds_up_nobody(slots: Slots) -> None:
    want(slots)
    send(slots)
    want(slots, slot="line-0", thread_slot="main")
    want(slots, slot="line-1", thread_slot="main")
    slots.failed(slots.due(1000)[0], "no_text")
    assert names(slots) == ["line-1"]
    assert [(row.slot, row.problem) for row in slots.problems()] == [("line-0", "no_text")]


def test_a_reply_goes_where_its_parent_stands(slots: Slots) -> None:
    want(slots)
    send(slots)
    slots.want("412.1", "line", channel="C-new", text="x", now=200, thread_slot="main")
    assert slots.due(1000)[0].channel == CHANNEL


def test_an_edit_while_the_post_is_open_stays_due(slots: Slots) -> None:
    want(slots)
    row = slots.due(1000)[0]
    slots.claim(row)
    want(slots, "two", now=200)
    slots.sent(row, Posted(CHANNEL, "1.0"), row.wanted)
    (row,) = slots.due(1000)
    assert (row.text, row.ts, row.state) == ("two", "1.0", "new")


def test_a_crash_leaves_an_open_call_that_knows_what_it_sent(slots: Slots, database: Database) -> None:
    want(slots)
    first = slots.due(1000)[0]
    slots.claim(first)
    want(slots, "two", now=200)
    (row,) = Slots(database).due(1000)
    assert (row.state, row.sent, row.ts, row.first_wanted) == ("posting", first.wanted, "", 100)
    slots.sent(row, Posted(CHANNEL, "1.0"), row.sent)
    assert slots.due(1000)[0].text == "two"


def test_an_open_edit_that_then_fails_is_still_due(slots: Slots) -> None:
    want(slots)
    send(slots)
    want(slots, "two")
    slots.claim(slots.due(1000)[0])
    (row,) = slots.due(1000)
    assert row.state == "posting"
    slots.later(row, 0, "not now")
    assert names(slots) == ["main"]


def test_what_was_not_there_is_posted(slots: Slots) -> None:
    want(slots)
    slots.claim(slots.due(1000)[0])
    (row,) = slots.due(1000)
    slots.absent(row)
    (row,) = slots.due(1000)
    assert (row.state, row.sent) == ("new", "")


def test_unclear_waits(slots: Slots) -> None:
    want(slots)
    row = slots.due(1000)[0]
    slots.claim(row)
    slots.unclear(row, 1005, "timed out")
    assert slots.due(1004) == []
    assert slots.due(1005)[0].state == "posting"
    assert slots.waiting() == 1


def test_later_keeps_what_stands_there(slots: Slots) -> None:
    want(slots)
    send(slots)
    want(slots, "two")
    row = slots.due(1000)[0]
    slots.claim(row)
    slots.later(row, 1060, "Slack asks to wait")
    assert slots.due(1059) == []
    want(slots, "one")
    assert slots.due(2000) == []
    assert slots.problems() == []


def test_a_deleted_message_is_wanted_anew(slots: Slots) -> None:
    want(slots)
    send(slots)
    want(slots, slot="line", thread_slot="main")
    want(slots, "two")
    slots.gone(slots.due(1000)[0])
    (row,) = slots.due(1000)
    assert (row.slot, row.ts, row.reposts) == ("main", "", 1)


def test_failed_is_tried_again_only_with_other_content(slots: Slots) -> None:
    want(slots)
    slots.failed(slots.due(1000)[0], "invalid_blocks")
    want(slots, now=200)
    assert slots.due(1000) == []
    want(slots, "two", now=300)
    (row,) = slots.due(1000)
    assert (row.state, row.problem, row.first_wanted) == ("new", "", 300)


def test_another_channel_in_the_site_file_is_tried_at_once(slots: Slots) -> None:
    want(slots)
    slots.later(slots.due(1000)[0], 1300, "channel_not_found")
    slots.want("412.1", "main", channel="C02", text="one", now=1000)
    assert slots.due(1000)[0].channel == "C02"


def test_channels_may_be_left_out_but_not_whispers(slots: Slots) -> None:
    want(slots)
    slots.want("412.1", "other", channel="C02", text="x", now=200)
    slots.want("r7", "answer", channel=CHANNEL, text="done", now=300, whisper_to="U01", response_url="http://x")
    rows = slots.due(1000, without=[CHANNEL])
    assert [(row.tag, row.slot) for row in rows] == [("412.1", "other"), ("r7", "answer")]
    assert (rows[1].whisper_to, rows[1].response_url, rows[1].thread) == ("U01", "http://x", "")


def test_a_whisper_may_name_a_thread(slots: Slots) -> None:
    slots.want("r7", "answer", channel=CHANNEL, text="done", now=1, whisper_to="U01", thread="9.0")
    assert slots.due(1000)[0].thread == "9.0"


def test_messages_lead_back_to_slots(slots: Slots) -> None:
    want(slots)
    assert slots.ts("412.1", "main") == ""
    send(slots, "1.0")
    assert slots.ts("412.1", "main") == "1.0"
    assert slots.by_message(CHANNEL, "1.0") == ("412.1", "main")
    assert slots.by_message(CHANNEL, "2.0") is None
    assert slots.ts("413.1", "main") == ""


def test_the_limit_is_kept(slots: Slots) -> None:
    for number in range(10):
        want(slots, slot=f"m{number}")
    assert len(slots.due(1000, limit=3)) == 3


def test_a_message_that_changes_all_the_time_does_not_starve_its_thread(slots: Slots) -> None:
    want(slots)
    send(slots)
    want(slots, "line", "story-1", now=200, thread_slot="main")
    want(slots, "changed", now=300)
    assert names(slots) == ["story-1", "main"]
