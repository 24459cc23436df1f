"""What is drawn is what was counted; and the pictures come to where they belong, once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from matplotlib.collections import PathCollection
from matplotlib.dates import date2num

from bot import events as ev
from bot.cli import main
from bot.digest import digest, read_digest
from bot.digest_post import LOOK_AFTER
from bot.digest_records import Records
from bot.errors import NoAnswer, Rejected
from bot.model import (
    Answer,
    Attempt,
    Incident,
    KnownSave,
    Measures,
    Request,
    SaveHistory,
    Session,
    Stall,
    StoragePoint,
)
from bot.storage_charts import durations_over_time, last_hour, saves_chart, stall_chart
from bot.storage_post import Pictures, post_pictures
from bot.weeks import week_at
from store.slots import Slots
from store.store import Store, check

T = 1_800_000_000
RUN = Session("c/123@1", "session-123", "c", ("123",), "llm", "u", "xidbot", 1, gpus=64)
PNG = b"\x89PNG\r\n\x1a\n"


def save(i: int, seconds: int | None, **facts: Any) -> KnownSave:
    end = T + 1800 * i
    start = None if seconds is None else end - seconds
    given: dict[str, Any] = {"completed": True, "sources": ("trainer",), "number": i}
    return KnownSave(start, end, i, **(given | facts))


SAVES = (
    save(1, 120),
    save(2, 240),
    save(3, 1200, slow=True),
    save(4, None),
    save(5, 180, sources=("counters",), completed=False),
)
TRACE = tuple(
    StoragePoint(T + 60 * i, 40e9 - 1e9 * i, None if i == 3 else 0.5 + 0.05 * i, 10.0 * i) for i in range(10) if i != 6
)
STALL = Stall("nas:/ckpt", "slow_save", "client_slots", T + 300, measures=Measures(slots=128), trace=TRACE)


def _at(number: float) -> int:
    return round((number - float(date2num(datetime(1970, 1, 1, tzinfo=UTC)))) * 86_400)


def test_a_dot_per_save_stands_where_it_took_as_long() -> None:
    axes = durations_over_time(RUN, SaveHistory(RUN.key, SAVES), "Asia/Seoul").axes[0]
    dots = {
        str(c.get_label()): [(_at(x), round(y * 60)) for x, y in np.asarray(c.get_offsets())]
        for c in axes.collections
        if isinstance(c, PathCollection)
    }
    assert dots == {
        "whole": [(T + 1800, 120), (T + 3600, 240)],
        "stalled": [(T + 5400, 1200)],
        "not known whole": [(T + 9000, 180)],
    }
    assert [line.get_label() for line in axes.lines] == ["median 3:30 min", "p90 15:12 min"]
    assert axes.get_ylabel() == "minutes"


def test_without_a_duration_it_says_so() -> None:
    figure = durations_over_time(RUN, SaveHistory(RUN.key, SAVES[3:4]), "UTC")
    assert "no save with a start and an end" in figure.axes[0].texts[0].get_text()
    assert saves_chart(RUN, SaveHistory(RUN.key), "UTC").startswith(PNG)


def test_the_hour_of_a_stall_shows_the_three_numbers_and_where_nothing_is_known() -> None:
    rate, queue, flight = last_hour(STALL, "Asia/Seoul").axes
    assert [a.get_title(loc="left") for a in (rate, queue, flight)] == [
        "throughput, GB/s",
        "queue share, %",
        "in flight a node",
    ]
    y = np.asarray(rate.lines[0].get_ydata(), dtype=float)
    assert y[:6].tolist() == [40, 39, 38, 37, 36, 35] and y[-3:].tolist() == [33, 32, 31]
    assert np.isnan(np.asarray(queue.lines[0].get_ydata(), dtype=float)).tolist().count(True) == 1
    assert _at(np.asarray(rate.lines[0].get_xdata(orig=False), dtype=float)[0]) == T + 30
    assert [float(v) for v in np.asarray(flight.lines[1].get_ydata())] == [128, 128]
    assert "128 slots" in flight.texts[0].get_text()
    assert stall_chart(STALL, "UTC").startswith(PNG)


def test_a_long_time_without_a_sample_breaks_the_line() -> None:
    far = (*TRACE[:2], replace(TRACE[2], at=T + 1200))
    y = np.asarray(last_hour(replace(STALL, trace=far), "UTC").axes[0].lines[0].get_ydata(), dtype=float)
    assert np.isnan(y).tolist() == [False, False, True, False]


def test_what_nobody_measures_is_said() -> None:
    blind = tuple(replace(p, queue_share=None, in_flight=None) for p in TRACE)
    axes = last_hour(replace(STALL, trace=blind), "UTC").axes
    assert [a.texts[0].get_text() for a in axes[1:]] == ["not measured"] * 2


# -- into Slack --------------------------------------------------------------------------------------------------------


@dataclass
class FakeFiles:
    shown: list[tuple[str, str, list[str]]] = field(default_factory=list)
    bodies: list[bytes] = field(default_factory=list)
    faults: list[tuple[BaseException, bool]] = field(default_factory=list)

    def upload(self, channel: str, thread: str, files: Any) -> None:
        error, after = self.faults.pop(0) if self.faults else (None, True)
        if error is None or after:
            self.shown.append((channel, thread, [name for name, _, _ in files]))
            self.bodies += [body for _, _, body in files]
        if error is not None:
            raise error

    def find(self, channel: str, thread: str, names: Any) -> bool:
        return any(set(names) <= set(shown) for c, t, shown in self.shown if (c, t) == (channel, thread))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(tmp_path / "x.db")
    run = replace(RUN, attempts=(Attempt("123", 0, "RUNNING", ("node-01",), T),))
    made.append([ev.SessionSeen(T, run), *(ev.SaveSeen(s.at, RUN.key, s, 200) for s in SAVES)])
    yield made
    made.close()


class Desk:
    def __init__(self, store: Store) -> None:
        self.store, self.files, self.now = store, FakeFiles(), T + 600
        self.pictures = Pictures(store, Slots(store.database), "UTC", "C01", self.files)

    def stands(self, tag: str) -> None:
        """The incident's message is in the channel."""
        slots = self.pictures.slots
        slots.want(tag, "main", channel="C01", text="x", blocks=[{"type": "divider"}], now=self.now)
        with self.store.database.write() as connection:
            connection.execute("update slots set ts = '7.7' where tag = ?", (tag,))

    def rounds(self, count: int = 1) -> list[tuple[str, str, list[str]]]:
        for _ in range(count):
            post_pictures(self.pictures, self.store.state(), self.now)
            self.now += LOOK_AFTER
        return self.files.shown


