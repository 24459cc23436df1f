"""What every scheduler behind the port does alike, and how actions converge through its gate."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import pytest

from bot.model import Action, Argv, Cluster, Done, Holder, Next, Report, Wait
from bot.ports import Gate, Scheduler
from bot.schedulers.gate_process import GateProcess
from bot.schedulers.simulated import SimulatedGate, SimulatedScheduler
from bot.schedulers.slurm import SlurmScheduler
from tests.real.bot import ACCOUNT, BIN, GATE_ACCOUNT, install_gate
from tests.real.conftest import real_root, slurm, slurm_cluster  # noqa: F401 - fixtures
from tests.real.slurm import SlurmCluster
from tests.real.supervise import become, eventually

STEPS = 10  # gate calls and looks within which an action has converged


class Lab(Protocol):
    """One scheduler with its gate, and what users, people and hardware do to it. Eight nodes of eight GPUs."""

    @property
    def scheduler(self) -> Scheduler: ...

    @property
    def gate(self) -> Gate: ...

    def submit(self) -> str:
        """One whole node, until it is stopped."""
        ...

    def drain(self, node: str) -> None: ...

    def requeue(self, job: str) -> None: ...

    def lose(self, node: str) -> None: ...

    def pass_time(self) -> None: ...


class Simulated:
    def __init__(self) -> None:
        self.now = 1_800_000_000
        self.scheduler = SimulatedScheduler(now=self.now)
        self.scheduler.add_nodes([f"node-{number:02d}" for number in range(1, 9)])
        self.gate = SimulatedGate(self.scheduler)
        self.jobs = 0

    def submit(self) -> str:
        self.jobs += 1
        self.scheduler.submit(str(self.jobs), 1)
        return str(self.jobs)

    def drain(self, node: str) -> None:
        self.scheduler.hold(node, Holder("person", "root", "bad cable", since=self.now))

    def requeue(self, job: str) -> None:
        self.scheduler.requeue(job, delay=1)

    def lose(self, node: str) -> None:
        self.scheduler.lose(node)

    def pass_time(self) -> None:
        self.now += 15
        self.scheduler.turn(self.now)


class Slurm:
    """The gate as installed on a site, called as the bot calls it."""

    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster = cluster
        self.scheduler = SlurmScheduler(str(cluster.conf), match=lambda job: True)
        install_gate(cluster, folder)
        self.gate = GateProcess([*become(ACCOUNT), "sudo", "-n", "-u", GATE_ACCOUNT, f"{BIN}/xidbot-gate"])

    def submit(self) -> str:
        wants = ("--nodes=1", "--gpus-per-node=8", "--mem=1G", "--account=research", "--requeue")
        return self.cluster.submit("#!/bin/bash\nexec sleep 1000\n", *wants)

    def drain(self, node: str) -> None:
        self.cluster.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=bad cable")

    def requeue(self, job: str) -> None:
        self.cluster.requeue(job)

    def lose(self, node: str) -> None:
        """Slurm itself would let the job wait for two minutes."""
        self.cluster.down(node)
        job = next(str(j["job_id"]) for j in self.cluster.jobs() if j["job_state"] in ("PENDING", "COMPLETING"))
        self.cluster.wait_job(job, "PENDING")
        self.cluster.run("scontrol", "update", f"jobid={job}", "StartTime=now+1")

    def pass_time(self) -> None:
        time.sleep(0.3)


@pytest.fixture(params=["simulated", pytest.param("slurm", marks=pytest.mark.real)])
def lab(request: pytest.FixtureRequest) -> Lab:
    if request.param == "simulated":
        return Simulated()
    folder = request.getfixturevalue("real_root") / f"contract-{time.monotonic_ns()}"
    return Slurm(request.getfixturevalue("slurm"), folder)


def look(lab: Lab, *watch: str) -> Cluster:
    now = lab.now if isinstance(lab, Simulated) else int(time.time())
    return lab.scheduler.snapshot(now, watch)


def see(lab: Lab, what: Callable[[Cluster], bool]) -> Cluster:
    """The first look that shows it."""

    def seen() -> Cluster | None:
        lab.pass_time()
        cluster = look(lab)
        return cluster if what(cluster) else None

    return eventually(seen, within=20, every=0.05, why="the scheduler shows it")


def states(cluster: Cluster, job: str) -> list[tuple[str, str]]:
    return [(a.id, a.state) for a in cluster.jobs[job].attempts]


def running(lab: Lab, job: str, ordinal: int = 0) -> str:
    """The node on which this attempt of the job runs."""
    cluster = see(lab, lambda c: states(c, job)[-1] == (f"{job}#{ordinal}", "RUNNING"))
    attempts = cluster.jobs[job].attempts
    return attempts[-1].nodes[0]


def converge(lab: Lab, action: Action) -> Next:
    """Ask, do, ask: as the actor does, until nothing is missing."""
    for _ in range(STEPS):
        step = lab.scheduler.next_command(action, look(lab, action.target))
        if isinstance(step, Argv):
            call(lab, action, step)
        elif not isinstance(step, Wait):
            return step
        lab.pass_time()
    raise AssertionError(f"{action.key} does not converge: {step}")


def call(lab: Lab, action: Action, step: Argv) -> Report:
    return lab.gate.run(step, action.key)


def hold(node: str, tag: str = "412.1") -> Action:
    return Action(tag, "hold_node", node, why="GPU 3 lost", review=1_800_100_000)


def release(node: str) -> Action:
    return Action("r7", "release_node", node, why="repaired")


def requeue(job: str, ordinal: int = 0) -> Action:
    return Action("412.1", "requeue", job, attempt=f"{job}#{ordinal}", why="GPU 3 lost")


# -- looking -----------------------------------------------------------------------------------------------------------


def test_a_submitted_job_runs_and_fills_its_node(lab: Lab) -> None:
    job = lab.submit()
    name = running(lab, job)
    cluster = look(lab)
    node, idle = cluster.nodes[name], [n for n in cluster.nodes.values() if n.name != name]
    record = cluster.jobs[job]
    assert (node.up, node.open, node.gpus, node.gpus_used, node.holders) == (True, True, 8, 8, ())
    assert {(n.state, n.up, n.open, n.gpus_used, n.holders) for n in idle} == {("IDLE", True, True, 0, ())}
    assert (record.state, record.batch, record.requeue, record.queued) == ("RUNNING", True, True, True)
    assert (record.node_count, record.gpus_per_node) == (1, 8)
    (attempt,) = record.attempts
    assert (attempt.start is not None, attempt.end) == (True, None)


# -- holding -----------------------------------------------------------------------------------------------------------


def test_a_hold_is_ours_and_disturbs_nothing_that_runs(lab: Lab) -> None:
    job = lab.submit()
    name = running(lab, job)
    done = converge(lab, hold(name))
    assert isinstance(done, Done) and done.ours
    node = look(lab).nodes[name]
    assert (node.up, node.open, node.gpus_used, node.others) == (True, False, 8, ())
    assert node.ours and (node.ours.kind, node.ours.tag) == ("xidbot", "412.1")
    assert node.ours.why == "GPU 3 lost; review 2027-01-16T11:46Z"
    assert states(look(lab), job) == [(f"{job}#0", "RUNNING")]


def test_a_hold_of_ours_for_another_reason_is_not_taken_over(lab: Lab) -> None:
    converge(lab, hold("node-03"))
    other = converge(lab, hold("node-03", "413.1"))
    assert isinstance(other, Done) and not other.ours
    late = call(lab, hold("node-03", "413.1"), Argv("hold-node", ("node-03", "--reason", "xidbot:413.1 GPU 3 lost")))
    assert (late.exit, late.body["ours"]) == (3, False)
    tag = look(lab).nodes["node-03"].ours
    assert tag and tag.tag == "412.1"


def test_a_release_opens_the_node_again(lab: Lab) -> None:
    converge(lab, hold("node-03"))
    done = converge(lab, release("node-03"))
    assert isinstance(done, Done) and not done.ours
    node = see(lab, lambda c: c.nodes["node-03"].open).nodes["node-03"]
    assert (node.state, node.up, node.holders) == ("IDLE", True, ())


def test_what_somebody_else_holds_is_neither_overwritten_nor_lifted(lab: Lab) -> None:
    lab.drain("node-03")
    before = look(lab).nodes["node-03"]
    assert [(h.kind, h.by, h.why) for h in before.holders] == [("person", "root", "bad cable")]
    assert (before.up, before.open, before.ours) == (True, False, None)
    for action in (hold("node-03"), release("node-03")):
        done = converge(lab, action)
        assert isinstance(done, Done) and not done.ours
    late = call(lab, hold("node-03"), Argv("hold-node", ("node-03", "--reason", "xidbot:412.1 GPU 3 lost")))
    early = call(lab, release("node-03"), Argv("release-own", ("node-03",)))
    assert [(r.exit, r.body["ours"]) for r in (late, early)] == [(3, False), (3, False)]
    assert look(lab).nodes["node-03"] == before


# -- requeueing --------------------------------------------------------------------------------------------------------


def test_a_requeue_is_the_next_attempt_and_happens_once(lab: Lab) -> None:
    job = lab.submit()
    running(lab, job)
    action = requeue(job)
    first = call(lab, action, Argv("requeue", (job, "--restart", "0")))
    assert first.exit == 0
    running(lab, job, 1)
    assert isinstance(lab.scheduler.next_command(action, look(lab)), Done)
    again = call(lab, action, Argv("requeue", (job, "--restart", "0")))
    assert (again.exit, again.body["ours"]) == (3, True)
    cluster = see(lab, lambda c: len(c.jobs[job].attempts) == 2)
    assert states(cluster, job) == [(f"{job}#0", "REQUEUED"), (f"{job}#1", "RUNNING")]
    before, after = cluster.jobs[job].attempts
    assert before.end is not None and after.start is not None and before.end <= after.start
    assert cluster.jobs[job].first_submit <= cluster.jobs[job].submit


def test_a_requeue_converges(lab: Lab) -> None:
    job = lab.submit()
    running(lab, job)
    assert isinstance(converge(lab, requeue(job)), Done)
    running(lab, job, 1)


def test_after_a_hold_the_rerun_goes_elsewhere(lab: Lab) -> None:
    job = lab.submit()
    name = running(lab, job)
    converge(lab, hold(name))
    converge(lab, requeue(job))
    assert running(lab, job, 1) != name
    assert look(lab).nodes[name].gpus_used == 0


def test_a_requeue_by_somebody_else_is_not_repeated(lab: Lab) -> None:
    job = lab.submit()
    running(lab, job)
    lab.requeue(job)
    running(lab, job, 1)
    step = lab.scheduler.next_command(requeue(job), look(lab))
    assert isinstance(step, Done) and not step.ours
    late = call(lab, requeue(job), Argv("requeue", (job, "--restart", "0")))
    assert (late.exit, late.body["ours"]) == (3, False)
    assert states(look(lab), job)[-1] == (f"{job}#1", "RUNNING")


def test_a_lost_node_is_down_and_its_job_runs_again_by_itself(lab: Lab) -> None:
    job = lab.submit()
    name = running(lab, job)
    lab.lose(name)
    down = look(lab).nodes[name]
    assert (down.up, down.open, down.ours) == (False, False, None)
    assert running(lab, job, 1) != name
    cluster = see(lab, lambda c: len(c.jobs[job].attempts) == 2)
    assert states(cluster, job) == [(f"{job}#0", "NODE_FAIL"), (f"{job}#1", "RUNNING")]
    assert isinstance(lab.scheduler.next_command(requeue(job), cluster), Done)
