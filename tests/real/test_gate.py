"""The gate on a real Slurm, called as the bot calls it: by sudo, from an account that may not drain."""

from __future__ import annotations

import json
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bot.errors import GateError
from bot.model import Action, Argv, Cluster, Done, Report
from bot.schedulers.gate_process import GateProcess
from bot.schedulers.slurm import SlurmScheduler, next_command
from tests.real.bot import ACCOUNT, BIN, GATE_ACCOUNT, GATE_YAML, executable, install_gate
from tests.real.slurm import SlurmCluster
from tests.real.supervise import become, eventually

pytestmark = pytest.mark.real

REASON = "xidbot:412.1 GPU 3 lost (Xid 79 = off the bus), it's node-03's; review 2030-01-02T09:00Z"
SLEEP = "#!/bin/bash\nexec sleep 1000\n"
SLOW_TO_STOP = "#!/bin/bash\ntrap 'sleep 1; exit 1' TERM\nsleep 1000 & wait\nsleep 1\n"
BATCH = ("--nodes=1", "--gpus-per-node=1", "--mem=1G", "--account=research", "--requeue")


@dataclass
class Lab:
    """The gate as installed on a site; over: settings of gate.yaml that differ."""

    slurm: SlurmCluster
    folder: Path

    def install(self, **over: object) -> None:
        install_gate(self.slurm, self.folder, **over)

    @property
    def words(self) -> list[str]:
        return [*become(ACCOUNT), "sudo", "-n", "-u", GATE_ACCOUNT, f"{BIN}/xidbot-gate"]

    def __call__(self, verb: str, *operands: str, key: str = "k1") -> Report:
        return GateProcess(self.words).run(Argv(verb, operands), key)

    def requeue(self, job: str, restart: int = 0, key: str = "k1") -> Report:
        return self("requeue", job, "--restart", str(restart), key=key)

    def hold(self, node: str = "node-03", key: str = "k1") -> Report:
        return self("hold-node", node, "--reason", REASON, key=key)

    def stages(self, key: str = "k1") -> list[str]:
        lines = (self.folder / "gate.jsonl").read_text().splitlines()
        return [entry["stage"] for entry in map(json.loads, lines) if entry["key"] == key]

    def look(self, *watch: str) -> Cluster:
        return SlurmScheduler(str(self.slurm.conf)).snapshot(int(time.time()), watch)

    def shim(self, script: str) -> None:
        """`script` runs in front of the gate's scontrol."""
        text = f'#!/bin/bash\n{script}\nexec /usr/bin/scontrol "$@"\n'
        self.install(scontrol=str(executable(self.folder / "scontrol", text)))


@pytest.fixture
def gate(slurm: SlurmCluster, real_root: Path, request: pytest.FixtureRequest) -> Lab:
    lab = Lab(slurm, real_root / f"gate-{request.node.name.partition('[')[0]}-{time.monotonic_ns()}")
    lab.install()
    return lab


def test_slurm_refuses_the_bot_itself_and_the_gate_drains_for_it(slurm: SlurmCluster, gate: Lab) -> None:
    words = ("scontrol", "update", "nodename=node-03", "state=drain", f"reason={REASON}")
    refused = slurm.run(*words, user=ACCOUNT, check=False)
    assert refused.returncode == 1 and "Invalid user id" in refused.stderr
    report = gate.hold()
    assert (report.exit, report.body["state"]) == (0, "IDLE+DRAIN")
    assert slurm.node("node-03")["Reason"].startswith(f"{REASON} [{GATE_ACCOUNT}@")
    holder = gate.look().nodes["node-03"].ours
    assert holder and (holder.tag, holder.by) == ("412.1", GATE_ACCOUNT)
    assert holder.why == REASON.removeprefix("xidbot:412.1 ")
    assert gate.hold().exit == 3
    assert gate("release-own", "node-03", key="r1").exit == 0
    eventually(lambda: gate.look().nodes["node-03"].open, why="in service again")


def test_the_ledger_of_the_core_converges_with_it(slurm: SlurmCluster, gate: Lab) -> None:
    """next_command and the gate agree on what is done: ask, do, ask."""
    action = Action("412.1", "hold_node", "node-03", why="GPU 3 lost", review=1796115600)
    step = next_command(action, gate.look())
    assert isinstance(step, Argv)
    assert gate(step.verb, *step.operands, key=action.key).exit == 0
    done = next_command(action, gate.look())
    assert isinstance(done, Done) and done.ours


