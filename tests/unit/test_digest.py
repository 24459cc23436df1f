"""Weeks as calendars have them, a digest once per week, and figures that are what the log says."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot import events as ev
from bot.compose_digest import advice, comparison, digest_card
from bot.deliver import Deliverer, deliver
from bot.digest import Repeat, digest, due_events, read_digest
from bot.digest_post import LOOK_AFTER, Poster, post_digests
from bot.digest_records import Records, read_records
from bot.errors import NoAnswer, Rejected, StoreError, Unreachable, UsageError
from bot.model import Facts, Hold, Incident, Kind, Link, Observation, Plan, Recovery, Request, Session
from bot.policy import Policy
from bot.ports import Posted
from bot.sender import Sender
from bot.weeks import Week, due_digest, last_week, week_at, week_of
from commands.digest import post
from commands.run import Asked, Services
from store.slots import Slots
from store.store import Store, check
from templates.blocks import card_blocks
from templates.validate import validate
from tests.scenarios.world import World

HOUR, DAY = 3600, 86_400
ZONES = ["Europe/Berlin", "America/Chicago", "Asia/Seoul", "UTC", "Asia/Kolkata", "Australia/Lord_Howe"]


def local(text: str, tz: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp())


# -- weeks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "tz", "start", "hours"),
    [
        ("2026-W48", "UTC", "2026-11-23T00:00", 168),
        ("2026-W13", "Europe/Berlin", "2026-03-23T00:00", 167),
        ("2026-W43", "Europe/Berlin", "2026-10-19T00:00", 169),
        ("2026-W10", "America/Chicago", "2026-03-02T00:00", 167),
        ("2026-W44", "America/Chicago", "2026-10-26T00:00", 169),
        ("2026-w53", "Asia/Seoul", "2026-12-28T00:00", 168),
        ("2027-W01", "Asia/Seoul", "2027-01-04T00:00", 168),
    ],
)
def test_a_week_is_the_calendars_in_the_sites_zone(text: str, tz: str, start: str, hours: int) -> None:
    week = week_of(text, tz)
    assert (week.name, week.start) == (text.upper(), local(start, tz))
    assert week.end - week.start == hours * HOUR
    assert [datetime.fromtimestamp(at, ZoneInfo(tz)).strftime("%a %H:%M") for at in (*week.days, week.due)] == [
        *(f"{day} 00:00" for day in ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun", "Mon")),
        "Mon 09:00",
    ]


@pytest.mark.parametrize("text", ["", "48", "2026-48", "2026-W00", "2027-W53", "2026-W60", "0000-W01", "2026-W48 x"])
def test_what_is_no_week_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(UsageError, match="2026-W48"):
        week_of(text, "UTC")


@given(st.integers(0, 4_000_000_000), st.sampled_from(ZONES))
def test_weeks_follow_one_another_without_gap(at: int, tz: str) -> None:
    week = week_at(at, tz)
    assert week.start <= at < week.end
    assert week.moved(1).start == week.end
    assert week_of(week.name, tz) == week
    assert last_week(at, tz) == week.moved(-1)


# -- once per week --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tz", "monday"),
    [
        ("Europe/Berlin", "2026-03-30"),  # the clock went forward on Sunday
        ("Europe/Berlin", "2026-10-26"),  # and back
        ("America/Chicago", "2026-03-09"),
        ("America/Chicago", "2026-11-02"),
    ],
)
def test_it_is_due_on_the_local_monday_at_nine_whatever_the_clock_did(tz: str, monday: str) -> None:
    nine = local(f"{monday}T09:00", tz)
    week = last_week(nine, tz)
    before = [week.moved(-1).name]
    assert due_digest(before, 0, nine - 1, tz) is None
    assert due_digest(before, 0, nine, tz) == ev.DigestPosted(nine, week.name, late=False)
    assert due_digest([week.name], 0, nine, tz) is None
    assert due_digest([week.name], 0, nine + 6 * DAY, tz) is None


def test_a_missed_monday_is_told_once_and_marked_late() -> None:
    week = week_of("2026-W48", "UTC")
    back = week.due + 2 * DAY
    assert due_digest([], 0, back, "UTC") == ev.DigestPosted(back, "2026-W48", late=True)
    assert due_digest([], 0, back + 14 * DAY, "UTC") == ev.DigestPosted(back + 14 * DAY, "2026-W50", late=True)


def test_a_bot_that_has_just_been_installed_has_nothing_to_tell() -> None:
    week = week_of("2026-W48", "UTC")
    assert due_digest([], None, week.due, "UTC") is None
    assert due_digest([], week.end, week.due, "UTC") is None
    assert due_digest([], week.end - 1, week.due, "UTC") is not None


@given(
    st.sampled_from(ZONES),
    st.integers(1_700_000_000, 1_800_000_000),
    st.lists(st.integers(15, 10 * DAY), min_size=1, max_size=60),
)
def test_never_twice_never_early_whenever_it_looks(tz: str, start: int, gaps: list[int]) -> None:
    posted: dict[str, ev.DigestPosted] = {}
    now = start
    for gap in gaps:
        now += gap
        found = due_digest(posted, start, now, tz)
        if found:
            assert found.week not in posted
            posted[found.week] = found
        for known in posted.values():
            week = week_of(known.week, tz)
            assert week.due <= known.at < week.moved(1).due
            assert known.late == (known.at > week.due + 300)


def test_the_log_remembers_what_was_posted(tmp_path: Path) -> None:
    week = week_of("2026-W48", "Europe/Berlin")
    store = Store.open(tmp_path / "x.db")
    store.append([ev.Paused(week.start, "U1", "x")])
    assert due_events(store, week.due - 1, week.tz) == []
    first = due_events(store, week.due, week.tz)
    assert first == [ev.DigestPosted(week.due, "2026-W48", late=False)]
    store.append(first)
    store.trim(week.due + 30 * DAY)
    store.close()
    again = Store.open(tmp_path / "x.db")
    assert due_events(again, week.due + DAY, week.tz) == []
    assert check(again.database.path) == []
    again.close()


# -- a log made by hand ---------------------------------------------------------------------------

WEEK = week_of("2026-W13", "Europe/Berlin")  # 167 hours


def session(number: int, gpus: int = 480) -> Session:
    return Session(f"c/{number}@1", f"session-{number}", "c", (str(number),), "train", "u", "xidbot", 1, gpus=gpus)


def stop(number: int, at: int, kind: Kind = "gpu_fault", node: str = "node-17", run: int = 123) -> list[ev.Event]:
    incident = Incident(number, 1, kind, node, at, hurt=(session(run).key,))
    started = Recovery(f"{number}.1/{session(run).key}", number, 1, session(run).key, at, f"{run}#0")
    return [ev.IncidentOpened(at, incident, "p"), ev.RecoveryStarted(at, started)]


def back(
    number: int, stopped: int, after: int, origin: Any, *, survived: bool = True, run: int = 123
) -> list[ev.Event]:
    link = Link(f"{run}#{number}", stopped + 60, origin, regained=stopped + after)
    events: list[ev.Event] = [ev.LinkChanged(stopped + after, f"{number}.1/{session(run).key}", link)]
    if survived:
        link = Link(link.attempt, link.started, origin, regained=link.regained, survived=stopped + after + HOUR)
        events.append(ev.LinkChanged(stopped + after + HOUR, f"{number}.1/{session(run).key}", link))
    return events


def ended(number: int, at: int, outcome: str, name: Any, run: int = 123) -> list[ev.Event]:
    return [ev.RecoveryEnded(at, f"{number}.1/{session(run).key}", outcome, "", name)]


def log() -> list[ev.Event]:
    """Three faults of node-17, one failed run, one from before the week and one into the next."""
    s = WEEK.start
    return [
        ev.SessionSeen(s - 2 * DAY, session(123)),
        ev.SessionSeen(s - 2 * DAY, session(456, gpus=16)),
        *stop(1, s - HOUR),  # Sunday 23:00 to Monday 02:00: two of its three hours are this week's
        *back(1, s - HOUR, 3 * HOUR, "auto"),
        *ended(1, s + 3 * HOUR, "survived", "automated"),
        *stop(2, s + 30 * HOUR),
        *back(2, s + 30 * HOUR, 30 * 60, "auto"),
        *ended(2, s + 32 * HOUR, "survived", "automated"),
        *stop(3, s + 47 * HOUR),  # Tuesday 23:00 to Wednesday 01:00
        *back(3, s + 47 * HOUR, 2 * HOUR, "approved"),
        *ended(3, s + 50 * HOUR, "survived", "assisted"),
        *stop(4, s + 70 * HOUR, "session_failed", "session-456", run=456),
        *ended(4, s + 80 * HOUR, "given_up", "manual", run=456),
        *stop(5, WEEK.end - HOUR),  # still down
        ev.NodeHeld(s + 30 * HOUR, Hold("node-17", "2.1", "Xid 79", "xidbot", s + 30 * HOUR, s + 54 * HOUR)),
        ev.NodeReleased(s + 40 * HOUR, "node-17@2.1", "U1", "test passed"),
        ev.NodeHeld(s + 47 * HOUR, Hold("node-17", "3.1", "Xid 79", "xidbot", s + 47 * HOUR, s + 71 * HOUR)),
        *(
            ev.NodeHeld(s + 60 * HOUR, Hold(f"node-2{i}", f"r{i}", "noise", "U2", s + 60 * HOUR, WEEK.end + DAY))
            for i in range(3)
        ),
        ev.PlanReminded(s + 22 * HOUR, "2.1.1", "on call"),
        ev.PlanReminded(s + 36 * HOUR, "2.1.1", "secondary"),
    ]


def plan() -> ev.Event:
    facts = Facts("c/123@1", "123#0", "u", "xidbot", (), (), None, None, ())
    return ev.PlanProposed(WEEK.start - DAY, Plan("2.1.1", 2, 1, "x", "c/123@1", "approve", (), facts, WEEK.start), "p")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store.open(tmp_path / "x.db")
    made.append([plan(), *log()])
    yield made
    made.close()


def test_the_figures_are_those_of_the_log(store: Store) -> None:
    told = read_digest(store.database.path, WEEK, WEEK.due).as_json()
    assert told["week"] == "2026-W13"
    assert told["kinds"] == {"gpu_fault": 3, "session_failed": 1}
    counts = {name: (c["chains"], c["attempts"], c["regained"], c["survived"]) for name, c in told["classes"].items()}
    assert {name: c for name, c in counts.items() if c[0]} == {
        "automated": (1, 1, 1, 1),
        "assisted": (1, 1, 1, 1),
        "manual": (1, 0, 0, 0),
        "open": (1, 0, 0, 0),
    }
    assert told["classes"]["automated"]["ci"] == [0.2065, 1.0]
    assert told["classes"]["automated"]["median_s"] == 1800
    assert told["classes"]["none"]["ci"] is None
    assert told["lost_by_day"] == {
        "gpu_fault": [960.0, 240.0 + 480.0, 480.0, 0.0, 0.0, 0.0, 480.0],
        "session_failed": [0.0, 0.0, 32.0, 128.0, 0.0, 0.0, 0.0],
    }
    assert told["gpu_hours_lost"] == 2640 + 160
    assert (told["holds"], told["top3_share"], told["held_by"]) == (5, 0.8, {"U2": 3, "xidbot": 2})
    assert told["reviews_overdue"] == ["node-17"]
    assert told["noise"] == {"messages": 0, "mentions": 3, "night_mentions": 1}


def test_an_open_run_loses_until_now_but_never_beyond_the_week(store: Store) -> None:
    half = read_digest(store.database.path, WEEK, WEEK.end - HOUR // 2)
    assert half.lost["gpu_fault"][6] == pytest.approx(240)
    following = read_digest(store.database.path, WEEK.moved(1), WEEK.end + 2 * HOUR)
    assert following.gpu_hours_lost == pytest.approx(960)
    assert following.lost_before == pytest.approx((2800, 480))
    assert following.chains == ()
    assert following.away == ("session-123",)


def test_a_look_writes_nothing_and_needs_no_bot(store: Store) -> None:
    before = store.database.path.read_bytes()
    store.take_lease()
    read_records(store.database.path, WEEK)
    with store.database.write():  # also while the bot is in the middle of a write
        assert read_digest(store.database.path, WEEK, WEEK.due).chains
    assert store.database.path.read_bytes() == before


@pytest.mark.parametrize("content", [None, b"", b"no database at all"])
def test_what_is_no_database_is_said(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "x.db").write_bytes(content)
    with pytest.raises(StoreError, match="cannot be read"):
        read_records(tmp_path / "x.db", WEEK)


def test_an_hour_of_a_run_is_lost_once() -> None:
    one = Recovery("1.1/s", 1, 1, "s", 1000, "1#0", ended=9000, outcome="given_up", chain_class="none")
    two = Recovery("2.1/s", 2, 1, "s", 5000, "1#0", ended=12_000, outcome="given_up", chain_class="none")
    incidents = tuple(Incident(n, 1, "gpu_fault", "node-1", 1000) for n in (1, 2))
    runs = {"s": Session("s", "session-1", "c", ("1",), "t", "u", "xidbot", 1, gpus=1)}
    records = Records(incidents, (one, two), (), runs, began=0)
    assert digest(records, week_at(1000, "UTC"), 20_000).gpu_hours_lost == pytest.approx(11_000 / 3600)


def test_a_run_of_unknown_size_is_named_and_not_counted() -> None:
    one = Recovery("1.1/s", 1, 1, "s", 1000, "1#0", ended=9000, outcome="given_up", chain_class="none")
    runs = {"s": Session("s", "session-1", "c", ("1",), "t", "u", "xidbot", 1)}
    records = Records((Incident(1, 1, "gpu_fault", "node-1", 1000),), (one,), (), runs, began=0)
    told = digest(records, week_at(1000, "UTC"), 20_000)
    assert (told.gpu_hours_lost, told.unsized) == (0, 1)
    assert "GPU count nobody knows are not in it: 1" in digest_card(told).paragraphs[1]


# -- what it says ---------------------------------------------------------------------------------


def faults(*opened: int, released: int | None = None) -> Records:
    incidents = tuple(Incident(n, 1, "gpu_fault", "node-17", at) for n, at in enumerate(opened, 1))
    holds = () if released is None else (Hold("node-17", "1.1", "x", "xidbot", opened[0], None, released, "reset"),)
    return Records(incidents=incidents, holds=holds, began=0)


def test_the_same_node_three_times_in_four_weeks_goes_to_repair() -> None:
    s = WEEK.start
    near = digest(faults(s - 20 * DAY, s - DAY, s + DAY), WEEK, WEEK.due)
    assert near.repeats == (Repeat("node-17", 3, back=False),)
    assert advice(near) == ("Send node-17 to repair: 3 faults in 28 days.", "Nothing else waits for you.")
    assert digest(faults(s - 22 * DAY, s - DAY, s + DAY), WEEK, WEEK.due).repeats == ()
    assert digest(faults(s - 20 * DAY, s - 2 * DAY, s - DAY), WEEK, WEEK.due).repeats == ()
    given_back = digest(faults(s - 20 * DAY, s - DAY, s + DAY, released=s + 2 * DAY), WEEK, WEEK.due)
    assert advice(given_back)[0] == "Was node-17 really mended? Given back after 3 faults in 28 days."


def test_two_sentences_whatever_happened(store: Store) -> None:
    quiet = digest(Records(began=0), WEEK, WEEK.due)
    assert advice(quiet) == ("Nothing to do.", "It was a quiet week.")
    before = digest(Records(began=WEEK.end), WEEK, WEEK.due)
    assert advice(before) == ("Nothing is known of this week.", "The log begins after it.")
    busy = read_digest(store.database.path, WEEK, WEEK.due)
    assert advice(busy) == (
        "Send node-17 to repair: 4 faults in 28 days.",
        "Bring back session-123: no new checkpoint yet.",
    )


def test_a_week_that_the_log_knows_in_part_says_so() -> None:
    told = digest_card(digest(Records(began=WEEK.start + 2 * DAY), WEEK, WEEK.due)).paragraphs[1]
    assert "The log begins <!date^" in told
    assert "Wed 25 Mar 00:00" in told


def test_it_says_aloud_what_cannot_be_told(store: Store) -> None:
    assert "no automated chain so far" in comparison(digest(Records(began=0), WEEK, WEEK.due))
    text = comparison(read_digest(store.database.path, WEEK, WEEK.due))
    assert "2 of 2 against 0 of 1 regained, +100 points" in text
    assert "cannot tell yet, about 5 more cases" in text
    assert "They are not alike: no node was named in 0 of 2 automated and 1 of 1 manual ones." in text


def test_names_from_outside_cannot_do_anything(store: Store) -> None:
    store.append([ev.NodeHeld(WEEK.start, Hold("<!channel>`*@here", "9.1", "x", "U2", WEEK.start, WEEK.start + 1))])
    card = digest_card(read_digest(store.database.path, WEEK, WEEK.due))
    assert validate(card_blocks(card)) == []
    assert "<!channel>" not in "".join(card.paragraphs)


# -- asked for by a person ------------------------------------------------------------------------


def asked(store: Store, text: str, now: int, policy: Policy) -> Asked:
    services = Services(store.state(), Observation(now, now), policy, None, now)  # type: ignore[arg-type]
    return Asked(Request(f"digest {text}", "U1", now), tuple(text.split()), services)


def test_a_person_may_have_a_week_posted_that_is_over(store: Store, tmp_path: Path) -> None:
    policy = World(tmp_path / "w").policy
    week = week_of("2026-W48", "UTC")
    assert post(asked(store, "2026-W48", week.end, policy)).events == [ev.DigestPosted(week.end, "2026-W48", False)]
    assert post(asked(store, "", week.end, policy)).events == [ev.DigestPosted(week.end, "2026-W48", False)]
    with pytest.raises(UsageError, match="not over"):
        post(asked(store, "2026-W48", week.end - 1, policy))
    store.append([ev.DigestPosted(week.due + DAY, "2026-W48", True)])
    again = post(asked(store, "2026-W48", week.end + 2 * DAY, policy))
    assert again.events == [ev.DigestPosted(week.end + 2 * DAY, "2026-W48", True)]
    assert "brought up to date" in again.text


# -- into Slack -----------------------------------------------------------------------------------


@dataclass
class FakeSlack:
    """Chat and files. faults: (error, whether it happens after Slack has acted)."""

    now: int
    posts: list[str] = field(default_factory=list)
    edits: list[str] = field(default_factory=list)
    shown: list[list[str]] = field(default_factory=list)
    faults: list[tuple[BaseException, bool]] = field(default_factory=list)

    def post(self, channel: str, text: str, blocks: Any, thread: str = "") -> Posted:
        self.posts.append(text)
        return Posted(channel, f"{self.now}.{len(self.posts):06d}")

    def update(self, at: Posted, text: str, blocks: Any) -> None:
        self.edits.append(text)

    def find(self, channel: str, thread: str, names: Any, *_: Any) -> Any:
        return any(set(names) <= set(shown) for shown in self.shown)

    def whisper(self, *_: Any) -> None: ...

    def upload(self, channel: str, thread: str, files: Any) -> None:
        error, after = self.faults.pop(0) if self.faults else (None, True)
        if error is None or after:
            self.shown.append([name for name, _, _ in files])
        if error is not None:
            raise error


class Desk:
    """The last step of the deliver loop, and the sender."""

    def __init__(self, store: Store) -> None:
        self.slack = FakeSlack(WEEK.due)
        self.slots = Slots(store.database)
        self.poster = Poster(store, self.slots, WEEK.tz, "C01", self.slack)
        self._sender = Sender(self.slots, self.slack, lambda: self.slack.now)  # type: ignore[arg-type]

    def rounds(self, count: int = 1, seconds: int = LOOK_AFTER) -> None:
        for _ in range(count):
            post_digests(self.poster, self.slack.now)
            self._sender.send_due()
            self.slack.now += seconds


@pytest.fixture
def desk(store: Store) -> Desk:
    store.append([ev.DigestPosted(WEEK.due, WEEK.name, late=False)])
    return Desk(store)


def test_one_message_and_two_charts(desk: Desk) -> None:
    desk.rounds(5)
    (text,) = desk.slack.posts
    assert text.startswith("Week 2026-W13 (23 Mar – 29 Mar). Send node-17 to repair")
    assert desk.slack.shown == [["xidbot-2026-W13-lost.png", "xidbot-2026-W13-regained.png"]]
    assert desk.slots.ts("digest-2026-W13", "main")


@pytest.mark.parametrize("after", [True, False])
@pytest.mark.parametrize("error", [NoAnswer("slack", "reset"), Unreachable("slack", "away"), SystemExit()], ids=repr)
def test_charts_stand_there_once_whatever_breaks(desk: Desk, store: Store, error: BaseException, after: bool) -> None:
    desk.slack.faults = [(error, after)]
    for _ in range(4):
        try:
            desk.rounds(1)
        except SystemExit:  # killed: a new bot on the same database
            desk.poster = Poster(store, desk.slots, WEEK.tz, "C01", desk.slack)
            desk.slack.now += LOOK_AFTER
    assert len(desk.slack.shown) == 1
    assert len(desk.slack.posts) == 1


def test_charts_that_slack_refuses_are_given_up(desk: Desk) -> None:
    desk.slack.faults = [(Rejected("slack", "missing_scope", "missing_scope"), False)]
    desk.rounds(5)
    assert desk.slack.shown == []
    assert len(desk.slack.posts) == 1


def test_asked_for_again_the_message_is_edited(desk: Desk, store: Store) -> None:
    desk.rounds(3)
    store.append(ended(5, WEEK.due + HOUR, "given_up", "none"))
    store.append([ev.DigestPosted(WEEK.due + HOUR, WEEK.name, late=False)])
    desk.rounds(3)
    assert (len(desk.slack.posts), len(desk.slack.edits), len(desk.slack.shown)) == (1, 1, 1)
    assert "Nothing else waits" in desk.slack.edits[0]


def test_nothing_is_posted_long_after(desk: Desk) -> None:
    desk.slack.now += 2 * DAY
    desk.rounds(3)
    assert desk.slack.posts == []


# -- a week that the bot lived through ------------------------------------------------------------


def lived(tmp_path: Path) -> World:
    """Assisted: a fault under a run that still goes. Automated: a run that died of one. Manual: a run that failed."""
    caps = {"held_nodes": "4", "held_share": "0.5", "writes": "50"}
    w = World(tmp_path, nodes=12, write_mode="auto", numbers={"caps": caps})
    for job in ("123", "456", "789"):
        w.session(job, nodes=2)
    w.run(minutes=1)
    for job in ("123", "456", "789"):
        w.save(job, 100)
    w.run(seconds=30)
    w.fault(w.scheduler.jobs["123"].attempts[-1].nodes[0])
    w.fault(w.scheduler.jobs["456"].attempts[-1].nodes[0])
    w.scheduler.end("456", "FAILED", "1:0")
    w.scheduler.end("789", "FAILED", "1:0")
    w.run(minutes=1)
    (plan,) = [p for p in w.plans() if p.mode == "approve"]
    w.say("UOPER", f"approve {plan.id}")
    w.say("UOPER", "retry session-789")
    w.run(minutes=2)
    for job in ("123", "456", "789"):
        w.save(job, 150)
    w.run(minutes=14)
    return w


def told_to(w: World) -> FakeSlack:
    slack = FakeSlack(w.now)
    slots = Slots(w.store.database)
    sender = Sender(slots, slack, lambda: slack.now)  # type: ignore[arg-type]
    deliverer = Deliverer(w.store, slots, w.policy, "UTC", "C01", send=sender.send_due)
    for _ in range(60):
        deliver(deliverer, slack.now)
        slack.now += 2
    return slack


def test_a_week_of_the_world_is_told_as_it_was(tmp_path: Path) -> None:
    w = lived(tmp_path)
    slack = told_to(w)
    week = week_at(w.now, "UTC")
    told = read_digest(w.path, week, w.now)
    classes = {name: (f.chains, f.attempts, f.regained, f.survived) for name, f in told.classes.items() if f.chains}
    assert classes == {"automated": (1, 1, 1, 1), "assisted": (1, 1, 1, 1), "manual": (1, 1, 1, 1)}
    assert told.noise.messages == len(slack.posts)
    assert told.noise.in_channel == sum(told.kinds.values())
    assert told.noise.mentions == 1  # the plan that asked
    _compare(told.as_json(), w, week)
    w.store.close()
    assert check(w.path) == []


def _compare(told: dict[str, Any], w: World, week: Week) -> None:
    """The same figures by another way: plain SQL and json over the documents."""
    with w.store.database.read() as connection:
        rows = connection.execute("select kind, body from docs").fetchall()
    docs: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        docs.setdefault(row["kind"], []).append(json.loads(row["body"]))
    gpus = {s["key"]: s["gpus"] for s in docs["session"]}
    assert told["kinds"] == Counter(i["kind"] for i in docs["incident"])
    chains = [r for r in docs["recovery"] if r["outcome"] != "moved"]
    assert Counter({n: c["chains"] for n, c in told["classes"].items() if c["chains"]}) == Counter(
        r["chain_class"] for r in chains
    )
    assert told["holds"] == len(docs["hold"])
    lost = sum((r["regained"] - r["stopped"]) * gpus[r["session"]] / 3600 for r in chains)
    assert told["gpu_hours_lost"] == pytest.approx(lost, abs=1e-4)
    assert datetime.fromtimestamp(week.start, UTC).weekday() == 0
