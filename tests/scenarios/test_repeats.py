"""An application's Xid on one GPU again: whose fault is it?"""

from __future__ import annotations

from collections.abc import Iterable

from bot.model import AppXid, Holder, Sighting
from tests.scenarios.world import Make, World

GPU = "0000:3b:00"


def xid(w: World, node: str, gpu: str = GPU, code: int = 31, **facts: str) -> None:
    """In the kernel log from now on, as a log tells the same line for the whole window."""
    w.eyes.app_xids.append(AppXid(node, gpu, code, w.now, **facts))  # type: ignore[arg-type]


def crash(w: World, job: str, gpus: Iterable[tuple[str, str]], **facts: object) -> None:
    """A run on two nodes begins, shows the Xid on these GPUs, and ends."""
    w.session(job, nodes=2, **facts)
    w.run(minutes=1)
    for node, gpu in gpus:
        xid(w, node, gpu)
    w.run(seconds=30)
    w.scheduler.end(job, "FAILED", "1:0")
    w.run(minutes=6)


def all_gpus(*nodes: str) -> list[tuple[str, str]]:
    return [(node, f"0000:{gpu:02x}:00") for node in nodes for gpu in range(8)]


def precursors(w: World) -> list[str]:
    return [i.subject for i in w.state.open_incidents() if i.kind == "precursor"]


def test_one_gpu_under_two_owners_is_a_precursor_that_says_why(world: Make) -> None:
    w = world(write_mode="auto")
    crash(w, "201", [("node-01", GPU)], user="alice", name="llm")
    assert precursors(w) == []
    crash(w, "202", [("node-01", GPU)], user="bob", name="vision")
    assert precursors(w) == ["node-01"]
    (reason,) = [r for r in w.incident("precursor", "node-01").reasons if r.signal == "xid_repeated"]  # type: ignore[union-attr]
    assert not reason.hard and reason.evidence == 0.65 and reason.provenance == "kernel"
    for part in ("Xid 31", GPU, "202#0 vision of bob", "201#0 llm of alice", "1 of 16"):
        assert part in reason.text
    assert "hold-node" not in w.verbs(), "soft evidence takes no node out"


def test_the_same_program_on_all_its_gpus_twice_is_nothing(world: Make) -> None:
    w = world()
    for job, user in (("201", "alice"), ("202", "bob")):
        crash(w, job, all_gpus("node-01", "node-02"), user=user, name="llm")
    assert precursors(w) == []
    assert len(w.events("AppXidSeen")) <= 6, "once the program is to blame, more of the same is not kept"


def test_the_others_that_come_late_still_make_it_the_program(world: Make) -> None:
    w = world()
    crash(w, "201", [("node-01", GPU)], user="alice")
    w.session("202", nodes=2, user="bob")
    w.run(minutes=1)
    xid(w, "node-01")
    w.run(minutes=2)
    w.eyes.app_xids += [AppXid(node, gpu, 31, w.now - 120) for node, gpu in all_gpus("node-01", "node-02")]
    w.run(minutes=6)
    assert precursors(w) == []


def test_the_same_job_requeued_onto_the_same_gpu_is_nothing(world: Make) -> None:
    w = world()
    w.session("201", nodes=2, user="alice")
    for _ in range(3):
        w.run(minutes=1)
        xid(w, "node-01")
        w.run(seconds=30)
        w.scheduler.requeue("201")
        w.run(minutes=6)
    assert len(w.state.all(Sighting)) == 3
    assert precursors(w) == []


def test_the_same_program_submitted_again_by_its_owner_is_nothing(world: Make) -> None:
    w = world()
    crash(w, "201", [("node-01", GPU)], user="alice", name="llm")
    crash(w, "202", [("node-01", GPU)], user="alice", name="llm")
    assert precursors(w) == []


def test_a_fault_that_stays_with_the_gpu_after_the_ranks_moved_is_a_precursor(world: Make) -> None:
    w = world()
    w.session("201", nodes=3, user="alice")
    w.run(minutes=1)
    xid(w, "node-02")
    w.run(seconds=30)
    w.scheduler.hold("node-01", Holder("person", "root", "firmware"))
    w.scheduler.requeue("201")
    w.run(minutes=1)
    assert w.scheduler.jobs["201"].attempts[-1].nodes[0] == "node-02"
    xid(w, "node-02")
    w.run(minutes=6)
    assert precursors(w) == ["node-02"]


def test_it_survives_a_restart_and_ends_when_the_gpu_has_been_good(world: Make) -> None:
    w = world()
    crash(w, "201", [("node-01", GPU)], user="alice")
    w.restart()
    crash(w, "202", [("node-01", GPU)], user="bob")
    assert precursors(w) == ["node-01"]
    w.eyes.app_xids = []
    w.good("node-01", "xid_repeated")
    w.run(minutes=10)
    assert precursors(w) == ["node-01"], "one event counts for an hour"
    w.now += 3600
    w.run(minutes=12)
    assert precursors(w) == []
    opened = [e.incident for e in w.events("IncidentOpened")]  # type: ignore[attr-defined]
    assert [(i.kind, i.subject) for i in opened if i.kind == "precursor"] == [("precursor", "node-01")]


def test_two_runs_that_share_the_node_tell_nothing(world: Make) -> None:
    w = world(nodes=1)
    w.session("201", nodes=1, user="alice", gpus_per_node=4)
    w.session("202", nodes=1, user="bob", gpus_per_node=4)
    w.run(minutes=1)
    xid(w, "node-01")
    w.run(minutes=6)
    assert w.events("AppXidSeen") == []


def test_what_a_syslog_claims_stays_a_claim(world: Make) -> None:
    w = world()
    w.session("201", nodes=2, user="alice")
    w.run(minutes=1)
    xid(w, "node-01", provenance="claimed")
    w.run(seconds=30)
    w.scheduler.end("201", "COMPLETED")
    w.run(minutes=2)
    crash(w, "202", [("node-01", GPU)], user="bob")
    incident = w.incident("precursor", "node-01")
    assert incident is not None and [r.provenance for r in incident.reasons] == ["claimed"]
