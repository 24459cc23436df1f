"""Against a Slack that fails on demand: nothing lost, nothing twice, not too fast. The clock is turned by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.errors import AuthFailed, BadReply, NoAnswer, RateLimited, Rejected, Unreachable
from bot.ports import Posted
from bot.sender import Sender
from store.database import Database
from store.slots import Slots
from templates.blocks import Block, Button, Card, card_blocks
from templates.validate import validate

T = TypeVar("T")
CHANNEL = "C01"


class Crash(BaseException):
    """The bot dies at this point."""


@dataclass
class Fault:
    """Meets the next call. after: Slack acts first."""

    error: BaseException
    after: bool = False
    verbs: tuple[str, ...] = ("post", "edit", "find", "whisper")


@dataclass
class Message:
    channel: str
    ts: str
    text: str
    blocks: Sequence[Block]
    thread: str
    edits: int = 0

    @property
    def block_id(self) -> object:
        return self.blocks[0].get("block_id") if self.blocks else None


@dataclass
class FakeSlack:
    clock: Callable[[], float]
    messages: list[Message] = field(default_factory=list)
    whispers: list[tuple[str, str, str]] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    calls: list[tuple[str, str, float]] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    def post(self, channel: str, text: str, blocks: Sequence[Block], thread: str = "") -> Posted:
        def act() -> Posted:
            assert not blocks or validate(blocks) == []
            assert text
            message = Message(channel, f"{self.clock():.2f}{next(self.numbers):04}", text, blocks, thread)
            self.messages.append(message)
            return Posted(channel, message.ts)

        return self._call("post", channel, act)

    def update(self, at: Posted, text: str, blocks: Sequence[Block]) -> None:
        def act() -> None:
            message = next((m for m in self.messages if m.ts == at.ts and m.channel == at.channel), None)
            if message is None:
                raise refused("message_not_found")
            message.text, message.blocks, message.edits = text, blocks, message.edits + 1

        self._call("edit", at.channel, act)

    def find(self, channel: str, block_id: str, since: int, thread: str = "") -> Posted | None:
        def act() -> Posted | None:
            found = (m for m in self.messages if (m.channel, m.thread, m.block_id) == (channel, thread, block_id))
            return next((Posted(channel, m.ts) for m in found), None)

        return self._call("find", channel, act)

    def whisper(self, channel: str, user: str, text: str, thread: str = "", response_url: str = "") -> None:
        self._call("whisper", channel, lambda: self.whispers.append((user, text, response_url)))

    def _call(self, verb: str, channel: str, act: Callable[[], T]) -> T:
        self.calls.append((verb, channel, self.clock()))
        fault = next((fault for fault in self.faults if verb in fault.verbs), None)
        if fault is None:
            return act()
        self.faults.remove(fault)
        if fault.after:
            act()
        raise fault.error

    def times(self, *verbs: str) -> list[float]:
        return [at for verb, _, at in self.calls if verb in verbs]


class World:
    def __init__(self, root: Path) -> None:
        self.now = 1_000.0
        self.database = Database(root / "x.db")
        self.slots = Slots(self.database)
        self.slack = FakeSlack(lambda: self.now)
        self.sender = self.restart()

    def restart(self) -> Sender:
        self.sender = Sender(self.slots, self.slack, lambda: self.now)
        return self.sender

    def want(self, text: str, slot: str = "main", thread_slot: str = "", channel: str = CHANNEL) -> None:
        blocks = card_blocks(Card(f"1.1.{slot}", (text,), (Button("ack", "Seen", "1.1"),)))
        self.slots.want(
            "1.1", slot, channel=channel, text=text, blocks=blocks, now=int(self.now), thread_slot=thread_slot
        )

    def whisper(self, text: str) -> None:
        self.slots.want("r7", "answer", channel=CHANNEL, text=text, now=int(self.now), whisper_to="U01",
                        response_url="http://answer")  # fmt: skip

    def fail(self, error: BaseException, *, after: bool = False, times: int = 1, verbs: Sequence[str] = ()) -> None:
        fault = Fault(error, after)
        self.slack.faults += [replace(fault, verbs=tuple(verbs) or fault.verbs) for _ in range(times)]

    def run(self, seconds: float, step: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.sender.send_due()
            self.now += step

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.slack.messages]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.database.close()


def refused(code: str) -> Rejected:
    return Rejected("slack", code, code, f"remedy for {code}")


TIMED_OUT = NoAnswer("slack", "timed out")
AWAY = Unreachable("slack", "connection refused")


# -- when all is well --------------------------------------------------------------------------------------------------


def test_a_message_is_posted_once_and_edited_in_place(world: World) -> None:
    world.want("one")
    world.run(5)
    world.want("two")
    world.run(5)
    (message,) = world.slack.messages
    assert (message.text, message.edits, message.block_id) == ("two", 1, "1.1.main")
    assert len(world.slack.calls) == 2


def test_only_the_newest_edit_is_sent(world: World) -> None:
    world.want("one")
    world.run(5)
    for text in ("two", "three", "four"):
        world.want(text)
    world.run(5)
    assert (world.texts, world.slack.messages[0].edits) == (["four"], 1)


def test_replies_wait_for_their_message_and_keep_their_order(world: World) -> None:
    for number in range(3):
        world.want(f"line {number}", slot=f"line-{number}", thread_slot="main")
    world.run(5)
    assert world.slack.calls == []
    world.want("main")
    world.run(10)
    assert world.texts == ["main", "line 0", "line 1", "line 2"]
    assert {message.thread for message in world.slack.messages[1:]} == {world.slack.messages[0].ts}


def test_a_channel_is_written_to_once_a_second_and_others_meanwhile(world: World) -> None:
    for number in range(6):
        world.want(f"{number}", slot=f"a{number}")
    world.want("x", slot="b", channel="C02")
    world.run(10, step=0.1)
    times = [at for _, channel, at in world.slack.calls if channel == CHANNEL]
    assert all(later - earlier >= 1.05 for earlier, later in pairwise(times))
    assert len(times) == 6
    assert times[-1] - times[0] < 7
    assert world.slack.calls[1][1] == "C02"


def test_a_slot_without_blocks_can_be_found_again_too(world: World) -> None:
    world.slots.want("1.1", "line", channel=CHANNEL, text="only text", now=1000)
    world.run(1)
    assert world.slack.messages[0].block_id == "1.1.line"


def test_a_round_says_what_it_did(world: World) -> None:
    world.want("one")
    done = world.sender.send_due()
    assert (dict(done.calls), done.problems) == ({"post": 1}, [])


# -- limits and outages ------------------------------------------------------------------------------------------------


def test_retry_after_is_kept_for_that_call_and_channel(world: World) -> None:
    world.want("one")
    world.run(2)
    world.want("y", slot="c")
    world.fail(RateLimited("slack", "asks to wait 30 s", 30), verbs=["post"])
    world.run(2)
    world.want("two")
    world.want("x", slot="b", channel="C02")
    world.run(40)
    assert world.slack.times("post") == [1000, 1002, 1004, 1032]
    assert world.texts == ["two", "x", "y"], "neither edits nor other channels are what Slack limited"
    assert world.slack.times("edit") == [1004]


def test_away_for_an_hour_and_back(world: World) -> None:
    world.want("one")
    world.run(2)
    world.fail(AWAY, times=10_000)
    for minute in range(60):
        world.want(f"edit {minute}")
        world.want(f"line {minute}", slot=f"line-{minute:02}", thread_slot="main")
        world.run(60, step=1)
    tries = world.slack.times("edit", "post")[1:]
    assert 60 <= len(tries) <= 80, "backs off to one try a minute"
    assert [later - earlier for earlier, later in pairwise(tries[:6])] == [2, 2, 4, 8, 16], "1 s is 2 s of this clock"
    world.slack.faults.clear()
    world.run(200)
    assert world.texts == ["edit 59", *(f"line {minute}" for minute in range(60))]
    assert world.slack.messages[0].edits == 1


def test_one_message_that_slack_chokes_on_holds_up_no_other(world: World) -> None:
    world.fail(NoAnswer("slack", "500"), times=3, verbs=["post"])
    world.want("poison")
    world.now += 1
    world.sender.send_due()
    world.want("good", slot="other")
    world.run(30)
    assert sorted(world.texts) == ["good", "poison"]


def test_slack_takes_a_while_to_answer(world: World) -> None:
    """Waiting counts from the end of the call, not from the start of the round."""
    real, world.slack.clock = world.slack.clock, lambda: world.now

    def slow(*_: object, **__: object) -> Posted:
        world.now += 10
        raise TIMED_OUT

    world.slack.post, post = slow, world.slack.post  # type: ignore[method-assign]
    world.want("one")
    world.sender.send_due()
    world.slack.post = post  # type: ignore[method-assign]
    world.sender.send_due()
    assert world.slack.calls == []
    assert real() == 1010


# -- unclear -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [TIMED_OUT, NoAnswer("slack", "status 502"), BadReply("slack", "HTML")], ids=str)
def test_timed_out_but_posted_is_found_again(world: World, error: Exception) -> None:
    world.fail(error, after=True)
    world.want("one")
    world.run(20)
    assert world.texts == ["one"]
    assert [verb for verb, *_ in world.slack.calls] == ["post", "find"]
    world.want("two")
    world.run(5)
    assert world.texts == ["two"]


def test_timed_out_and_not_posted_is_posted(world: World) -> None:
    world.fail(TIMED_OUT)
    world.want("one")
    world.run(20)
    assert world.texts == ["one"]
    assert [verb for verb, *_ in world.slack.calls] == ["post", "find", "post"]


def test_it_is_not_looked_up_at_once(world: World) -> None:
    world.fail(TIMED_OUT, after=True)
    world.want("one")
    world.run(20, step=0.1)
    (posted,), (looked,) = world.slack.times("post"), world.slack.times("find")
    assert looked - posted >= 5


def test_a_refused_connection_needs_no_look(world: World) -> None:
    world.fail(AWAY)
    world.want("one")
    world.run(20)
    assert [verb for verb, *_ in world.slack.calls] == ["post", "post"]


def test_edited_while_unclear(world: World) -> None:
    world.fail(TIMED_OUT, after=True)
    world.want("one")
    world.sender.send_due()
    world.want("two")
    world.run(20)
    assert world.texts == ["two"]


def test_what_cannot_be_looked_up_is_not_posted_again(world: World) -> None:
    world.fail(TIMED_OUT, after=True)
    world.fail(AWAY, times=4, verbs=["find"])
    world.fail(refused("missing_scope"), verbs=["find"])
    world.fail(RateLimited("slack", "wait", 60), verbs=["find"])
    world.want("one")
    world.run(500, step=5)
    assert world.texts == ["one"]
    assert len(world.slack.times("post")) == 1
    assert world.slots.problems() == []


@pytest.mark.parametrize("after", [False, True])
def test_crash_while_posting(world: World, after: bool) -> None:
    world.want("one")
    world.fail(Crash(), after=after)
    with pytest.raises(Crash):
        world.sender.send_due()
    world.restart()
    world.run(20)
    assert world.texts == ["one"]


@pytest.mark.parametrize("after", [False, True])
def test_crash_while_editing(world: World, after: bool) -> None:
    world.want("one")
    world.run(2)
    world.want("two")
    world.fail(Crash(), after=after)
    with pytest.raises(Crash):
        world.sender.send_due()
    world.restart()
    world.fail(RateLimited("slack", "wait", 5))
    world.run(20)
    assert world.texts == ["two"]


def test_an_unclear_edit_and_then_an_edit_back(world: World) -> None:
    world.want("one")
    world.run(2)
    world.want("two")
    world.fail(TIMED_OUT, after=True)
    world.sender.send_due()
    assert world.texts == ["two"]
    world.want("one")
    world.run(20)
    assert world.texts == ["one"]


# -- refused -----------------------------------------------------------------------------------------------------------


def test_a_deleted_message_is_posted_again_once(world: World) -> None:
    world.want("one")
    world.want("line", slot="line", thread_slot="main")
    world.run(5)
    world.slack.messages.pop(0)
    world.want("two")
    world.run(5)
    assert world.texts == ["line", "two"]
    world.slack.messages.pop(1)
    world.want("three")
    world.run(1000, step=5)
    assert world.texts == ["line"]
    assert "message_not_found" in world.slots.problems()[0].problem


def test_a_deleted_reply_is_posted_again_in_its_thread(world: World) -> None:
    world.want("one")
    world.want("line", slot="line", thread_slot="main")
    world.run(5)
    world.slack.messages.pop(1)
    world.want("line, edited", slot="line", thread_slot="main")
    world.run(5)
    assert (world.slack.messages[1].text, world.slack.messages[1].thread) == (
        "line, edited",
        world.slack.messages[0].ts,
    )


@pytest.mark.parametrize("code", ["invalid_blocks", "msg_too_long", "msg_blocks_too_long"])
def test_refused_blocks_become_plain_text(world: World, code: str) -> None:
    world.want("*one*")
    world.fail(refused(code))
    world.run(5)
    (message,) = world.slack.messages
    assert message.text == "one\nSeen: type /xid ack 1.1"
    assert message.block_id == "1.1.main"
    assert "plain text" in world.slots.problems()[0].problem


def test_refused_blocks_on_an_edit_too(world: World) -> None:
    world.want("one")
    world.run(2)
    world.want("two")
    world.fail(refused("invalid_blocks"), times=2)
    world.run(5)
    (message,) = world.slack.messages
    assert (message.text, message.blocks) == ("two\nSeen: type /xid ack 1.1", [])


def test_refused_in_every_form_is_given_up_and_shown(world: World) -> None:
    world.want("one")
    world.fail(refused("msg_too_long"), times=3)
    world.run(1000, step=5)
    assert len(world.slack.calls) == 3
    (row,) = world.slots.problems()
    assert (row.state, row.problem) == ("failed", "slack: msg_too_long (remedy for msg_too_long)")


@pytest.mark.parametrize("code", ["channel_not_found", "not_in_channel", "is_archived", "missing_scope", "a_new_code"])
def test_what_a_person_must_put_right_is_tried_every_five_minutes(world: World, code: str) -> None:
    world.want("one")
    world.fail(refused(code), times=3)
    world.run(100, step=5)
    assert world.slots.problems()[0].problem == f"slack: {code} (remedy for {code})"
    world.run(1000, step=5)
    times = world.slack.times("post")
    assert [round(later - earlier) for earlier, later in pairwise(times)] == [300, 300, 300]
    assert (world.texts, world.slots.problems()) == (["one"], [])


def test_a_shut_channel_is_asked_once_for_all_its_messages(world: World) -> None:
    for number in range(5):
        world.want(f"{number}", slot=f"m{number}")
    world.want("x", slot="b", channel="C02")
    world.fail(refused("not_in_channel"))
    world.run(100)
    assert world.texts == ["x"]
    assert len(world.slack.calls) == 2
    world.run(300)
    assert len(world.texts) == 6


def test_wrong_tokens_stop_everything_for_a_while_and_a_restart_tries_at_once(world: World) -> None:
    world.want("one")
    world.want("x", slot="b", channel="C02")
    world.fail(AuthFailed("slack", "invalid_auth", "check SLACK_BOT_TOKEN"))
    world.run(200)
    assert len(world.slack.calls) == 1
    assert "check SLACK_BOT_TOKEN" in world.slots.problems()[0].problem
    world.restart()
    world.run(3)
    assert sorted(world.texts) == ["one", "x"]


# -- whispers ----------------------------------------------------------------------------------------------------------


def test_a_whisper_goes_out_with_its_answer_address_and_is_not_paced(world: World) -> None:
    world.want("one")
    world.whisper("done")
    world.sender.send_due()
    assert world.slack.whispers == [("U01", "done", "http://answer")]
    world.run(5)
    assert len(world.slack.whispers) == 1


def test_a_long_whisper_is_cut(world: World) -> None:
    world.whisper("x" * 10_000)
    world.run(1)
    assert len(world.slack.whispers[0][1]) <= 3_900


def test_a_whisper_is_tried_for_a_quarter_of_an_hour(world: World) -> None:
    world.whisper("done")
    world.fail(AWAY, times=10_000)
    world.run(2_000, step=5)
    assert world.slack.calls[-1][2] <= 1_000 + 900
    assert world.slots.waiting() == 0


def test_a_refused_whisper_is_given_up(world: World) -> None:
    world.whisper("done")
    world.fail(refused("user_not_in_channel"))
    world.want("one")
    world.run(10)
    assert (world.slack.whispers, world.texts) == ([], ["one"])


# -- everything at once ------------------------------------------------------------------------------------------------

UNCLEAR = [TIMED_OUT, BadReply("slack", "HTML"), Crash()]
CLEAR = [
    AWAY,
    RateLimited("slack", "wait", 7),
    AuthFailed("slack", "invalid_auth"),
    refused("not_in_channel"),
    refused("a_new_code"),
]
FAULTS = st.builds(Fault, st.sampled_from(UNCLEAR), st.booleans()) | st.builds(Fault, st.sampled_from(CLEAR))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("want"), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("fault"), FAULTS),
        st.tuples(st.just("wait"), st.sampled_from([0.3, 1, 6, 70])),
    ),
    max_size=40,
)


def _play(world: World, step: tuple[object, ...]) -> None:
    match step:
        case ("want", int(slot), int(version)):
            world.want(f"{slot} v{version}", slot=f"s{slot}", thread_slot="s0" if slot else "")
        case ("fault", Fault() as fault):
            world.slack.faults.append(fault)
        case ("wait", int() | float() as seconds):
            world.now += seconds
    try:
        world.sender.send_due()
    except Crash:
        world.now += 2
        world.restart()


@settings(max_examples=20, deadline=None)
@given(STEPS)
def test_whatever_happens_each_message_is_there_once_and_newest(steps: list[tuple[object, ...]]) -> None:
    with TemporaryDirectory() as folder:
        world = World(Path(folder))
        wanted: dict[int, str] = {}
        for step in steps:
            _play(world, step)
            if step[0] == "want":
                wanted[int(str(step[1]))] = f"{step[1]} v{step[2]}"
        world.slack.faults.clear()
        world.now += 2
        world.restart()
        world.run(700, step=5)
        if 0 not in wanted:
            wanted.clear()
        found = sorted(message.text.splitlines()[0] for message in world.slack.messages)
        assert found == sorted(wanted.values())
        writes = world.slack.times("post", "edit")
        assert all(later - earlier >= 1.05 or later == earlier for earlier, later in pairwise(writes))
        world.database.close()
