"""What opens an incident, what keeps it quiet, what closes it."""

from __future__ import annotations

from bot.model import Holder, Incident, Session
from tests.scenarios.world import Make, World, running

SOFT = {"hard": False, "evidence": 0.7, "text": "31 remaps in 24 h"}


def kinds(w: World) -> list[str]:
    return [i.kind for i in w.state.open_incidents()]


def test_soft_evidence_opens_a_precursor_and_nothing_is_done(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("node-01", "correctable_remap_growth", **SOFT)
    w.run(minutes=5)
    assert kinds(w) == ["precursor"]
    assert w.verbs() == []
    assert w.plans() == []


def test_a_precursor_closes_after_a_while_of_good(world: Make) -> None:
    w = running(world)
    w.fault("node-01", "correctable_remap_growth", **SOFT)
    w.run(minutes=1)
    w.good("node-01", "correctable_remap_growth")
    w.run(minutes=9)
    assert kinds(w) == ["precursor"]
    w.run(minutes=2)
    assert kinds(w) == []


def test_what_the_driver_reports_of_a_node_that_is_warned_of_is_a_new_episode(world: Make) -> None:
    w = running(world)
    w.fault("node-01", "pcie_replay", hard=False, evidence=0.65, text="PCIe replays")
    w.run(minutes=5)
    w.eyes.sudden.add("node-01")
    w.fault("node-01", "xid_test", hard=False, evidence=0.75, text="Xid 74 on GPU 3")
    w.run(minutes=2)
    first, second = (i for i in w.state.all(Incident) if i.kind == "precursor")
    assert first.closed and (second.id, second.episode, second.closed) == (first.id, first.episode + 1, None)
    assert {reason.signal for reason in second.reasons} == {"pcie_replay", "xid_test"}
    assert second.reasons[0].text == "Xid 74 on GPU 3"
    w.fault("node-01", "xid_test", hard=False, evidence=0.75, value=149.0, text="Xid 149 on GPU 3")
    w.run(minutes=2)
    assert [i.episode for i in w.state.all(Incident) if i.kind == "precursor" and i.closed is None] == [3]


def test_what_hovers_at_the_line_is_one_warning(world: Make) -> None:
    """Rows remapped within a day: 10, 5, 10, 5 …; the signal says that a warning is over below 3."""
    w = running(world)
    for _ in range(3):
        w.fault("node-01", "correctable_remap_growth", **SOFT)
        w.run(minutes=1)
        w.good("node-01", "correctable_remap_growth", value=5.0)
        w.run(minutes=20)
    assert [(i.episode, i.closed) for i in w.state.all(Incident)] == [(1, None)]
    w.good("node-01", "correctable_remap_growth", value=2.0)
    w.run(minutes=11)
    assert kinds(w) == []


def test_what_gets_worse_for_days_is_told_anew_each_time_that_it_has_doubled(world: Make) -> None:
    w = running(world, numbers={"incidents": {"episode_within": "30m"}})
    episodes = []
    for rows in (9, 12, 17, 19, 30, 40):
        w.fault("node-01", "correctable_remap_growth", **SOFT | {"value": rows})
        w.run(minutes=31)
        episodes.append(max(i.episode for i in w.state.all(Incident)))
    assert episodes == [1, 1, 1, 2, 2, 3]
    closed = [i.closed_why for i in w.state.all(Incident) if i.closed is not None]
    assert set(closed) == {"it is getting worse: a new episode tells it"}


def test_a_warning_that_comes_back_is_believed_to_be_over_later(world: Make) -> None:
    w = running(world)
    for patience in (10, 20, 40):
        w.fault("node-01", "sm_clock", evidence=0.65, hard=False)
        w.run(minutes=1)
        w.good("node-01", "sm_clock")
        w.run(minutes=patience - 1)
        assert kinds(w) == ["precursor"]
        w.run(minutes=2)
        assert kinds(w) == []


def test_another_part_of_a_node_that_is_long_warned_of_is_a_new_episode(world: Make) -> None:
    """An edit of a message of last week wakes nobody."""
    w = running(world, numbers={"incidents": {"episode_within": "30m"}})
    w.fault("node-01", "correctable_remap_growth", **SOFT)
    w.run(minutes=20)
    w.fault("node-01", "pcie_width", hard=False, evidence=0.65, text="PCIe x8")
    w.run(minutes=5)
    assert [(i.episode, i.closed) for i in w.state.all(Incident)] == [(1, None)]  # of one failure, most likely
    w.good("node-01", "pcie_width")
    w.run(minutes=20)
    w.fault("node-01", "hw_slowdown", hard=False, evidence=0.62, text="slowed down by heat")
    w.run(minutes=3)
    assert kinds(w) == ["precursor"]
    w.run(minutes=2)
    first, second = w.state.all(Incident)
    assert first.closed_why == "another part shows a fault (thermal): a new episode tells it"
    assert (second.id, second.closed) == (first.id, None)
    w.run(minutes=40)
    assert len(list(w.state.all(Incident))) == 2


FADES = {"incidents": {"precursor_good_after": "10m", "precursor_faded_after": "1h"}}


def test_a_precursor_that_nobody_can_judge_any_more_fades(world: Make) -> None:
    """A slow node leaves its run: it is compared with nobody, for weeks."""
    w = world(numbers=FADES)
    w.fault("node-01", "sm_clock", evidence=0.65, hard=False)
    w.run(minutes=1)
    w.unknown("node-01", "sm_clock")
    w.good("node-01", "gpu_missing")
    w.run(minutes=58)
    assert kinds(w) == ["precursor"]
    w.fault("node-01", "sm_clock", evidence=0.65, hard=False)
    w.run(minutes=1)
    w.unknown("node-01", "sm_clock")
    w.run(minutes=58)
    assert kinds(w) == ["precursor"]
    w.run(minutes=3)
    closed = w.incident("precursor", "node-01")
    assert closed and closed.closed_why == "nothing of it has been shown any more"


def test_a_precursor_on_a_node_that_went_dark_does_not_fade(world: Make) -> None:
    w = world(numbers=FADES)
    w.fault("node-01", "sm_clock", evidence=0.65, hard=False)
    w.run(minutes=1)
    w.unknown("node-01", "sm_clock")
    w.run(minutes=90)
    assert kinds(w)[:1] == ["precursor"]


def test_a_precursor_becomes_the_fault(world: Make) -> None:
    w = running(world)
    w.fault("node-01", "correctable_remap_growth", **SOFT)
    w.run(minutes=1)
    w.fault("node-01")
    w.run(seconds=30)
    assert kinds(w) == ["gpu_fault"]
    closed = w.incident("precursor", "node-01")
    assert closed is not None and closed.closed_why == "became incident 2"


def test_unknown_neither_opens_nor_quietens(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(seconds=30)
    for signal in ("xid_reboot", "gpu_missing"):
        w.unknown("node-01", signal)
    w.run(minutes=10)
    incident = w.incident("gpu_fault", "node-01")
    assert incident is not None and incident.quiet_since is None and incident.closed is None


def test_a_fault_on_a_free_node_closes_when_clean_and_comes_back_as_an_episode(world: Make) -> None:
    w = running(world)
    w.fault("node-08")
    w.run(seconds=30)
    incident = w.incident("gpu_fault", "node-08")
    assert incident is not None and incident.hurt == ()
    w.good("node-08")
    w.run(minutes=6)
    assert kinds(w) == []
    w.fault("node-08")
    w.run(seconds=30)
    again = w.incident("gpu_fault", "node-08")
    assert again is not None and (again.id, again.episode) == (incident.id, 2)


def test_after_a_day_the_same_fault_is_a_new_incident(world: Make) -> None:
    w = world(numbers={"incidents": {"episode_within": "10m"}})
    w.fault("node-08")
    w.run(seconds=30)
    w.good("node-08")
    w.run(minutes=20)
    w.fault("node-08")
    w.run(seconds=30)
    again = w.incident("gpu_fault", "node-08")
    assert again is not None and (again.id, again.episode) == (2, 1)


def test_a_node_that_others_hold_makes_no_noise(world: Make) -> None:
    w = running(world)
    w.scheduler.hold("node-08", Holder("person", "root", "repair"))
    w.fault("node-08")
    w.fault("node-07", "correctable_remap_growth", **SOFT)
    w.scheduler.hold("node-07", Holder("maintenance", "MAINT", "firmware"))
    w.run(minutes=5)
    assert kinds(w) == []


def test_two_sick_nodes_of_one_run_are_two_incidents_and_one_plan_at_a_time(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.fault("node-02")
    w.run(minutes=1)
    assert kinds(w) == ["gpu_fault", "gpu_fault"]
    assert len(w.plans()) == 1


def test_one_lost_scrape_is_no_incident_and_a_blind_prometheus_is_one(world: Make) -> None:
    w = running(world)
    w.eyes.metrics_problem = "no answer within 10 s"
    w.turn()
    w.eyes.metrics_problem = ""
    w.run(minutes=2)
    assert kinds(w) == []
    w.eyes.metrics_problem = "no answer within 10 s"
    w.run(minutes=2)
    assert kinds(w) == ["blind"]
    w.eyes.metrics_problem = ""
    w.run(minutes=1)
    assert kinds(w) == []


def test_one_node_without_telemetry_is_named_and_many_are_one_incident(world: Make) -> None:
    w = running(world)
    w.unknown("node-03")
    w.run(minutes=2)
    assert w.incident("blind", "node:node-03") is not None
    w = running(world)
    for i in range(1, 7):
        w.unknown(f"node-{i:02d}")
    w.run(minutes=2)
    many = w.incident("blind", "nodes")
    assert many is not None and "6 nodes" in many.note
    assert kinds(w).count("blind") <= 2


def test_a_node_that_nothing_runs_on_may_be_dark_for_as_long_as_a_rebuild_takes(world: Make) -> None:
    w = running(world)
    w.unknown("node-05")
    w.run(minutes=25)
    assert w.incident("blind", "node:node-05") is None
    w.run(minutes=6)
    assert w.incident("blind", "node:node-05") is not None


def test_a_blind_node_that_slurm_says_is_down_is_not_blindness(world: Make) -> None:
    w = running(world)
    w.scheduler.lose("node-08")
    w.unknown("node-08")
    w.run(minutes=3)
    assert "blind" not in kinds(w)


def test_a_fault_that_shows_late_explains_the_failure_before_it(world: Make) -> None:
    w = running(world)
    w.scheduler.end("123", "FAILED", "1:0")
    w.run(seconds=30)
    assert kinds(w) == ["session_failed"]
    w.fault("node-01")
    w.run(seconds=30)
    assert kinds(w) == ["gpu_fault"]
    moved = [r.outcome for r in w.state.all(type(w.recovery("123"))) if r.ended is not None]
    assert moved == ["moved"]
    assert [a.step for a in w.plans()[0].actions] == ["hold_node", "requeue"]


def test_a_run_that_its_owner_ended_is_no_failure(world: Make) -> None:
    for state in ("COMPLETED", "CANCELLED", "TIMEOUT"):
        w = running(world)
        w.scheduler.end("123", state)
        w.run(minutes=3)
        assert kinds(w) == []
        (session,) = w.state.all(Session)
        assert session.ended


def test_exit_code_93_wins_over_every_playbook(world: Make) -> None:
    w = running(world, write_mode="auto")
    w.fault("node-01")
    w.scheduler.end("123", "FAILED", "93:0")
    w.run(minutes=2)
    assert w.verbs() == []
    assert "do not requeue" in w.plans()[0].why


def test_jobs_that_no_rule_names_are_never_touched(world: Make) -> None:
    w = world(write_mode="auto")
    w.scheduler.submit("9", 2, qos="normal")
    w.run(minutes=1)
    w.fault("node-01")
    w.scheduler.end("9", "FAILED")
    w.run(minutes=3)
    assert w.state.all(Session) == []
    assert "requeue" not in w.verbs()


def test_a_reused_job_id_is_another_run(world: Make) -> None:
    w = running(world)
    w.scheduler.end("123", "COMPLETED")
    w.run(minutes=1)
    w.scheduler.turn(w.now)
    w.scheduler.submit("123", 4)
    w.run(minutes=1)
    assert len(w.state.all(Session)) == 2
    assert len(w.state.live_sessions()) == 1


def test_a_queued_successor_is_the_same_run(world: Make) -> None:
    w = running(world)
    w.scheduler.submit("124", 4, dependency="afterany:123(unfulfilled)")
    w.run(minutes=1)
    (session,) = w.state.live_sessions()
    assert session.jobs == ("123", "124")


def test_a_run_is_as_large_as_its_job_that_runs(world: Make) -> None:
    w = running(world, nodes=4)
    w.scheduler.submit("124", 2, dependency="afterany:123(unfulfilled)")
    w.run(minutes=1)
    told = len(w.events("SessionSeen"))
    assert w.state.live_sessions()[0].gpus == 32
    w.run(minutes=5)
    assert len(w.events("SessionSeen")) == told
    w.scheduler.end("123", "COMPLETED")
    w.run(minutes=2)
    assert w.state.live_sessions()[0].gpus == 16


def test_what_cannot_be_requeued_is_said_and_not_tried(world: Make) -> None:
    w = world(write_mode="auto")
    w.session("123", requeue=False)
    w.run(minutes=1)
    w.fault("node-01")
    w.scheduler.end("123", "FAILED")
    w.run(minutes=2)
    assert w.verbs() == []
    assert "cannot be requeued" in w.plans()[0].why


def test_no_spare_node_asks_instead_of_holding(world: Make) -> None:
    w = running(world, write_mode="auto", nodes=4)
    w.fault("node-01")
    w.scheduler.end("123", "FAILED")
    w.run(minutes=2)
    assert w.verbs() == []
    (plan,) = w.plans()
    assert plan.mode == "approve" and "it needs 4 nodes and 3 could take it" in plan.why


def test_veto_acts_unless_stopped(world: Make) -> None:
    book = {
        "id": "gpu_fault_hard",
        "title": "t",
        "why": "w",
        "when": {"kind": "gpu_fault", "hard": "true"},
        "steps": [{"step": s, "dead": "veto", "degraded": "veto", "running": "veto"} for s in ("hold_node", "requeue")],
    }
    w = running(world, write_mode="veto", site_playbooks=[book])
    w.fault("node-01")
    w.run(minutes=9)
    assert w.verbs() == []
    w.run(minutes=3)
    assert w.verbs() == ["hold-node", "requeue"]

    w = running(world, write_mode="veto", site_playbooks=[book])
    w.fault("node-01")
    w.run(minutes=2)
    assert "Rejected" in w.say("UOPER", "reject 1 known sensor")
    w.run(minutes=15)
    assert w.verbs() == []


def test_bot_away_for_an_hour_tells_late_what_happened_meanwhile(world: Make) -> None:
    w = running(world)
    w.now += 1800
    w.scheduler.turn(w.now)
    w.scheduler.end("123", "FAILED", "1:0")
    w.now += 1800
    w.run(minutes=1)
    assert kinds(w) == ["session_failed"]
