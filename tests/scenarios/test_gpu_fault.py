"""A hard GPU fault on a node of a running session, in every mode."""

from __future__ import annotations

from bot.model import Recovery
from tests.scenarios.world import Make, running


def test_approved_fault_is_held_requeued_regained_and_survived(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    (plan,) = w.plans()
    assert [a.step for a in plan.actions] == ["hold_node", "requeue"]
    assert w.verbs() == []

    assert "Approved" in w.say("UOPER", f"approve {plan.id}")
    w.run(minutes=1)
    assert w.verbs() == ["hold-node", "requeue"]
    assert w.scheduler.nodes["node-01"].ours is not None
    assert "node-01" not in w.scheduler.jobs["123"].attempts[-1].nodes
    recovery = w.recovery("123")
    assert [link.origin for link in recovery.chain] == ["approved"]
    assert recovery.regained is None

    w.good("node-01")
    w.save("123", 100)  # the same step again: nothing is regained by repeating
    w.run(minutes=1)
    assert w.recovery("123").regained is None
    w.save("123", 150)
    w.run(seconds=30)
    assert w.recovery("123").regained is not None
    w.run(minutes=6)
    recovery = w.recovery("123")
    assert (recovery.outcome, recovery.chain_class) == ("survived", "assisted")
    incident = w.incident("gpu_fault", "node-01")
    assert incident is not None and incident.closed_why == "the runs are settled and the node is held"
    assert len(w.state.our_holds()) == 1  # the hold lives on


def test_who_may_not_is_refused_at_the_click(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    (plan,) = w.plans()
    assert "needs the role operator" in w.say("UVIEW", f"approve {plan.id}")
    assert "you have none" in w.say("USTRANGER", f"approve {plan.id}")
    w.run(minutes=1)
    assert w.verbs() == []


def test_a_role_taken_away_between_click_and_act_is_refused_by_the_actor(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    w.gate.before = lambda argv: None
    original = w.people.roles.pop("UOPER")
    w.people.roles["UOPER"] = original
    (plan,) = w.plans()
    real_of = w.people.of
    calls: list[str] = []

    def once(user: str) -> object:
        calls.append(user)
        return real_of(user) if len(calls) == 1 else None

    w.people.of = once  # type: ignore[assignment, method-assign]
    w.say("UOPER", f"approve {plan.id}")
    w.run(seconds=30)
    assert w.verbs() == []
    (failed,) = w.plans("failed")
    assert "role: UOPER may not do this any more" in failed.why


def test_observe_only_records_what_it_would_have_done(world: Make) -> None:
    w = running(world, write_mode="observe")
    w.fault("node-01")
    w.run(minutes=5)
    assert w.verbs() == []
    assert [e.step for e in w.events("ActionWithheld")] == ["hold_node", "requeue"]  # type: ignore[attr-defined]
    assert "is in mode observe" in w.say("UOPER", "approve 1.1.1")


def test_auto_recovers_a_dead_run_without_asking(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("node-02")
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)
    assert w.verbs() == ["hold-node", "requeue"]
    assert [link.origin for link in w.recovery("123").chain] == ["auto"]


def test_a_running_run_is_asked_about_even_in_auto(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("node-02")
    w.run(minutes=1)
    assert w.verbs() == []
    assert w.plans()[0].mode == "approve"


def test_refused_by_the_gate_in_auto_asks_a_person(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.gate.refuse = "caps: 1 of 1 nodes held"
    w.fault("node-02")
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)
    (failed,) = w.plans("failed")
    assert "caps: 1 of 1" in failed.why
    (asked,) = w.plans()
    assert asked.mode == "approve"
    w.gate.refuse = ""
    w.say("UOPER", f"approve {asked.id}")
    w.run(minutes=1)
    assert w.scheduler.jobs["123"].state == "RUNNING"


def test_expired_approval_does_nothing_and_is_not_asked_again(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(minutes=35)
    assert [p.status for p in w.plans("expired")] == ["expired"]
    assert w.plans() == []
    assert [e.who for e in w.events("PlanReminded")] == ["on call", "secondary"]  # type: ignore[attr-defined]
    assert w.verbs() == []


def test_acknowledged_stops_the_reminder_only(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    assert "No more reminders" in w.say("UOPER", "ack 1")
    w.run(minutes=20)
    assert w.events("PlanReminded") == []
    assert len(w.plans()) == 1


def test_drained_by_a_person_meanwhile_voids_the_plan(world: Make) -> None:
    from bot.model import Holder

    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    (plan,) = w.plans()
    w.scheduler.hold("node-01", Holder("person", "root", "looks bad", since=w.now))
    assert "facts have changed" in w.say("UOPER", f"approve {plan.id}") or w.plans("voided")
    w.run(seconds=30)
    (voided,) = w.plans("voided")
    assert "held by person:root" in voided.why
    assert w.verbs() == []


def test_done_by_hand_is_external_and_nothing_is_done_by_us(world: Make) -> None:
    from bot.model import Holder

    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    w.scheduler.hold("node-01", Holder("person", "root", "looks bad", since=w.now))
    w.scheduler.requeue("123", delay=0)
    w.run(minutes=1)
    w.save("123", 150)
    w.run(minutes=7)
    recovery = w.recovery("123")
    assert [link.origin for link in recovery.chain] == ["external"]
    assert (recovery.outcome, recovery.chain_class) == ("survived", "manual")
    assert w.verbs() == []


def test_node_failure_requeued_by_the_scheduler_is_its_own_recovery(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.scheduler.lose("node-03")
    w.run(minutes=1)
    assert w.incident("session_failed", "session-123") is not None
    w.save("123", 150)
    w.run(minutes=7)
    recovery = w.recovery("123")
    assert [link.origin for link in recovery.chain] == ["scheduler"]
    assert (recovery.outcome, recovery.chain_class) == ("survived", "scheduler")
    assert w.verbs() == []
    assert len(w.scheduler.jobs) == 1


def test_budget_ends_a_chain_that_never_passes_its_last_step(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("node-02")
    w.scheduler.end("123", "FAILED", "1:0")
    for _ in range(4):
        w.run(minutes=3)
        if w.scheduler.jobs["123"].attempts[-1].alive:
            w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=5)
    recovery = w.recovery("123")
    assert recovery.outcome == "given_up"
    assert recovery.why == "3 attempts without a new checkpoint"
    assert len(recovery.chain) == 3
    assert w.verbs().count("requeue") == 3
    starts = [link.started for link in recovery.chain]
    ends = [link.ended for link in recovery.chain if link.ended is not None]
    assert starts[1] - ends[0] >= 30 and starts[2] - ends[1] >= 60  # the gap doubles


def test_another_controller_of_record_is_only_observed(world: Make) -> None:
    w = running(world, write_mode="auto", controller="AJR")
    w.fault("node-02")
    w.scheduler.end("123", "FAILED")
    w.run(minutes=2)
    assert w.verbs() == []
    assert "AJR is the controller of record" in w.plans()[0].why


def test_a_host_that_maps_to_no_node_is_shown_and_never_acted_on(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("nvidia-dcgm-exporter-42gcj", known=False)
    w.run(minutes=2)
    assert w.incident("gpu_fault", "nvidia-dcgm-exporter-42gcj") is not None
    assert w.verbs() == []
    assert "no node nvidia-dcgm-exporter-42gcj" in w.say("UOPER", "exclude nvidia-dcgm-exporter-42gcj")
    assert w.verbs() == []


def test_pause_stops_everything_and_resume_looks_anew(world: Make) -> None:
    w = running(world, write_mode="auto")
    assert "Paused" in w.say("UOPER", "pause fabric work")
    w.fault("node-02")
    w.scheduler.end("123", "FAILED")
    w.run(minutes=2)
    assert w.verbs() == ["pause"]
    assert "paused by UOPER" in w.plans()[0].why
    assert "Resumed" in w.say("UADMIN", "resume")
    w.run(minutes=1)
    assert w.verbs() == ["pause", "resume", "hold-node", "requeue"]


def test_restart_opens_nothing_twice_and_loses_nothing(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    before = len(w.events("IncidentOpened")), len(w.plans())
    w.restart()
    w.run(minutes=1)
    assert (len(w.events("IncidentOpened")), len(w.plans())) == before == (1, 1)


def test_a_gpu_that_went_on_saving_was_never_hurt(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    w.good("node-01")
    for step in range(150, 900, 50):
        w.save("123", step)
        w.run(minutes=1)
    recovery = w.recovery("123")
    assert (recovery.outcome, recovery.chain_class) == ("cancelled", "none")


def test_a_run_that_dies_while_asked_about_is_brought_back_where_dead_runs_are(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("node-02")
    w.run(minutes=1)
    assert w.plans()[0].mode == "approve"
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)
    assert w.verbs() == ["hold-node", "requeue"]
    assert [p.why for p in w.plans("voided")] == ["more can be done now than was asked"]


def test_the_attempt_that_recovered_a_run_may_fail_later_and_that_is_told(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("node-02")
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)
    w.good("node-02")
    w.save("123", 500)
    w.run(minutes=8)
    assert w.recovery("123").outcome == "survived"
    w.run(minutes=30)
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(minutes=1)
    assert w.incident("session_failed", "session-123") is not None


def test_a_failure_first_seen_when_its_rerun_runs_is_told_of_the_failed_attempt(world: Make) -> None:
    w = running(world)
    w.scheduler.turn(w.now + 5)
    w.scheduler.requeue("123", "NODE_FAIL", delay=0)
    w.scheduler.turn(w.now + 10)
    w.run(minutes=1)
    recovery = w.recovery("123")
    assert recovery.failed_attempt == "123#0"
    assert [link.origin for link in recovery.chain] == ["scheduler"]


def test_what_is_new_on_a_node_whose_fault_only_waits_for_its_run_is_told(world: Make) -> None:
    """The run is requeued and pends for hours; nobody has held the node."""
    w = running(world, write_mode="observe")
    w.fault("node-01", "xid_repair", value=64.0, text="Xid 64")
    w.run(minutes=1)
    w.good("node-01", "xid_repair")
    w.fault("node-01", "uncorrectable_remap", hard=False, evidence=0.75, value=3.0, text="3 rows")
    w.run(minutes=1)
    w.good("node-01", "uncorrectable_remap")
    w.run(minutes=6)
    w.fault("node-01", "nvlink_errors", hard=False, evidence=0.5, value=20.0, text="20 replays")
    w.run(minutes=5)
    assert [i.kind for i in w.state.open_incidents()] == ["gpu_fault"]
    w.eyes.sudden.add("node-01")
    w.fault("node-01", "xid_test", hard=False, evidence=0.75, value=149.0, text="Xid 149 on GPU 7")
    w.run(minutes=1)
    assert [i.kind for i in w.state.open_incidents()] == ["gpu_fault", "precursor"]
    warned = w.incident("precursor", "node-01")
    assert warned is not None and warned.reasons[0].text == "Xid 149 on GPU 7"
    w.eyes.sudden.clear()
    w.good("node-01", "xid_test")
    w.good("node-01", "nvlink_errors")
    w.run(minutes=11)
    assert [i.kind for i in w.state.open_incidents()] == ["gpu_fault"]


def test_a_run_whose_saves_nobody_sees_does_not_keep_its_fault_open_for_ever(world: Make) -> None:
    w = world()
    w.session("123")
    w.run(minutes=1)
    w.fault("node-01")
    w.run(seconds=30)
    w.scheduler.requeue("123", delay=0)
    w.good("node-01")
    w.run(minutes=8)
    (recovery,) = w.state.open_recoveries()
    assert recovery.chain
    w.run(minutes=5)
    ended = w.state.get(Recovery, recovery.id)
    assert (ended.outcome, ended.survived) == ("censored", None)
    assert "no checkpoint of it is known" in ended.why
    fault = w.incident("gpu_fault", "node-01")
    assert fault is not None and fault.closed is not None
