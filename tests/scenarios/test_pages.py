"""Pages go out through Alertmanager: which incidents want a person, and what is sent when."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from bot.deliver import Deliverer, deliver
from bot.errors import Unreachable
from bot.http_session import DeadlineSession
from bot.model import Attempt, Incident, Observation, Reading, Recovery, Session
from bot.pages import GIVEN_UP_FOR, LIVES, SILENCES_EVERY, Pager, Paging, WithPager, alerts_of, severity_of
from bot.sources.alertmanager import Alertmanager, Several, Silences, read_silences
from bot.state import State
from store.slots import Slots
from tests.real.faultproxy import FaultProxy
from tests.scenarios.world import Make, World, running
from tests.unit.test_alertmanager import NOW, Json, silence

# -- what should fire -------------------------------------------------------------------------------------------

PAGING = Paging("haein", ["node", "Hostname"], "https://example.com/c", every=60)


def pages(w: World) -> dict[str, tuple[str, bool]]:
    """alertname subject → severity, and whether it fires."""
    found = alerts_of(w.state, w.now, PAGING)
    assert len({json.dumps(alert["labels"], sort_keys=True) for alert in found}) == len(found)
    return {
        f"{a['labels']['alertname']} {a['labels']['subject']}": (a["labels"]["severity"], moment(a["endsAt"]) > w.now)
        for a in found
    }


def moment(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp())


def hurt(make: Make, **facts: Any) -> World:
    w = running(make, **facts)
    w.fault("node-01", text="Xid 79 on GPU 3")
    w.run(seconds=30)
    return w


def test_a_fault_that_waits_for_a_person_pages(world: Make) -> None:
    w = hurt(world)
    (alert,) = alerts_of(w.state, w.now, PAGING)
    incident = w.incident("gpu_fault", "node-01")
    assert incident
    assert alert["labels"] == {
        "alertname": "XidbotGpuFault", "source": "xidbot", "cluster": "haein", "incident": "1.1", "subject": "node-01",
        "node": "node-01", "Hostname": "node-01", "severity": "page",
    }  # fmt: skip
    assert alert["annotations"] == {
        "summary": "node-01: Xid 79 on GPU 3",
        "description": "GPU fault; Xid 79 on GPU 3; runs hurt: session-123; xidbot why 1 tells more",
        "link": "https://example.com/c",
    }
    assert moment(alert["startsAt"]) == incident.opened
    assert moment(alert["endsAt"]) == w.now + LIVES * 60


def test_it_stops_paging_once_a_person_has_seen_it_and_still_fires(world: Make) -> None:
    w = hurt(world)
    w.say("UOPER", "ack 1")
    assert pages(w) == {"XidbotGpuFault node-01": ("warn", True)}


def test_it_stops_paging_once_a_plan_is_under_way_and_ends_with_the_incident(world: Make) -> None:
    w = hurt(world)
    w.say("UOPER", "approve 1")
    w.run(minutes=1)
    assert pages(w) == {"XidbotGpuFault node-01": ("warn", True)}
    w.good("node-01")
    w.save("123", 500)
    for _ in range(200):
        w.run(minutes=1)
        incident = w.incident("gpu_fault", "node-01")
        if incident and incident.closed is not None:
            break
    assert incident and incident.closed is not None
    (alert,) = alerts_of(w.state, w.now, PAGING)
    assert moment(alert["endsAt"]) == incident.closed
    w.run(minutes=4)
    assert alerts_of(w.state, w.now, PAGING) == []


def test_a_bot_that_acts_by_itself_wakes_nobody_until_it_gives_up(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("node-02")
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)
    assert pages(w) == {"XidbotGpuFault node-02": ("warn", True)}
    for _ in range(4):
        w.run(minutes=3)
        if w.scheduler.jobs["123"].attempts[-1].alive:
            w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=30)
    fault = w.incident("gpu_fault", "node-02")
    assert fault and fault.closed is not None and w.recovery("123").outcome == "given_up"
    assert pages(w) == {"XidbotGpuFault node-02": ("page", True)}
    assert alerts_of(w.state, fault.closed + GIVEN_UP_FOR, PAGING) == []


def test_a_run_given_up_stops_paging_once_somebody_brought_it_back(world: Make) -> None:
    w = hurt(world, write_mode="auto")
    (recovery,) = w.state.all(Recovery)
    (incident,) = w.state.all(Incident)
    session = w.state.get(Session, recovery.session)
    down = Attempt("123", 9, "FAILED", ("node-01",), w.now - 600, w.now - 300)
    state = State()
    state.put(replace(incident, closed=w.now - 300))
    state.put(replace(recovery, outcome="given_up", ended=w.now - 300))
    for attempt, fires in ((down, True), (replace(down, ordinal=10, state="RUNNING", end=None), False)):
        state.put(replace(session, attempts=(attempt,)))
        assert bool(alerts_of(state, w.now, PAGING)) == fires
    state.put(replace(session, attempts=(down,), ended="cancelled", ended_at=w.now))
    assert not alerts_of(state, w.now, PAGING)


def test_a_broken_node_that_no_run_is_on_waits_for_the_morning(world: Make) -> None:
    w = world()
    w.run(minutes=1)
    w.fault("node-05", text="Xid 79 on GPU 3")
    w.run(seconds=30)
    assert pages(w) == {"XidbotGpuFault node-05": ("warn", True)}


def test_a_source_that_cannot_be_read_pages_and_one_silent_node_does_not(world: Make) -> None:
    w = world()
    w.run(minutes=1)
    w.eyes.metrics_problem = "no answer"
    w.run(minutes=2)
    assert pages(w) == {"XidbotBlind prometheus": ("page", True)}
    node = Incident(9, 1, "blind", "node:node-01", NOW)
    assert severity_of(node, w.state) == "warn"


def test_what_only_warns_never_pages(world: Make) -> None:
    w = world()
    for kind in ("precursor", "session_slow"):
        assert severity_of(Incident(1, 1, kind, "node-01", NOW), w.state) is None


def test_a_restart_changes_nothing_of_what_fires(world: Make) -> None:
    w = hurt(world)
    before = alerts_of(w.state, w.now, PAGING)
    w.restart()
    assert alerts_of(w.state, w.now, PAGING) == before != []


# -- sending it -----------------------------------------------------------------------------------------------

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def server() -> Iterator[FaultProxy]:
    """Takes everything and silences nothing, unless a test says otherwise."""
    with FaultProxy("http://127.0.0.1:1") as proxy:
        calm(proxy)
        yield proxy


def calm(proxy: FaultProxy, silences: list[Json] | None = None) -> None:
    proxy.clear()
    proxy.fault("/api/v2/silences", status=200, body=json.dumps(silences or []), headers=JSON, times=None)
    proxy.fault("/api/v2/alerts", status=200, body="", headers=JSON, times=None)


@pytest.fixture
def pager(server: FaultProxy) -> Iterator[Pager]:
    with DeadlineSession(2, source="alertmanager") as session:
        yield Pager(Alertmanager(server.url, session), PAGING)


def posted(server: FaultProxy) -> list[list[Json]]:
    return [json.loads(seen.raw) for seen in server.requests if seen.path == "/api/v2/alerts"]


def test_a_page_is_sent_at_once_again_each_interval_and_ended_when_it_changes(
    server: FaultProxy, pager: Pager, world: Make
) -> None:
    w = hurt(world)
    for later in (0, 5, 30, 59):
        pager.turn(w.state, w.now + later)
    assert len(posted(server)) == 1
    pager.turn(w.state, w.now + 60)
    assert len(posted(server)) == 2
    w.say("UOPER", "ack 1")
    pager.turn(w.state, w.now + 65)
    warn, page = posted(server)[-1]
    assert (warn["labels"]["severity"], moment(warn["endsAt"])) == ("warn", w.now + 65 + 180)
    assert (page["labels"]["severity"], moment(page["endsAt"])) == ("page", w.now + 65)
    pager.turn(w.state, w.now + 70)
    assert len(posted(server)) == 3


def test_nothing_is_sent_while_nothing_is_wrong(server: FaultProxy, pager: Pager) -> None:
    pager.turn(State(), NOW)
    pager.turn(State(), NOW + 100)
    assert posted(server) == [] and pager.problem == ""


def test_a_site_that_wants_no_pages_still_has_its_silences(server: FaultProxy, pager: Pager, world: Make) -> None:
    pager.pages = False
    calm(server, [silence(("node", "=", "node-01"))])
    w = hurt(world)
    pager.turn(w.state, w.now)
    incident = w.incident("gpu_fault", "node-01")
    assert incident and pager.silenced(incident, w.state) and posted(server) == []


def test_a_refusal_is_told_with_its_reason_and_tried_again(server: FaultProxy, pager: Pager, world: Make) -> None:
    w = hurt(world)
    server.clear()
    server.fault("/api/v2/silences", status=200, body="[]", headers=JSON, times=None)
    server.fault("/api/v2/alerts", status=400, body='"invalid label set: bad name"', headers=JSON, times=1)
    server.fault("/api/v2/alerts", status=200, body="", headers=JSON, times=None)
    pager.turn(w.state, w.now)
    assert "HTTP 400" in pager.problem and "invalid label set: bad name" in pager.problem
    assert pager.health().problem == pager.problem and pager.health().name == "alertmanager_api"
    pager.turn(w.state, w.now + 5)
    assert pager.problem == "" and len(posted(server)) == 2


def test_silences_that_cannot_be_read_silence_nothing_and_are_told(
    server: FaultProxy, pager: Pager, world: Make
) -> None:
    w = hurt(world)
    incident = w.incident("gpu_fault", "node-01")
    assert incident
    calm(server, [silence(("Hostname", "=~", "node-0.*"), ("source", "=", "xidbot"))])
    pager.turn(w.state, w.now)
    assert pager.silenced(incident, w.state)
    server.clear()
    server.fault("/", status=503, body="starting", times=None)
    pager.turn(w.state, w.now + SILENCES_EVERY)
    assert pager.silenced(incident, w.state) is None
    assert "HTTP 503: starting" in pager.problem
    calm(server, [silence(("node", "=", "node-02"))])
    pager.turn(w.state, w.now + SILENCES_EVERY + 5)
    assert pager.silenced(incident, w.state) is None and pager.problem == ""


def test_an_alertmanager_that_cannot_be_used_is_one_of_the_sources(server: FaultProxy, pager: Pager) -> None:
    class Eyes:
        def observe(self, now: int) -> Observation:
            return Observation(now, now, readings=(Reading("n", "s", "good"),))

    server.clear()
    server.fault("/", status=200, body="<html>log in</html>", times=None)
    pager.turn(State(), NOW)
    seen = WithPager(Eyes(), pager).observe(NOW)
    assert seen.readings and [s.name for s in seen.sources] == ["alertmanager_api"]
    assert "web page" in seen.sources[0].problem


# -- a silence in Slack ------------------------------------------------------------------------------------------------


class Told:
    """An Alertmanager of which only the silences matter; None: it cannot be read."""

    def __init__(self, *found: Json) -> None:
        self.found: list[Json] | None = list(found)

    def silences(self) -> Silences:
        if self.found is None:
            raise Unreachable("alertmanager", "Connection refused")
        return read_silences(self.found)

    def post(self, alerts: Sequence[Mapping[str, Any]]) -> None:
        pass


ENDS = {"endsAt": "2027-01-15T09:30:00Z"}  # an hour and a half after the world begins
ALICE = {"createdBy": "alice", "comment": "fan swap <!channel>", **ENDS}
ON_NODE_1 = silence(("node", "=", "node-01")) | ALICE
CALLS = {"on call": "S1", "secondary": "U2"}


def texts(w: World, pager: Pager, slots: str = "story-%") -> list[str]:
    """What Slack is to show in the threads, or in another kind of slot, after Alertmanager was asked once more."""
    pager.turn(w.state, w.now)
    deliver(Deliverer(w.store, Slots(w.store.database), w.policy, "UTC", "C01", on_call=CALLS, quiet=pager), w.now)
    with w.store.database.read() as connection:
        rows = connection.execute("select blocks from slots where slot like ? order by seq", (slots,)).fetchall()
    return [json.dumps(json.loads(blocks), ensure_ascii=False) for (blocks,) in rows]


def test_what_is_silenced_calls_nobody_in_slack_and_says_why(world: Make) -> None:
    w, pager = hurt(world), Pager(Told(ON_NODE_1), replace(PAGING, tz="Asia/Seoul"))
    (story,) = texts(w, pager)
    (card,) = texts(w, pager, "main")
    assert "<!subteam^S1>" not in story and "<!channel>" not in story + card
    assert "on call is not called: silenced in Alertmanager by alice for fan swap" in story
    assert "until Fri 15 Jan 18:30" in story
    assert "Nobody is called: silenced in Alertmanager by alice" in card


def test_another_node_s_silence_calls_as_ever(world: Make) -> None:
    pager = Pager(Told(silence(("node", "=", "node-02")) | ENDS), PAGING)
    (story,) = texts(hurt(world), pager)
    assert "<!subteam^S1>" in story


def test_an_alertmanager_that_cannot_be_read_silences_nobody(world: Make) -> None:
    pager = Pager(Told(ON_NODE_1), PAGING)
    pager.turn(State(), NOW)
    pager.alertmanager.found = None  # type: ignore[attr-defined]
    w = hurt(world)
    (story,) = texts(w, pager)
    assert "<!subteam^S1>" in story


def test_who_was_not_called_is_called_once_when_the_silence_has_been_taken_away(world: Make) -> None:
    w, told = hurt(world), Told(ON_NODE_1)
    pager = Pager(told, PAGING)
    assert len(texts(w, pager)) == 1
    w.now += SILENCES_EVERY
    assert len(texts(w, pager)) == 1
    told.found = []
    w.now += SILENCES_EVERY
    assert "<!subteam^S1> the silence in Alertmanager is over and plan 1.1.1 still waits" in texts(w, pager)[1]
    assert "Nobody is called" not in texts(w, pager, "main")[0]
    w.now += SILENCES_EVERY
    assert len(texts(w, pager)) == 2


def test_everybody_whom_a_silence_kept_from_being_called_is_called_after_it(world: Make) -> None:
    w, told = hurt(world), Told(ON_NODE_1)
    pager = Pager(told, PAGING)
    texts(w, pager)
    w.run(minutes=35)  # both reminders, and the plan's end
    assert not any("<!subteam^S1>" in story or "<@U2>" in story for story in texts(w, pager))
    told.found = []
    w.run(minutes=1)
    last = texts(w, pager)[-1]
    assert "<!subteam^S1> <@U2> the silence in Alertmanager is over and this still wants a person" in last


@pytest.mark.parametrize("words", ["ack 1", "approve 1", "reject 1"])
def test_nobody_is_called_after_a_silence_for_what_is_no_longer_needed(world: Make, words: str) -> None:
    w, told = hurt(world), Told(ON_NODE_1)
    pager = Pager(told, PAGING)
    texts(w, pager)
    w.say("UOPER", words)
    told.found = []
    w.run(seconds=30)
    assert not any("<!subteam^S1>" in story for story in texts(w, pager))


def test_who_was_not_called_is_not_called_because_alertmanager_restarts(world: Make) -> None:
    """The silence is known, and so is its end."""
    w, told = hurt(world), Told(ON_NODE_1)
    pager = Pager(told, PAGING)
    texts(w, pager)
    told.found = None
    w.now += SILENCES_EVERY
    assert len(texts(w, pager)) == 1
    w.now = moment(ENDS["endsAt"])
    assert "the silence in Alertmanager is over" in texts(w, pager)[-1]


def test_a_restart_forgets_nobody(world: Make) -> None:
    w = hurt(world)
    texts(w, Pager(Told(ON_NODE_1), PAGING))
    w.restart()
    still = Pager(Told(ON_NODE_1), PAGING)
    assert len(texts(w, still)) == 1
    assert "the silence in Alertmanager is over" in texts(w, Pager(Told(), PAGING))[-1]


def test_nobody_is_called_before_it_is_known_what_is_silenced(world: Make) -> None:
    w, pager = hurt(world), Pager(Told(ON_NODE_1), PAGING)
    deliver(Deliverer(w.store, Slots(w.store.database), w.policy, "UTC", "C01", on_call=CALLS, quiet=pager), w.now)
    with w.store.database.read() as connection:
        assert [row["slot"] for row in connection.execute("select slot from slots")] == ["main"]
    assert "on call is not called" in texts(w, pager)[0]


# -- several Alertmanagers ---------------------------------------------------------------------------------------------


@pytest.fixture
def pair(server: FaultProxy) -> Iterator[tuple[FaultProxy, FaultProxy, Pager]]:
    with FaultProxy("http://127.0.0.1:1") as other, DeadlineSession(2, source="alertmanager") as session:
        calm(other)
        yield server, other, Pager(Several([Alertmanager(s.url, session) for s in (server, other)]), PAGING)


def down(proxy: FaultProxy, body: str = "no leader") -> None:
    proxy.clear()
    proxy.fault("/", status=503, body=body, times=None)


def test_each_of_several_is_told_and_any_may_silence(pair: tuple[FaultProxy, FaultProxy, Pager], world: Make) -> None:
    one, other, pager = pair
    calm(other, [ON_NODE_1])
    w = hurt(world)
    pager.turn(w.state, w.now)
    assert len(posted(one)) == len(posted(other)) == 1
    (incident,) = w.state.all(Incident)
    assert pager.silenced(incident, w.state) and pager.problem == ""


def test_one_of_several_that_is_down_is_no_incident_and_is_logged_once(
    pair: tuple[FaultProxy, FaultProxy, Pager], world: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one, other, pager = pair
    calm(other, [ON_NODE_1])
    down(one)
    w = hurt(world)
    (incident,) = w.state.all(Incident)
    for later in (0, 20, 40):
        pager.turn(w.state, w.now + later)
    assert pager.silenced(incident, w.state) and pager.problem == "" and len(posted(other)) == 1
    assert [r.message for r in caplog.records if one.url in r.message and "no leader" in r.message] != []
    assert len([r for r in caplog.records if one.url in r.message]) == 1


def test_all_of_several_that_are_down_are_named(pair: tuple[FaultProxy, FaultProxy, Pager], world: Make) -> None:
    one, other, pager = pair
    down(one, "gone fishing")
    down(other, "so have I")
    pager.turn(hurt(world).state, NOW)
    for server, words in ((one, "gone fishing"), (other, "so have I")):
        assert server.url in pager.problem and words in pager.problem
