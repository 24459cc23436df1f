"""`why`: each stage missing in turn."""

from __future__ import annotations

import json
from pathlib import Path

import yaml
from click.testing import CliRunner

from bot.cli_why import why
from bot.guards import GUARDS
from bot.model import Observation, Request
from bot.why import REMEDIES, Stage, explain
from commands.run import Asked, Services
from commands.why import why as typed
from tests.scenarios.world import Make, World, running


def stages(w: World, word: str = "session-123") -> dict[str, Stage]:
    found = explain(word, w.state, w.policy, w.now, "Asia/Seoul")
    assert [stage.name for stage in found] == ["seen", "signal", "decision", "guard", "next"]
    assert all("\n" not in stage.text and stage.text for stage in found)
    return {stage.name: stage for stage in found}


def verdicts(found: dict[str, Stage]) -> list[str]:
    return [stage.verdict for stage in found.values()]


def test_every_guard_has_a_remedy() -> None:
    assert REMEDIES.keys() == {name for name, _ in GUARDS}


def test_a_job_under_no_rule_is_not_seen(world: Make) -> None:
    w = world()
    w.session("77", qos="debug")
    w.run(minutes=1)
    found = stages(w, "session-77")
    assert verdicts(found) == ["no", "no", "no", "no", ""]
    assert "qos=pretrain" in found["seen"].text
    assert "`sessions:`" in found["next"].text


def test_nothing_bad_was_seen(world: Make) -> None:
    w = running(world)
    found = stages(w)
    assert verdicts(found) == ["yes", "no", "no", "no", ""]
    assert "job 123" in found["seen"].text and "4 nodes" in found["seen"].text
    assert found["signal"].text == "nothing bad on its 4 nodes"
    assert found["next"].text == "nothing to do"


def test_unknown_readings_are_named(world: Make) -> None:
    w = running(world)
    w.good("node-02")
    w.unknown("node-02")
    w.run(minutes=1)
    assert "unknown: gpu_missing on node-02" in stages(w)["signal"].text


def test_a_reading_that_a_save_mutes_is_as_it_was_before(world: Make) -> None:
    w = running(world)
    w.fault("node-02", "nvlink_errors", evidence=0.3, hard=False, text="errors")
    w.run(minutes=1)
    told = len(w.events("ReadingChanged"))
    w.good("node-02", "gpu_missing")
    for signal in ("nvlink_errors", "gpu_power"):
        w.unknown("node-02", signal, muted=True)
    w.run(minutes=5)
    assert len(w.events("ReadingChanged")) == told
    assert "evidence 0.30" in stages(w)["signal"].text and "unknown" not in stages(w)["signal"].text


def test_weak_evidence_opens_nothing(world: Make) -> None:
    w = running(world)
    w.fault("node-02", "correctable_remap_growth", evidence=0.3, hard=False, text="remaps")
    w.run(minutes=1)
    assert "evidence 0.30; a precursor needs 0.6 for 4 min" in stages(w)["signal"].text


def test_observe_mode_stops_at_the_decision(world: Make) -> None:
    w = running(world, write_mode="observe")
    w.fault("node-01")
    w.run(minutes=1)
    found = stages(w)
    assert verdicts(found) == ["yes", "yes", "stop", "yes", ""]
    assert "node-01 Xid 79 (xid_reboot, hard)" in found["signal"].text
    assert found["decision"].text.startswith("drain node-01, requeue job 123; mode observe")
    assert "raise site.write_mode to approve (it is observe)" in found["next"].text


def test_caps_stop_it_and_a_person_may_override(world: Make) -> None:
    w = running(world, nodes=12)
    w.say("UOPER", "exclude node-12")
    w.run(minutes=1)
    w.fault("node-01")
    w.run(minutes=1)
    found = stages(w)
    assert verdicts(found) == ["yes", "yes", "yes", "stop", ""]
    assert "held nodes: caps: 1 of 1 nodes already held by us (node-12)" in found["guard"].text
    assert "readmit" in found["next"].text and "or `approve 1.1.1` before" in found["next"].text


