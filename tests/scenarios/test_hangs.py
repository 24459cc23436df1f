"""A run that hangs or becomes slow, on a timeline: what the nodes show is set by hand, all the rest is the bot's own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from bot import policy as policies
from bot.compose import incident_card
from bot.model import Checkpoint, Incident, LogGrowth, Observation, SessionStorage, Stall, StorageView
from bot.policy import Policy
from bot.signals.job_growth import Growth
from bot.signals.peers import Groups
from bot.signals.progress import ProgressRows
from bot.signals.score import Window, look_back, score
from bot.why import explain, told
from bot.window import stays_of
from tests.scenarios.world import STEP, Eyes, Make, World

WORKING = {
    "tensor_busiest": 0.6,
    "tensor_activity": 0.4,
    "fabric_bytes": 2e9,
    "gpu_utilisation": 100.0,
    "gpu_power": 500.0,
}
STILL = {"tensor_busiest": 0.0, "tensor_activity": 0.0, "fabric_bytes": 0.0, "gpu_power": 310.0}
QUICK = {
    "progress": {
        "hung_after": "5m",
        "hung_after_alone": "8m",
        "resumed_after": "4m",
        "learn_after": "5m",
        "slow_after": "6m",
        "accepted_after": "20m",
    },
    "phases": {"start": "3m", "settle": "1m"},
}


SIGNALS = (*WORKING, "sm_clock", "storage_write", "storage_read")


@dataclass
class Meters(Eyes):
    """The world's eyes, and what the metrics of all nodes show: `shown` now, kept as the past goes by."""

    policy: Policy = field(default_factory=policies.build)
    shown: dict[str, float] = field(default_factory=lambda: dict(WORKING))
    odd: dict[tuple[str, str], float] = field(default_factory=dict)  # (signal, node): otherwise than the rest
    storage: tuple[StorageView, ...] = ()
    logs: dict[str, Growth] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.nodes = tuple(self.scheduler.nodes)
        self.table = np.full((len(SIGNALS), look_back(self.policy) // STEP + 1, len(self.nodes)), np.nan)

    def observe(self, now: int) -> Observation:
        rows = self.table.shape[1]
        self.table = np.roll(self.table, -1, axis=1)
        for s, name in enumerate(SIGNALS):
            self.table[s, -1] = [self.odd.get((name, node), self.shown.get(name, np.nan)) for node in self.nodes]
        times = now - STEP * np.arange(rows - 1, -1, -1)
        seen = super().observe(now)
        assert seen.cluster
        stays = list(stays_of(seen.cluster))
        window = Window(
            tuple(self.policy.signals[name] for name in SIGNALS),
            self.nodes,
            times,
            self.table,
            np.full(len(self.nodes), 8.0),
            np.ones(len(self.nodes), dtype=bool),
            Groups.of(stays, times, self.nodes),
        )
        running = [stay for stay in stays if stay.end is None]
        progress = ProgressRows(score(window, self.policy), running, self.policy).at(rows - 1)
        return replace(seen, progress=progress, storage=self.storage, logs=tuple(self._logs(now)))

    def _logs(self, now: int) -> Iterator[LogGrowth]:
        for run, log in self.logs.items():
            if log.moved is not None:
                yield LogGrowth(run, now, log.moved, log.times, log.longest, log.step)


def meters(make: Make, *, work: float = 8, numbers: object = QUICK, **facts: object) -> tuple[World, Meters]:
    """session-123 on node-01…04, at work for `work` minutes."""
    w = make(numbers=numbers, nodes=6, **facts)
    w.eyes = eyes = Meters(w.scheduler, policy=w.policy)
    w.session("123")
    w.run(minutes=work)
    return w, eyes


def hung(w: World) -> Incident | None:
    return w.incident("session_hung", "session-123")


def slow(w: World) -> Incident | None:
    return w.incident("session_slow", "session-123")


def kinds(w: World) -> list[str]:
    return [i.kind for i in w.state.open_incidents()]


# -- hangs -------------------------------------------------------------------------------------------------------------


def test_a_hang_opens_after_its_time_and_asks_to_requeue(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    began = w.now
    w.run(minutes=4)
    assert hung(w) is None
    w.run(minutes=2)
    incident = hung(w)
    assert incident and incident.hurt == (w.state.live_sessions()[0].key,)
    assert incident.reasons[0].since is not None and abs(incident.reasons[0].since - began) <= 2 * STEP
    assert w.recovery("123").stopped == incident.reasons[0].since
    (plan,) = w.plans()
    assert [a.step for a in plan.actions] == ["requeue"] and plan.mode == "approve" and w.verbs() == []


def test_mode_auto_does_not_kill_a_run_that_only_seems_to_hang(world: Make) -> None:
    w, eyes = meters(world, write_mode="auto")
    eyes.shown |= STILL
    w.run(minutes=10)
    assert hung(w) and w.verbs() == []


def test_an_approved_requeue_is_followed_until_the_run_has_survived(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    w.run(minutes=6)
    w.say("UOPER", "approve 1")
    w.run(seconds=30)
    assert w.verbs() == ["requeue"]
    eyes.shown |= WORKING
    w.run(minutes=3)
    w.save("123", 500)
    w.run(minutes=7)
    closed = hung(w)
    assert closed and closed.closed is not None and closed.closed_why == "regained and survived"
    assert kinds(w) == []


def test_a_hang_of_which_only_one_thing_tells_takes_longer(world: Make) -> None:
    w, eyes = meters(world)
    del eyes.shown["fabric_bytes"]
    w.run(minutes=15)
    eyes.shown |= {"tensor_busiest": 0.0, "tensor_activity": 0.0}
    w.run(minutes=7)
    assert hung(w) is None
    w.run(minutes=2)
    assert hung(w)


@pytest.mark.parametrize("signal", ["storage_write", "storage_read"])
def test_a_long_save_or_load_is_no_hang(world: Make, signal: str) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL | {signal: 300e6}
    w.run(minutes=9)
    assert kinds(w) == []


def test_a_save_that_the_trainer_tells_of_is_no_hang(world: Make) -> None:
    w, eyes = meters(world)
    w.save("123", 100)
    eyes.checkpoints = [Checkpoint("123", 100, w.now, None)]
    eyes.shown |= STILL
    w.run(minutes=12)
    assert kinds(w) == []


def test_an_evaluation_on_one_gpu_is_no_hang(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    eyes.odd["tensor_busiest", "node-02"] = 0.3
    w.run(minutes=10)
    assert hung(w) is None


def test_an_attempt_that_has_not_begun_to_work_is_given_twice_the_time_to_load(world: Make) -> None:
    w, eyes = meters(world, work=0)
    eyes.shown |= STILL
    w.run(minutes=3)
    assert kinds(w) == []
    w.run(minutes=6)  # load_time is 2 min here, and the start of an attempt is a phase of 3 min
    assert hung(w)


def test_a_run_of_few_nodes_that_uses_no_tensor_core_is_not_called_hung(world: Make) -> None:
    """A program in fp32, or somebody who has taken two nodes to think."""
    w = world(numbers=QUICK, nodes=6)
    w.eyes = eyes = Meters(w.scheduler, policy=w.policy)
    eyes.shown |= {**STILL, "gpu_power": 690.0}
    w.session("123", nodes=2)
    w.run(minutes=20)
    assert kinds(w) == []


def test_the_bot_that_comes_in_the_middle_does_not_call_an_unknown_run_hung_by_the_fabric_alone(world: Make) -> None:
    w, eyes = meters(world, work=0)
    eyes.shown.clear()
    eyes.shown["fabric_bytes"] = 0.0
    w.run(minutes=14)
    assert kinds(w) == []


def test_a_pause_that_the_run_got_out_of_before_is_no_hang_the_next_time(world: Make) -> None:
    w, eyes = meters(world)
    for _ in range(2):
        eyes.shown |= STILL
        w.run(minutes=6.5)
        eyes.shown |= WORKING
        w.run(minutes=6)
    assert len(w.events("IncidentOpened")) == 1


def test_work_that_resumes_takes_the_question_back_and_closes(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    w.run(minutes=6)
    (plan,) = w.plans()
    eyes.shown |= WORKING
    w.run(minutes=1)
    incident = hung(w)
    assert incident and incident.quiet_since is not None and incident.closed is None
    assert [p.id for p in w.plans("voided")] == [plan.id] and w.plans() == []
    w.run(minutes=4)
    incident = hung(w)
    assert incident and incident.closed is not None and incident.closed_why == "it went on by itself"
    assert w.recovery("123").outcome == "cancelled"


def test_telemetry_that_goes_dark_opens_nothing_and_closes_nothing(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown.clear()
    w.run(minutes=9)
    assert kinds(w) == []
    eyes.shown |= WORKING
    w.run(minutes=12)
    eyes.shown |= STILL
    w.run(minutes=6)
    assert kinds(w) == ["session_hung"]
    eyes.shown.clear()
    w.run(minutes=9)
    incident = hung(w)
    assert incident and incident.quiet_since is None and incident.closed is None


def test_a_job_that_ends_is_no_hang(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    w.run(minutes=2)
    w.scheduler.end("123", "COMPLETED")
    w.run(minutes=15)
    assert hung(w) is None


def test_a_watchdog_that_ends_the_hung_run_is_one_story(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    w.run(minutes=6)
    w.scheduler.end("123", "FAILED", "134:0")
    w.run(minutes=3)
    assert kinds(w) == ["session_hung"] and w.plans()[0].actions[0].step == "requeue"


def test_a_fault_that_is_told_already_explains_the_hang(world: Make) -> None:
    w, eyes = meters(world)
    w.fault("node-02")
    eyes.shown |= STILL
    w.run(minutes=8)
    assert kinds(w) == ["gpu_fault"]
    fault = w.incident("gpu_fault", "node-02")
    assert fault and fault.note == "session-123 stands still"


def test_a_node_that_is_warned_of_is_where_to_look_first(world: Make) -> None:
    w, eyes = meters(world)
    w.fault("node-02", "xid_test", hard=False, evidence=0.75)
    eyes.shown |= STILL
    w.run(minutes=6)
    incident, warned = hung(w), w.incident("precursor", "node-02")
    assert incident and warned and incident.note == f"look first at node-02 (incident {warned.id})"


def test_why_tells_of_a_run_that_stands_still_before_it_is_a_hang(world: Make) -> None:
    w, eyes = meters(world)
    assert "; it moves" in told(explain("session-123", w.state, w.policy, w.now))
    eyes.shown |= STILL
    w.run(minutes=4)
    assert "nothing moves since" in told(explain("session-123", w.state, w.policy, w.now))
    w.run(minutes=2)
    assert "no tensor core is active" in told(explain("session-123", w.state, w.policy, w.now))


def stalled(w: World) -> tuple[StorageView, ...]:
    key = w.state.live_sessions()[0].key
    run = SessionStorage(key, "save", "hang", onset=w.now)
    return (StorageView("nas:/ckpt", (run,), Stall("nas:/ckpt", "hang", "server", w.now)),)


def test_a_storage_stall_explains_that_nothing_moves_and_the_clock_begins_when_it_is_over(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    eyes.storage = stalled(w)
    w.run(minutes=12)
    assert kinds(w) == ["checkpoint_stall"]
    key = w.state.live_sessions()[0].key
    eyes.storage = (StorageView("nas:/ckpt", (SessionStorage(key, "quiet", calm_since=w.now),)),)
    w.run(minutes=4)
    assert hung(w) is None
    w.run(minutes=3)
    assert hung(w)


def test_a_stall_that_is_found_later_takes_the_hang_over(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    w.run(minutes=6)
    assert hung(w)
    eyes.storage = stalled(w)
    w.run(seconds=30)
    incident = hung(w)
    assert incident and incident.closed_why.startswith("explained by the storage stall of incident")
    assert kinds(w) == ["checkpoint_stall"] and w.plans() == []


def test_a_restarted_bot_neither_forgets_nor_repeats_a_hang(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    w.run(minutes=3)
    w.restart()
    w.run(minutes=3)
    assert hung(w)
    w.restart()
    w.run(minutes=3)
    assert len(w.events("IncidentOpened")) == 1


# -- by its log --------------------------------------------------------------------------------------------------------


def attempt(w: World) -> str:
    (session,) = w.state.live_sessions()
    assert session.latest
    return session.latest.id


def writes(w: World, eyes: Meters, minutes: float, *, step: int | None = None) -> None:
    """A line of the log each minute; steps from `step` on."""
    log = eyes.logs.setdefault(attempt(w), Growth())
    for minute in range(int(minutes)):
        log.wrote(w.now, step + 10 * minute if step is not None else None)
        w.run(minutes=1)


def unmeasured(make: Make, **facts: object) -> tuple[World, Meters]:
    """A run of which only the log tells: no profiling fields, no fabric counters."""
    w, eyes = meters(make, work=0, **facts)
    eyes.shown = {}
    w.run(minutes=5)
    return w, eyes


def test_a_log_that_falls_silent_tells_of_a_hang_where_nothing_else_does(world: Make) -> None:
    w, eyes = unmeasured(world)
    writes(w, eyes, 10, step=100)
    last = w.now - 60
    w.run(minutes=6)
    assert hung(w) is None
    w.run(minutes=2)
    incident = hung(w)
    assert incident and incident.reasons[0].since == last
    assert incident.reasons[0].text == "its log, which paused 60 s at most, stands at step 190"
    assert [plan.mode for plan in w.plans()] == ["approve"]


def test_a_log_that_goes_on_takes_it_back(world: Make) -> None:
    w, eyes = unmeasured(world)
    writes(w, eyes, 10)
    w.run(minutes=8)
    assert hung(w)
    writes(w, eyes, 6)
    incident = hung(w)
    assert incident and incident.closed_why == "it went on by itself"


def test_a_log_that_writes_seldom_is_not_called_silent_in_its_own_rhythm(world: Make) -> None:
    w, eyes = unmeasured(world)
    for _ in range(6):
        writes(w, eyes, 1)
        w.run(minutes=11)
    assert hung(w) is None
    w.run(minutes=8)
    assert hung(w)


@pytest.mark.parametrize(("lines", "step"), [(3, 100), (4, None)])
def test_a_log_that_nobody_knows_yet_tells_nothing_by_its_silence(world: Make, lines: int, step: int | None) -> None:
    w, eyes = unmeasured(world)
    writes(w, eyes, lines, step=step)
    w.run(minutes=30)
    assert hung(w) is None


def test_silence_before_the_first_step_is_a_load(world: Make) -> None:
    w, eyes = unmeasured(world, numbers={**QUICK, "recovery": {"load_time": "33m"}})
    writes(w, eyes, 6)
    w.run(minutes=12)
    assert hung(w) is None


def test_a_watchdog_that_writes_into_the_log_does_not_hide_the_hang(world: Make) -> None:
    w, eyes = meters(world)
    writes(w, eyes, 6)
    eyes.shown |= STILL
    writes(w, eyes, 6)
    assert hung(w)


def test_steps_in_the_log_are_progress_though_no_tensor_core_is_used(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    writes(w, eyes, 20, step=100)
    assert hung(w) is None and slow(w) is None
    w.run(minutes=6)
    incident = hung(w)
    assert incident and "job_log" in {reason.signal for reason in incident.reasons}


def test_a_silent_log_is_the_second_witness(world: Make) -> None:
    w, eyes = meters(world)
    del eyes.shown["fabric_bytes"]
    w.run(minutes=20)
    writes(w, eyes, 8, step=100)
    eyes.shown |= {name: value for name, value in STILL.items() if name != "fabric_bytes"}
    w.run(minutes=4)
    assert hung(w) is None
    w.run(minutes=2)
    assert hung(w)


def test_a_silent_log_says_nothing_while_the_nodes_work(world: Make) -> None:
    w, eyes = meters(world)
    writes(w, eyes, 8, step=100)
    w.run(minutes=30)
    assert kinds(w) == []


# -- slow --------------------------------------------------------------------------------------------------------------


def test_a_lasting_loss_of_pace_is_told_and_nothing_is_done(world: Make) -> None:
    w, eyes = meters(world, work=8, write_mode="auto")
    eyes.shown["tensor_activity"] = 0.22
    w.run(minutes=6)
    assert slow(w) is None
    w.run(minutes=8)
    incident = slow(w)
    assert incident and incident.reasons[0].text == "tensor activity 0.22, usually 0.40 (55%)"
    assert w.plans() == [] and w.verbs() == []


def test_a_short_loss_of_pace_is_not_told(world: Make) -> None:
    w, eyes = meters(world, work=8)
    eyes.shown["tensor_activity"] = 0.22
    w.run(minutes=5)
    eyes.shown["tensor_activity"] = 0.4
    w.run(minutes=9)
    assert slow(w) is None


def test_the_straggler_is_named_and_then_a_smaller_loss_counts(world: Make) -> None:
    w, eyes = meters(world, work=8)
    eyes.shown |= {"tensor_activity": 0.31, "sm_clock": 1980.0}
    w.run(minutes=12)
    assert slow(w) is None
    eyes.odd["sm_clock", "node-03"] = 900.0
    w.run(minutes=22)
    incident = slow(w)
    assert incident and incident.note.startswith("node-03 stands out: slowest GPU clock 900 MHz, 1980 MHz")


def test_it_closes_when_the_pace_is_back_for_a_while(world: Make) -> None:
    w, eyes = meters(world, work=8)
    eyes.shown["tensor_activity"] = 0.22
    w.run(minutes=14)
    assert slow(w)
    eyes.shown["tensor_activity"] = 0.4
    w.run(minutes=12)
    incident = slow(w)
    assert incident and incident.closed_why == "its usual pace again"


def test_a_pace_that_nobody_mends_is_the_usual_one_after_a_while(world: Make) -> None:
    w, eyes = meters(world, work=8)
    eyes.shown["tensor_activity"] = 0.22
    w.run(minutes=40)
    incident = slow(w)
    assert incident and incident.closed_why == "nothing has changed it: taken as the usual level now"
    assert len(w.events("IncidentOpened")) == 1


def test_a_slow_run_that_ends_closes_it(world: Make) -> None:
    w, eyes = meters(world, work=8)
    eyes.shown["tensor_activity"] = 0.22
    w.run(minutes=14)
    w.scheduler.end("123", "COMPLETED")
    w.run(minutes=1)
    incident = slow(w)
    assert incident and incident.closed_why == "the attempt has ended"


# -- what people read --------------------------------------------------------------------------------------------------


def test_the_message_of_a_hang_says_since_when_and_what_still_looks_busy(world: Make) -> None:
    w, eyes = meters(world)
    eyes.shown |= STILL
    w.run(minutes=6)
    incident = hung(w)
    assert incident
    text = "\n".join(incident_card(incident, w.state, w.policy, "UTC").paragraphs)
    assert "no tensor core is active on any of its 4 nodes" in text and "GPU use stays at 100 %" in text