def test_what_a_person_drained_is_untouched(slurm: SlurmCluster, gate: Lab) -> None:
    slurm.run("scontrol", "update", "nodename=node-03", "state=drain", "reason=bad cable, do not touch")
    slurm.down("node-04", "burnt")
    before = [slurm.node(name)["Reason"] for name in ("node-03", "node-04")]
    for node, who in (("node-03", "bad cable"), ("node-04", "burnt")):
        report = gate.hold(node, key=node)
        assert (report.exit, report.body["ours"]) == (3, False) and who in report.text
        released = gate("release-own", node, key=f"r-{node}")
        assert (released.exit, released.body["ours"]) == (3, False)
    assert [slurm.node(name)["Reason"] for name in ("node-03", "node-04")] == before
    assert slurm.node("node-03")["State"] == "IDLE+DRAIN" and "DRAIN" not in slurm.node("node-04")["State"]


def test_a_release_does_not_raise_a_node_that_is_down(slurm: SlurmCluster, gate: Lab) -> None:
    gate.hold()
    slurm.run("scontrol", "update", "nodename=node-03", "state=down", "reason=xidbot:412.1 x")
    report = gate("release-own", "node-03", key="r1")
    assert report.exit == 0 and str(report.body["state"]).startswith("DOWN")
    assert not gate.look().nodes["node-03"].up
    assert gate("release-own", "node-03", key="r2").exit == 3


@pytest.mark.parametrize("script", [SLEEP, "#!/bin/bash\n[ $SLURM_RESTART_COUNT ] && exec sleep 1000\nexit 3\n"])
def test_running_and_failed_jobs_start_again_at_once(slurm: SlurmCluster, gate: Lab, script: str) -> None:
    """By itself Slurm would wait for the life of a credential (here 5 s, by default 120). Not in the same second: the
    node would refuse the credential and the job would fail. So the call is made where a second begins."""
    job = slurm.submit(script, *BATCH)
    slurm.wait_job(job, "RUNNING" if script == SLEEP else "FAILED")
    time.sleep(1 - time.time() % 1)
    began = time.monotonic()
    report = gate.requeue(job)
    assert (report.exit, report.body["restart"]) == (0, 1), report.text
    slurm.wait_job(job, within=4)
    assert time.monotonic() - began < 5
    assert gate.stages() == ["requeue", "requeued", "start", "started", "end"]
    assert gate.requeue(job).exit == 3
    assert slurm.job(job)["restart_cnt"] == 1
    assert gate.requeue(job, 1, key="k2").exit == 0, "the next attempt is another key"


def test_the_start_is_set_only_when_the_job_has_stopped(slurm: SlurmCluster, gate: Lab) -> None:
    job = slurm.submit(SLOW_TO_STOP, *BATCH)
    slurm.wait_job(job)
    time.sleep(0.5)
    assert gate.requeue(job).exit == 0
    slurm.wait_job(job, within=3)
    assert slurm.job(job)["restart_cnt"] == 1


@pytest.mark.parametrize("moment", ["requeue", "StartTime"])
@pytest.mark.parametrize("act", [True, False])
def test_killed_at_a_command_and_called_again_requeues_once(
    slurm: SlurmCluster, gate: Lab, moment: str, act: bool
) -> None:
    once = f"mkdir {gate.folder}/killed 2>/dev/null"
    first = '/usr/bin/scontrol "$@"; ' if act else ""
    gate.shim(f'case "$*" in *{moment}*) if {once}; then {first}kill -9 $PPID; exit 1; fi;; esac')
    job = slurm.submit(SLEEP, *BATCH)
    slurm.wait_job(job)
    assert gate.requeue(job).exit == 6
    assert (gate.folder / "killed").exists() and "end" not in gate.stages()
    report = gate.requeue(job)
    assert (report.exit, report.body["ours"]) == (0, True), report.text
    slurm.wait_job(job, within=4)
    assert slurm.job(job)["restart_cnt"] == 1
    time.sleep(1)
    assert slurm.job(job)["restart_cnt"] == 1
    assert gate.requeue(job).exit == 3


def test_two_callers_with_one_key_requeue_once(slurm: SlurmCluster, gate: Lab) -> None:
    gate.shim('case "$*" in requeue*) sleep 0.5;; esac')
    job = slurm.submit(SLEEP, *BATCH)
    slurm.wait_job(job)
    words = [*gate.words, "requeue", job, "--restart", "0", "--key", "k1"]
    callers = [subprocess.Popen(words, stdout=subprocess.DEVNULL) for _ in range(3)]
    assert sorted(caller.wait(30) for caller in callers) == [0, 3, 3]
    slurm.wait_job(job)
    assert slurm.job(job)["restart_cnt"] == 1


