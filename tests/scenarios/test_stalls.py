"""A storage event from the first sign to the end: one incident, no node held, two normal saves close it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from bot.compose import incident_card, story_card
from bot.model import Incident, Measures, Observation, SessionStorage, Stall, StallRule, StorageView, Verdict
from tests.scenarios.world import Eyes, World, running

Make = Callable[..., World]
EXPORT = "storage-01:/export/ckpt"
MEASURED = Measures(
    queue_share=0.93,
    in_flight=128,
    slots=128,
    backlog=411,
    rtt=0.2,
    rtt_usual=0.19,
    rate=9.1e9,
    rate_usual=39.8e9,
    link_use=0.03,
    op_mix=(("WRITE", 0.97), ("COMMIT", 0.02)),
    ceiling=671e6,
    nodes=4,
)


@dataclass
class StorageEyes:
    """The world's eyes, and storage views set by hand."""

    eyes: Eyes
    storage: tuple[StorageView, ...] = field(default=())

    def observe(self, now: int) -> Observation:
        return replace(self.eyes.observe(now), storage=self.storage)


class Storage:
    """What the mount shows of the world's runs."""

    def __init__(self, w: World, export: str = EXPORT) -> None:
        self.w, self.export = w, export
        self.eyes = w.eyes if isinstance(w.eyes, StorageEyes) else StorageEyes(w.eyes)
        w.eyes = self.eyes  # type: ignore[assignment]
        self.runs: dict[str, SessionStorage] = {}
        for session in w.state.live_sessions():
            self.runs[session.key] = SessionStorage(session.key, "quiet", calm_since=w.now, cadence=True)
        self.show(None)

    def show(self, stall: Stall | None, known: bool = True) -> None:
        others = tuple(v for v in self.eyes.storage if v.export != self.export)
        self.eyes.storage = (*others, StorageView(self.export, tuple(self.runs.values()), stall, known))

    def stall(
        self,
        verdict: Verdict = "client_slots",
        rule: StallRule = "slow_save",
        node: str = "",
        measures: Measures | None = None,
    ) -> None:
        onset = self.w.now - 30
        for key, run in self.runs.items():
            self.runs[key] = replace(run, stalled=rule, onset=onset, normal_saves=0, calm_since=None, phase="save")
        self.show(Stall(self.export, rule, verdict, onset, node, usual=120, measures=measures or MEASURED))

    def end(self, beyond: int = 900) -> None:
        for key, run in self.runs.items():
            self.runs[key] = replace(run, stalled="", onset=None, calm_since=self.w.now, beyond=beyond, phase="quiet")
        self.show(None)

    def saves(self, count: int) -> None:
        for key, run in self.runs.items():
            self.runs[key] = replace(run, normal_saves=run.normal_saves + count)
        self.show(None)


def stalled(make: Make, **facts: object) -> tuple[World, Storage]:
    w = running(make, **facts)
    storage = Storage(w)
    w.turn()
    storage.stall()
    w.turn()
    return w, storage


def told(w: World, subject: str = EXPORT) -> Incident:
    found = w.incident("checkpoint_stall", subject)
    assert found is not None
    return found


def shown(w: World, subject: str = EXPORT) -> str:
    card = incident_card(told(w, subject), w.state, w.policy, "UTC")
    return "\n".join([*card.paragraphs, card.footer])


def test_a_stall_opens_one_incident_with_its_verdict_numbers_and_advice(world: Make) -> None:
    w, _ = stalled(world)
    incident = told(w)
    assert incident.stall is not None and incident.stall.verdict == "client_slots"
    assert [w.state.get(type(s), s.key).name for s in w.state.live_sessions() if s.key in incident.hurt] == [
        "session-123"
    ]
    text = shown(w)
    for words in ("RPC slots are full", "93 %", "128 requests in flight on 128 slots", "backlog 411", "nconnect"):
        assert words.replace(" %", "%") in text.replace(" %", "%")
    assert "Worth at most 14×" in text and "671.0 MB/s a node" in text


def test_many_ticks_of_the_same_stall_are_one_incident_and_no_further_event(world: Make) -> None:
    w, _ = stalled(world)
    w.run(minutes=3)
    assert len(w.events("IncidentOpened")) == 1
    assert w.events("StallChanged") == []


def test_no_node_is_ever_held_and_nothing_is_planned(world: Make) -> None:
    for facts in ({"verdict": "node_path", "node": "node-02"}, {"verdict": "server", "rule": "hang"}):
        w = running(world, write_mode="auto")
        storage = Storage(w)
        w.turn()
        storage.stall(**facts)  # type: ignore[arg-type]
        w.run(minutes=5)
        assert w.verbs() == [] and w.plans() == [] and w.state.our_holds() == []


def test_one_nodes_path_is_told_under_that_node(world: Make) -> None:
    w = running(world)
    storage = Storage(w)
    w.turn()
    storage.stall("node_path", node="node-02")
    w.turn()
    assert "node-02" in shown(w, "node-02") and not told(w, "node-02").hard