def test_a_pause_stops_a_plan_that_was_fine_when_proposed(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(minutes=1)
    w.say("UOPER", "pause fabric work")
    found = stages(w)
    assert found["guard"].verdict == "stop"
    assert "pause: paused by UOPER: fabric work" in found["guard"].text
    assert "`resume`" in found["next"].text


def test_no_room_for_the_run_is_the_guard_fit(world: Make) -> None:
    w = running(world, nodes=4)
    w.fault("node-01")
    w.run(minutes=1)
    found = stages(w)
    assert found["guard"].verdict == "stop"
    assert "fit: it would not start again" in found["guard"].text


def test_another_controller_stops_it(world: Make) -> None:
    w = running(world, write_mode="auto", controller="AJR")
    w.fault("node-01")
    w.run(minutes=1)
    found = stages(w)
    assert verdicts(found)[3] == "stop"
    assert "AJR is the controller of record" in found["guard"].text


def test_an_unreadable_scheduler_is_a_stop(world: Make) -> None:
    w = running(world)
    w.scheduler.broken = "no answer"
    w.run(minutes=2)
    found = stages(w)
    assert found["seen"].verdict == "stop"
    assert "scheduler cannot be read since" in found["seen"].text


def test_unreadable_metrics_are_no_signal(world: Make) -> None:
    w = running(world)
    w.eyes.metrics_problem = "no answer"
    w.run(minutes=2)
    found = stages(w)
    assert found["signal"].verdict == "no"
    assert "prometheus cannot be read since" in found["signal"].text
    assert "xidbot doctor" in found["next"].text


def test_it_waits_for_an_approval_then_is_done(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(minutes=1)
    found = stages(w)
    assert verdicts(found) == ["yes", "yes", "yes", "yes", ""]
    assert found["next"].text.startswith("`approve 1.1.1` before ")
    w.say("UOPER", "approve 1.1.1")
    w.good("node-01")
    w.run(minutes=1)
    found = stages(w)
    assert found["guard"].text == "drain node-01: done, requeue job 123: done"
    assert found["next"].text == "waits for a checkpoint beyond step 100"
    w.save("123", 150)
    w.run(minutes=1)
    assert stages(w)["next"].text.startswith("regained ")
    w.run(minutes=6)
    assert stages(w)["next"].text == "nothing to do: survived, regained and survived"


def test_a_rejected_plan_and_a_refusal_of_the_gate_are_stops(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(minutes=1)
    w.say("UOPER", "reject 1.1.1 bad sensor")
    found = stages(w)
    assert (found["guard"].verdict, found["guard"].text) == ("stop", "plan 1.1.1 rejected: bad sensor")
    assert found["next"].text == "`retry session-123` requeues it by hand"


def test_what_the_gate_refused_is_told(world: Make) -> None:
    w = running(world)
    w.gate.refuse = "train is not in the gate's list"
    w.fault("node-01")
    w.run(minutes=1)
    w.say("UOPER", "approve 1.1.1")
    found = stages(w)
    assert found["guard"].verdict == "stop"
    assert "drain node-01: refused, train is not in the gate's list" in found["guard"].text


def test_nodes_incidents_and_job_ids_lead_to_the_same_plan(world: Make) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(minutes=1)
    for word in ("node-01", "1", "1.1", "incident-1", "123"):
        found = stages(w, word)
        assert verdicts(found) == ["yes", "yes", "yes", "yes", ""], word
        assert "`approve 1.1.1`" in found["next"].text
    assert stages(w, "node-03")["seen"].text == "node node-03: session-123 runs there"
    assert stages(w, "node-99")["seen"].verdict == "no"
    assert stages(w, "node-99")["signal"].text == "nothing to look at"


def test_a_node_that_was_excluded_waits_for_proof(world: Make) -> None:
    w = running(world)
    w.say("UOPER", "exclude node-08 noisy fan")
    w.run(minutes=1)
    found = stages(w, "node-08")
    assert "held by us since" in found["seen"].text and "(noisy fan)" in found["seen"].text
    assert (found["decision"].text, found["guard"].text) == ("drain node-08, typed by UOPER", "drain node-08: done")
    assert found["next"].text == "`readmit node-08 REASON` gives it back, with proof"


def test_slack_shows_the_same(world: Make) -> None:
    w = running(world)
    services = Services(w.state, Observation(w.now, w.now), w.policy, w.people, w.now, "Asia/Seoul")
    reply = typed(Asked(Request("why session-123", "UVIEW", w.now), ("session-123",), services))
    assert reply.text.startswith("```\nseen       yes   job 123")
    assert reply.text.count("\n") == 6 and not reply.events


def test_the_command_reads_while_the_bot_holds_the_database(world: Make, tmp_path: Path) -> None:
    w = running(world)
    w.fault("node-01")
    w.run(minutes=1)
    site = tmp_path / "site.yaml"
    site.write_text(
        yaml.safe_dump(
            {
                "site": {"name": "lab", "write_mode": "approve"},
                "prometheus": {"url": "http://127.0.0.1:9"},
                "scheduler": {"kind": "slurm"},
            }
        )
    )
    facts = {"config": str(site), "db": str(w.path)}
    done = CliRunner().invoke(why, ["session-123"], obj=facts)
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0].startswith("seen       yes   job 123")
    told = json.loads(CliRunner().invoke(why, ["session-123", "--json"], obj=facts).output)
    assert [stage["verdict"] for stage in told] == ["yes", "yes", "yes", "yes", ""]
    assert CliRunner().invoke(why, ["session-9"], obj=facts).exit_code == 1
    gone = CliRunner().invoke(why, ["session-9"], obj={**facts, "db": str(tmp_path / "none.db")})
    assert gone.exit_code == 3
    assert "cannot be read" in gone.output