def test_the_lock_outlives_the_gate(slurm: SlurmCluster, gate: Lab) -> None:
    """The killed gate's own requeue is still on its way when the next caller comes."""
    gate.shim(f'case "$*" in requeue*) touch {gate.folder}/begun; sleep 1.5;; esac')
    job = slurm.submit(SLEEP, *BATCH)
    slurm.wait_job(job)
    words = [*gate.words, "requeue", job, "--restart", "0", "--key", "k1"]
    first = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    eventually((gate.folder / "begun").exists, every=0.02, why="the command has begun")
    subprocess.run(["pkill", "-KILL", "-u", GATE_ACCOUNT, "-f", f"xidbot-gate requeue {job} "], check=True)
    first.wait(10)
    assert gate.requeue(job).exit == 0
    slurm.wait_job(job)
    assert slurm.job(job)["restart_cnt"] == 1


def test_a_persons_requeue_is_theirs(slurm: SlurmCluster, gate: Lab) -> None:
    job = slurm.submit(SLEEP, *BATCH)
    slurm.wait_job(job)
    slurm.run("scontrol", "requeue", job, user="trainer")
    slurm.wait_job(job, "PENDING")
    report = gate.requeue(job)
    assert (report.exit, report.body["ours"]) == (3, False) and "somebody else" in report.text
    assert slurm.job(job)["job_state"] == "PENDING"


def test_one_task_of_an_array_and_no_other(slurm: SlurmCluster, gate: Lab) -> None:
    array = slurm.submit(SLEEP, *BATCH, "--array=1-4%2")
    eventually(lambda: len(running(slurm, array)) == 2, why="two tasks run")
    assert "stands for 3 records" in gate.requeue(array).text
    assert gate.requeue(f"{array}_1", key="k2").exit == 0
    counts = {job["array_task_id"]: job["restart_cnt"] for job in slurm.jobs() if job["array_job_id"] == int(array)}
    assert {task for task, count in counts.items() if count} == {1}
    assert gate.look().jobs[f"{array}_1"].attempts[-1].ordinal == 1
    het = slurm.submit(SLEEP, *BATCH, ":", *BATCH)
    slurm.wait_job(het)
    assert gate.requeue(het, key="k3").exit == 4


def running(slurm: SlurmCluster, array: str) -> list[dict[str, Any]]:
    return [j for j in slurm.jobs() if j["array_job_id"] == int(array) and j["job_state"] == "RUNNING"]


def test_jobs_that_are_none_of_ours(slurm: SlurmCluster, gate: Lab) -> None:
    """Slurm itself would rerun every one of them."""
    spoof = '--job-name=x", "partition": "train'
    other = slurm.submit(SLEEP, *BATCH, "--partition=debug", spoof)
    completed = slurm.submit("#!/bin/bash\nexit 0\n", *BATCH)
    cancelled = slurm.submit(SLEEP, *BATCH)
    slurm.wait_job(cancelled)
    slurm.run("scancel", cancelled)
    never = slurm.submit(SLEEP, *BATCH[:-1], "--no-requeue")
    for job, state in ((other, "RUNNING"), (never, "RUNNING"), (completed, "COMPLETED"), (cancelled, "CANCELLED")):
        slurm.wait_job(job, state)
        report = gate.requeue(job, key=f"k{job}")
        assert report.exit == 4, report.text
        assert (slurm.job(job)["restart_cnt"], slurm.job(job)["job_state"]) == (0, state)
    gate.install(accounts=[])
    mine = slurm.submit(SLEEP, *BATCH)
    slurm.wait_job(mine)
    assert "account research" in gate.requeue(mine, key="mine").text


def test_caps_are_final(slurm: SlurmCluster, gate: Lab) -> None:
    gate.install(caps={"held_nodes": 2, "held_share": 1, "writes": 3, "window": "10m"})
    assert [gate.hold(f"node-0{n}", key=f"k{n}").exit for n in (1, 2, 3)] == [0, 0, 4]
    gate("release-own", "node-01", key="r1")
    assert gate.hold("node-03", key="k3").exit == 0
    gate("release-own", "node-02", key="r2")
    report = gate.hold("node-04", key="k4")
    assert report.exit == 4 and "3 writes in 600 s" in report.text
    status = gate("status").body
    assert status["held"] == {"cap": 2, "left": 1, "nodes": {"node-03": "412.1"}}