def test_a_slow_save_in_which_nothing_is_under_way_is_told_only_of_a_node_that_holds_it_up(world: Make) -> None:
    """The others have written their part and wait for it."""
    w = running(world)
    storage = Storage(w)
    w.turn()
    idle = replace(MEASURED, in_flight=0.02)
    storage.stall("unknown", measures=idle)
    w.turn()
    assert not [i for i in w.state.open_incidents() if i.kind == "checkpoint_stall"]
    storage.stall("node_path", node="node-02", measures=idle)
    w.turn()
    assert told(w, "node-02").stall


def test_a_better_verdict_changes_the_incident_and_is_told_in_the_thread(world: Make) -> None:
    w = running(world)
    storage = Storage(w)
    w.turn()
    storage.stall("unknown")
    w.turn()
    storage.stall("server")
    w.turn()
    incident = told(w)
    assert incident.stall is not None and incident.stall.verdict == "server"
    assert len(w.events("IncidentOpened")) == 1 and len(w.events("StallChanged")) == 1


def test_it_closes_after_two_normal_saves_and_says_what_it_cost(world: Make) -> None:
    w, storage = stalled(world)
    w.run(minutes=15)
    storage.end(beyond=900)
    w.turn()
    assert told(w).closed is None and told(w).quiet_since is not None
    assert "it ended" in shown(w)
    storage.saves(1)
    w.run(minutes=40)
    assert told(w).closed is None
    storage.saves(1)
    w.turn()
    closed = told(w)
    gpus = sum(s.gpus for s in w.state.live_sessions())
    assert closed.closed is not None
    assert closed.closed_why == f"2 normal saves since; it cost up to {gpus * 900 / 3600:,.1f} idle GPU-hours"


def test_a_run_without_a_rhythm_is_watched_for_half_an_hour(world: Make) -> None:
    w, storage = stalled(world)
    storage.runs = {key: replace(run, cadence=False) for key, run in storage.runs.items()}
    storage.end()
    w.run(minutes=29)
    assert told(w).closed is None
    w.run(minutes=2)
    assert told(w).closed is not None


def test_a_stall_that_comes_back_before_it_closed_is_the_same_episode(world: Make) -> None:
    w, storage = stalled(world)
    storage.end()
    w.turn()
    storage.stall()
    w.turn()
    again = told(w)
    assert again.episode == 1 and again.quiet_since is None
    assert again.stall is not None and again.stall.ended is None


def test_what_cannot_be_measured_changes_nothing(world: Make) -> None:
    w, storage = stalled(world)
    before = len(w.store.events())
    storage.show(None, known=False)
    w.run(minutes=2)
    storage.eyes.storage = ()
    w.run(minutes=40)
    assert told(w).closed is None
    assert len(w.store.events()) == before


def test_forty_runs_on_one_mount_are_one_incident(world: Make) -> None:
    w = world(nodes=40)
    for number in range(40):
        w.session(str(1000 + number), 1)
    w.run(minutes=1)
    storage = Storage(w)
    w.turn()
    storage.stall("server")
    w.turn()
    assert len(w.events("IncidentOpened")) == 1
    assert len(told(w).hurt) == 40
    assert "and 35 more" in shown(w)


def test_two_mounts_of_one_server_that_hangs_are_one_incident_and_other_servers_are_not(world: Make) -> None:
    w = running(world)
    home, save, other = (Storage(w, e) for e in ("storage-01:/export/home", EXPORT, "nas:/export/scratch"))
    w.turn()
    for mount in (home, save, other):
        mount.stall("server", "hang")
    home.runs = {key: replace(run, phase="quiet") for key, run in home.runs.items()}
    home.show(home.eyes.storage[-1].stall and replace(home.eyes.storage[-1].stall, export=home.export))
    w.run(minutes=1)
    assert len(w.events("IncidentOpened")) == 2
    assert w.incident("checkpoint_stall", EXPORT) and w.incident("checkpoint_stall", "nas:/export/scratch")


def test_a_restarted_bot_neither_opens_nor_loses_it(world: Make) -> None:
    w, storage = stalled(world)
    w.restart()
    w.run(minutes=1)
    assert len(w.events("IncidentOpened")) == 1 and told(w).closed is None
    storage.end()
    storage.saves(2)
    w.restart()
    w.run(minutes=1)
    assert told(w).closed is not None


def test_a_run_that_a_watchdog_killed_in_a_stall_is_told_to_belong_to_it(world: Make) -> None:
    w, _ = stalled(world)
    w.scheduler.end("123", "FAILED", "134:0")
    w.run(minutes=1)
    failed = w.incident("session_failed", "session-123")
    assert failed is not None and f"during the storage stall of incident {told(w).id}" in failed.note
    assert len(w.events("IncidentChanged")) == 1


def test_it_ends_when_no_run_that_it_hurt_runs_any_more(world: Make) -> None:
    w, storage = stalled(world)
    w.scheduler.end("123", "CANCELLED")
    storage.eyes.storage = ()
    w.run(minutes=20)
    assert told(w).closed is None
    w.run(minutes=12)
    assert told(w).closed is not None and "no run" in told(w).closed_why


def test_the_thread_tells_of_the_end(world: Make) -> None:
    from bot.compose import STORY

    w, storage = stalled(world)
    storage.end(beyond=900)
    w.turn()
    (event,) = w.events("StallChanged")
    line = STORY[type(event)](event, w.state)  # type: ignore[index]
    assert line.startswith("The stall is over; it cost up to")
    assert story_card("1.1", "story", [line]).paragraphs