def opened(store: Store, stall: Stall = STALL) -> None:
    store.append(
        [ev.IncidentOpened(T + 330, Incident(1, 1, "checkpoint_stall", stall.export, T + 330, stall=stall), "p")]
    )


def test_a_stall_is_shown_in_its_thread_once_when_it_opens_and_once_when_it_ends(store: Store) -> None:
    desk = Desk(store)
    opened(store)
    assert desk.rounds() == []  # its message does not stand yet
    desk.stands("1.1")
    assert desk.rounds(3) == [("C01", "7.7", ["storage-1.1-open.png"])]
    store.append([ev.StallChanged(T + 900, 1, 1, replace(STALL, ended=T + 880), ())])
    assert desk.rounds(3)[1:] == [("C01", "7.7", [f"storage-1.1-ended-{T + 880}.png"])]
    assert all(body.startswith(PNG) for body in desk.files.bodies)
    assert check(store.database.path) == []


def test_a_stall_without_a_trace_has_no_picture(store: Store) -> None:
    desk = Desk(store)
    opened(store, replace(STALL, trace=()))
    desk.stands("1.1")
    assert desk.rounds(2) == []


@pytest.mark.parametrize("after", [True, False])
def test_an_unclear_upload_is_looked_for_before_it_is_repeated(store: Store, after: bool) -> None:
    desk = Desk(store)
    desk.files.faults = [(NoAnswer("slack", "gone"), after)]
    opened(store)
    desk.stands("1.1")
    assert desk.rounds(4) == [("C01", "7.7", ["storage-1.1-open.png"])]