def test_pause_stops_writes_and_everybody_can_see_it(slurm: SlurmCluster, gate: Lab) -> None:
    assert gate("pause", "--why", "drill", key="p1").exit == 0
    seen = subprocess.run([*become("trainer"), "cat", gate.folder / "paused"], capture_output=True, text=True)
    assert seen.stdout.startswith(f"drill ({ACCOUNT}, ")
    report = gate.hold()
    assert report.exit == 4 and "paused: drill" in report.text
    assert slurm.node("node-03")["State"] == "IDLE"
    assert gate("resume", key="p2").exit == 0
    assert gate.hold().exit == 0


def test_a_hung_controller_is_told_in_time_and_nothing_is_lost(slurm: SlurmCluster, gate: Lab) -> None:
    gate.install(deadline="2s")
    job = slurm.submit(SLEEP, *BATCH)
    slurm.wait_job(job)
    slurm.pause_controller()
    began = time.monotonic()
    report = gate.requeue(job)
    assert report.exit == 5 and "no answer in time" in report.text
    assert time.monotonic() - began < 5
    slurm.resume_controller()
    assert gate.requeue(job).exit == 0
    slurm.wait_job(job)
    assert slurm.job(job)["restart_cnt"] == 1


def test_a_controller_that_hangs_at_the_command_itself(slurm: SlurmCluster, gate: Lab) -> None:
    """The gate cannot know whether it acted; the next call reads it."""
    text = f'#!/bin/bash\ncase "$*" in requeue*) touch {gate.folder}/begun; sleep 0.5;; esac\n'
    shim = executable(gate.folder / "scontrol", text + 'exec /usr/bin/scontrol "$@"\n')
    gate.install(deadline="2s", scontrol=str(shim))
    job = slurm.submit(SLEEP, *BATCH)
    slurm.wait_job(job)
    words = [*gate.words, "requeue", job, "--restart", "0", "--key", "k1"]
    first = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    eventually((gate.folder / "begun").exists, every=0.02, why="the command has begun")
    slurm.pause_controller()
    said = json.loads(first.communicate(timeout=20)[0])
    assert said["exit"] == 6, said
    slurm.resume_controller()
    time.sleep(1)
    assert gate.requeue(job).exit == 0
    slurm.wait_job(job)
    assert slurm.job(job)["restart_cnt"] == 1


def test_the_caller_chooses_nothing(slurm: SlurmCluster, gate: Lab) -> None:
    """Not the settings, not Slurm's own, not the program."""
    env = {**os.environ, "SLURM_CONF": "/nonexistent", "PYTHONPATH": "/nonexistent", "SUDO_USER": "root"}
    words = [*gate.words, "hold-node", "node-03", "--reason", REASON, "--key", "k1"]
    done = subprocess.run(words, env=env, capture_output=True, text=True, cwd="/tmp", timeout=30)
    assert done.returncode == 0, done.stdout
    entries = [json.loads(line) for line in (gate.folder / "gate.jsonl").read_text().splitlines()]
    assert {entry["by"] for entry in entries} == {ACCOUNT}
    for argv in (["/usr/bin/scontrol", "ping"], [f"{BIN}/python", "-c", "0"]):
        other = subprocess.run([*gate.words[:-1], *argv], capture_output=True, text=True, timeout=10)
        assert other.returncode == 1


@pytest.mark.parametrize("mode", [0o666, 0o664])
def test_settings_that_others_can_write_are_refused(gate: Lab, mode: int) -> None:
    GATE_YAML.chmod(mode)
    assert "writable by root alone" in gate("status").text
    GATE_YAML.chmod(0o644)
    os.chown(GATE_YAML, 1, -1)
    try:
        assert "must belong to root" in gate("status").text
    finally:
        os.chown(GATE_YAML, 0, -1)


def test_an_account_without_the_rule_never_reaches_it(gate: Lab) -> None:
    words = [*become("trainer"), *gate.words[len(become(ACCOUNT)) :]]
    with pytest.raises(GateError, match="the gate was not run"):
        GateProcess(words).run(Argv("status", ()), "k")
    with pytest.raises(GateError, match="the gate was not run"):
        GateProcess([*gate.words[:-1], f"{BIN}/xidbot-gates"]).run(Argv("status", ()), "k")


def test_a_gate_that_sudo_keeps_from_our_signals_does_not_block_us(gate: Lab) -> None:
    gate.shim("sleep 6")
    began = time.monotonic()
    report = GateProcess(gate.words, deadline=1).run(Argv("status", ()), "k")
    assert report.exit == 6 and "did not answer within 1 s" in report.text
    assert time.monotonic() - began < 4
