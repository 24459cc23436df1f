"""What people type: done at once where typing is the approval, refused clearly where it is not to be done."""

from __future__ import annotations

import pytest

from bot.errors import Unreachable
from bot.model import Action, Holder, Request
from tests.scenarios.world import Make, running


def test_retry_requeues_once_and_is_a_manual_attempt_of_an_open_recovery(world: Make) -> None:
    w = running(world)
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)
    assert "will be requeued" in w.say("UOPER", "retry session-123")
    w.run(minutes=1)
    assert w.verbs() == ["requeue"]
    recovery = w.recovery("123")
    assert [link.origin for link in recovery.chain] == ["command"]
    w.save("123", 150)
    w.run(minutes=7)
    assert w.recovery("123").chain_class == "manual"


def test_any_of_its_job_ids_finds_a_session(world: Make) -> None:
    w = running(world)
    assert "will be requeued" in w.say("UOPER", "retry 123")


def test_the_same_words_delivered_twice_are_done_once(world: Make) -> None:
    w = running(world)
    w.say("UOPER", "retry session-123", dedupe="T1")
    w.say("UOPER", "retry session-123", dedupe="T1")
    w.run(minutes=2)
    assert w.verbs() == ["requeue"]
    assert len(w.events("RequestAnswered")) == 1


def test_a_second_retry_while_the_first_runs_says_so(world: Make) -> None:
    w = running(world)
    w.scheduler.broken = "hangs"
    assert "cannot be read" in w.say("UOPER", "exclude node-01")
    w.scheduler.broken = ""
    w.say("UOPER", "retry session-123")
    w.scheduler.restart_delay = 600
    assert "session-123" in w.say("UOPER", "retry session-123")
    assert w.verbs().count("requeue") <= 2


def test_exclude_holds_now_and_the_span_is_a_review_date(world: Make) -> None:
    w = running(world)
    answer = w.say("UOPER", "exclude node-07 for 24h Xid 79 twice")
    assert "no release date" in answer
    (hold,) = w.state.our_holds()
    assert (hold.node, hold.why) == ("node-07", "Xid 79 twice")
    assert hold.review is not None and hold.review - hold.since == pytest.approx(86400, abs=30)
    assert w.scheduler.nodes["node-07"].ours is not None
    w.run(minutes=60)
    assert w.scheduler.nodes["node-07"].ours is not None
    assert "already held by xidbot" in w.say("UOPER", "exclude node-07")


def test_readmit_needs_an_admin_a_reason_and_our_own_hold(world: Make) -> None:
    w = running(world)
    w.say("UOPER", "exclude node-07 noisy fan")
    assert "needs the role admin" in w.say("UOPER", "readmit node-07 fixed")
    assert "usage" in w.say("UADMIN", "readmit node-07")
    w.scheduler.hold("node-08", Holder("person", "root", "mine"))
    assert "never lifts another holder's drain" in w.say("UADMIN", "readmit node-08 fixed")
    assert "take work again" in w.say("UADMIN", "readmit node-07 fan replaced")
    w.run(seconds=30)
    assert w.scheduler.nodes["node-07"].open
    assert w.state.our_holds() == []
    assert w.scheduler.nodes["node-08"].holders[0].by == "root"


@pytest.mark.parametrize("text", ["retry session-123", "exclude node-07", "readmit node-07 fixed"])
@pytest.mark.parametrize("mode", ["observe", "suggest"])
def test_below_approve_typed_commands_say_what_they_would_do(world: Make, text: str, mode: str) -> None:
    w = running(world, write_mode=mode)
    w.scheduler.hold("node-07", Holder("xidbot", "gate", "x", "r9")) if text.startswith("readmit") else None
    assert f"write_mode is {mode}: I would" in w.say("UADMIN", text)
    w.run(minutes=1)
    assert w.verbs() == []


BAD = [
    ("exclude node-1;rm -rf /", "node"),
    ("exclude <!channel>", "node"),
    ("exclude @all", "node"),
    ("exclude node-[01-63]", ""),
    ("exclude node-[01-08]!node-07", "node"),
    ("exclude", "usage"),
    ("exclude node-07 for ever", "duration"),
    ("exclude node-70", "did you mean node-0"),
    ("retry", "usage"),
    ("retry session-999", "no run"),
    ("retry session-12", "did you mean session-123"),
    ("approve 99", "no incident"),
    ("approve 1.1.1; drop table", "no incident"),
    ("ack", "usage"),
    ("retri session-123", "did you mean"),
    ("x" * 5000, "5000 characters"),
    ("retry session-123\x00", "cannot be shown"),
]


@pytest.mark.parametrize(("text", "says"), BAD, ids=[t[:30] for t, _ in BAD])
def test_bad_input_gets_a_clear_answer_and_nothing_is_done(world: Make, text: str, says: str) -> None:
    w = running(world)
    number = w.store.ask(Request(text=text, user="UADMIN", at=w.now))
    w.run(minutes=1)
    assert says in w.reply(number)
    assert w.verbs() == []
    assert w.events("ActionWanted") == []


def test_the_scheduler_away_is_said_and_asked_again_later(world: Make) -> None:
    w = running(world)
    w.scheduler.broken = "no answer within 10 s"
    assert "cannot be read right now" in w.say("UOPER", "exclude node-07")
    w.run(minutes=2)
    assert w.incident("blind", "scheduler") is not None
    w.scheduler.broken = ""
    w.run(minutes=1)
    blind = w.incident("blind", "scheduler")
    assert blind is not None and blind.closed_why == "it can be read again"


def test_an_action_that_cannot_be_carried_out_in_time_is_not_done_late(world: Make) -> None:
    w = running(world)
    w.gate.before = lambda argv: None
    number = w.store.ask(Request("exclude node-07", "UOPER", w.now))
    look = w.scheduler.snapshot
    calls: list[int] = []

    def only_once(now: int, watch: object = ()) -> object:
        calls.append(now)
        if len(calls) > 1:
            raise Unreachable("scheduler", "hangs")
        return look(now)

    w.scheduler.snapshot = only_once  # type: ignore[method-assign, assignment]
    w.run(minutes=31)
    assert "will be kept" in w.reply(number)
    w.scheduler.snapshot = look  # type: ignore[method-assign]
    w.run(minutes=2)
    assert w.verbs() == []
    (action,) = w.state.all(Action)
    assert action.end == "expired"


def test_who_has_no_role_at_all_is_nobody(world: Make) -> None:
    w = running(world)
    for text in ("retry session-123", "exclude node-07", "pause", "incidents", "help"):
        assert "you have none" in w.say("USTRANGER", text)
    assert w.verbs() == []


def test_help_and_incidents_are_for_viewers(world: Make) -> None:
    w = running(world)
    assert "/retry SESSION" in w.say("UVIEW", "help")
    assert "/exclude" in w.say("UVIEW", "")
    assert "No open incident" in w.say("UVIEW", "incidents")
    w.fault("node-01")
    w.run(seconds=30)
    assert "waits for `approve 1.1.1`" in w.say("UVIEW", "incidents")
    assert "Xid 79" in w.say("UVIEW", "incidents 1")


def test_retry_warns_of_a_faulty_node_that_is_not_held(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    answer = w.say("UOPER", "retry session-123")
    assert "node-01 is faulty and not held" in answer


def test_a_running_run_that_would_not_start_again_is_not_stopped(world: Make) -> None:
    w = running(world, nodes=4)
    w.scheduler.hold("node-02", Holder("person", "root", "mine"))
    assert "would not start again" in w.say("UOPER", "retry session-123")
    w.run(minutes=1)
    assert w.verbs() == []