def test_a_slack_that_refuses_it_is_asked_once(store: Store) -> None:
    desk = Desk(store)
    desk.files.faults = [(Rejected("slack", "no", "missing_scope"), False)] * 9
    opened(store)
    desk.stands("1.1")
    assert desk.rounds(4) == []
    assert len(desk.files.faults) == 8


def asked(store: Store, text: str, channel: str = "C07", thread: str = "") -> None:
    number = store.ask(Request(text, "U1", T, "slack", channel=channel, thread=thread))
    store.append([ev.RequestAnswered(T, Answer(number, "U1", text, "…", True, T + 500, "slack"))])


def test_who_asks_for_checkpoints_gets_the_picture_where_it_was_asked_and_once(store: Store) -> None:
    desk = Desk(store)
    asked(store, "checkpoints session-123")
    asked(store, "Checkpoints 123", thread="5.5")
    asked(store, "incidents")
    asked(store, "checkpoints session-9")
    assert desk.rounds(3) == [("C07", "", ["saves-session-123.png"]), ("C07", "5.5", ["saves-session-123.png"])]


def test_a_picture_outside_a_thread_cannot_be_looked_for_and_is_not_sent_twice(store: Store) -> None:
    desk = Desk(store)
    desk.files.faults = [(NoAnswer("slack", "gone"), True)]
    asked(store, "checkpoints session-123")
    assert len(desk.rounds(4)) == 1


# -- on the command line -----------------------------------------------------------------------------------------------


def ask(store: Store, *words: str) -> Any:
    return CliRunner().invoke(main, ["--db", str(store.database.path), "checkpoints", *words])


def test_the_command_line_prints_the_table_and_draws_the_picture(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "saves.png"
    before = store.database.path.read_bytes()
    found = ask(store, "session-123", "--png", str(target))
    assert found.exit_code == 0, found.output
    assert "5 saves known" in found.output and "trainer" in found.output
    assert target.read_bytes().startswith(PNG)
    assert store.database.path.read_bytes() == before


def test_a_run_that_is_not_known_names_the_nearest(store: Store) -> None:
    found = ask(store, "session-132")
    assert found.exit_code == 2
    assert "did you mean session-123?" in found.output


def test_a_picture_that_cannot_be_written_says_where(store: Store) -> None:
    found = ask(store, "session-123", "--png", "/nowhere/at/all.png")
    assert found.exit_code == 2
    assert "/nowhere/at/all.png: cannot be written" in found.output


# -- the digest --------------------------------------------------------------------------------------------------------


def test_a_week_counts_its_saves_and_stalls_from_the_log(store: Store) -> None:
    over = replace(STALL, ended=T + 1200, beyond=((RUN.key, 900),), measures=Measures(link_use=0.03))
    opened(store, over)
    week = week_at(T, "UTC")
    told = read_digest(store.database.path, week, T + 86_400).as_json()["storage"]
    assert (told["saves"], told["median_s"], told["p90_s"]) == (5, 210.0, 912.0)
    assert told["runs"] == {"session-123": {"saves": 5, "median_s": 210.0, "p90_s": 912.0}}
    assert told["stalls"] == {"client_slots": 1}
    assert told["link_use"] == {"least": 0.03, "most": 0.03}
    assert told["gpu_hours_idle"] == 16.0
    later = read_digest(store.database.path, week.moved(1), T + 86_400).as_json()["storage"]
    assert (later["saves"], later["runs"], later["stalls"]) == (None, {"session-123": None}, {})


def test_a_save_known_better_later_or_part_of_another_counts_once(store: Store) -> None:
    store.append([ev.SaveSeen(T + 9100, RUN.key, save(1, 130), 200, gone=(2,))])
    told = read_digest(store.database.path, week_at(T, "UTC"), T + 86_400).storage
    assert told.saves == 4


def test_a_week_without_anything_is_not_measured() -> None:
    week = week_at(T, "UTC")
    told = digest(Records(), week, week.due).as_json()["storage"]
    assert told["saves"] is None and told["link_use"] is None and told["stalls"] == {}
