"""The gate against a scripted Slurm that keeps its state in a file and can be told to misbehave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from bot import gate
from bot.gate import jobs, log, settings

FAKE = r'''
import fcntl, json, os, signal, sys, time

here = os.path.dirname(os.path.abspath(sys.argv[0]))
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
spoken = " ".join(words)
lock = open(here + "/fake.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
state = json.load(open(here + "/state.json"))
state["calls"].append(spoken)


def save():
    json.dump(state, open(here + "/state.json", "w"))


def trick(when):
    """What a test asked for: `before` or `after` the command has acted."""
    for name, act in list(state["tricks"].items()):
        if act["when"] == when and spoken.startswith(name):
            if act.get("once", True):
                del state["tricks"][name]
            save()
            if act["what"] == "kill":
                os.kill(os.getppid(), signal.SIGKILL)
            elif act["what"] == "hang":
                lock.close()
                time.sleep(30)
            elif act["what"] == "slow":
                lock.close()
                time.sleep(act["for"])
                globals()["state"] = json.load(open(here + "/state.json"))
            else:
                sys.exit(act["what"])


def show_nodes():
    for name, node in state["nodes"].items():
        print(f"NodeName={name} Arch=x86_64\n   Gres=gpu:8\n   State={node['state']} Owner=N/A")
        if node["reason"]:
            print(f"   Reason={node['reason']} [{node['by']}@100]")
        print()


def change_node(name, wish):
    node = state["nodes"][name]
    base = node["state"].replace("+DRAIN", "")
    if wish["state"] == "undrain":
        node.update(state=base, reason="" if base != "DOWN" else node["reason"])
    else:
        node.update(state=base + "+DRAIN", reason=wish["reason"], by="xidbot-gate")


def job_of(job_id):
    if job_id not in state["jobs"]:
        sys.exit("Invalid job id specified for job " + job_id)
    return state["jobs"][job_id]


def requeue(job_id):
    job = job_of(job_id)
    if job["job_state"] == "PENDING":
        sys.exit("Job is pending execution for job " + job_id)
    job.update(job_state="PENDING", restart_cnt=job["restart_cnt"] + 1, state_reason="BeginTime", nodes="")
    job["eligible_time"] = time.time() + 121
    if state.get("stops"):
        job.update(job_state=["PENDING", "COMPLETING"])


def show_jobs():
    print(json.dumps({"jobs": list(state["jobs"].values()), "errors": []}))
    if state.get("stops"):
        state["stops"] -= 1
        if not state["stops"]:
            for job in state["jobs"].values():
                if "COMPLETING" in job["job_state"]:
                    job["job_state"] = "PENDING"


trick("before")
wish = dict(word.split("=", 1) for word in words[2:] if "=" in word)
if spoken == "scontrol -d show node":
    show_nodes()
elif spoken.startswith("scontrol update nodename="):
    change_node(wish["nodename"], wish)
elif spoken.startswith("scontrol requeue "):
    requeue(words[2])
elif spoken.startswith("scontrol update jobid="):
    assert wish["StartTime"] == "now"
    job_of(wish["jobid"]).update(eligible_time=1, job_state="RUNNING")
elif words[0] == "squeue":
    show_jobs()
else:
    sys.exit("what? " + spoken)
save()
trick("after")
'''
ASK = """
import sys
from pathlib import Path
from bot import gate
from bot.gate import jobs, log, settings
settings.CONFIG, settings.OWNER, log.LOCK_WAIT = Path(sys.argv[1]), int(sys.argv[2]), 20
jobs.NEXT_SECOND = 0
sys.exit(gate.main(sys.argv[3:]))
"""
REASON = "xidbot:412.1 GPU 3 lost; review 2026-12-02T09:00Z"


class Lab:
    """A gate with its settings, over the scripted Slurm."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.file = folder, folder / "etc" / "gate.yaml"
        self.file.parent.mkdir(mode=0o755)
        for name in ("scontrol", "squeue"):
            (folder / name).write_text(f"#!{sys.executable} -S\n{FAKE}")
            (folder / name).chmod(0o755)
        nodes = {f"node-{n:02d}": {"state": "IDLE", "reason": "", "by": ""} for n in range(1, 41)}
        self.set(nodes=nodes, jobs={}, calls=[], tricks={})
        self.settings: dict[str, Any] = {
            "nodes": ["node-[01-40]"],
            "partitions": ["train"],
            "accounts": ["acc"],
            "caps": {"held_nodes": 3, "held_share": "0.05", "writes": 4, "window": "10m"},
            "pause_file": str(folder / "pause"),
            "log": str(folder / "gate.log"),
            "scontrol": str(folder / "scontrol"),
            "squeue": str(folder / "squeue"),
            "deadline": "5s",
        }
        self.write()
        monkeypatch.setattr(settings, "CONFIG", self.file)
        monkeypatch.setattr(settings, "OWNER", os.getuid())
        monkeypatch.setattr(jobs, "SETTLE", 2.0)
        monkeypatch.setattr(jobs, "NEXT_SECOND", 0.0)

    def write(self, **changed: Any) -> None:
        self.settings.update(changed)
        self.file.write_text(yaml.safe_dump(self.settings))
        self.file.chmod(0o644)

    def set(self, **parts: Any) -> None:
        path = self.folder / "state.json"
        state = json.loads(path.read_text()) if path.exists() else {}
        path.write_text(json.dumps({**state, **parts}))

    @property
    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.folder / "state.json").read_text())
        return state

    def node(self, name: str, **facts: str) -> dict[str, str]:
        nodes = self.state["nodes"]
        nodes[name].update(facts)
        self.set(nodes=nodes)
        node: dict[str, str] = nodes[name]
        return node

    def job(self, which: str = "123", /, **facts: Any) -> dict[str, Any]:
        jobs = self.state["jobs"]
        if facts:
            number = int(which.split("_")[0])
            plain = {
                "job_id": number, "job_state": "RUNNING", "state_reason": "None", "name": "train", "user_name": "alice",
                "account": "acc", "partition": "train", "batch_flag": True, "requeue": True, "restart_cnt": 0,
                "nodes": "node-01", "submit_time": 100, "eligible_time": 100, "start_time": 100, "end_time": 0,
                "priority": 5,
            }  # fmt: skip
            jobs[which] = {**plain, **jobs.get(which, {}), **facts}
            self.set(jobs=jobs)
        job: dict[str, Any] = jobs[which]
        return job

    def trick(self, command: str, when: str, what: Any, **more: Any) -> None:
        self.set(tricks={command: {"when": when, "what": what, **more}})

    def calls(self, word: str) -> int:
        return sum(1 for call in self.state["calls"] if word in call)

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-c", ASK, str(self.file), str(os.getuid()), *words]

    def apart(self, *words: str) -> subprocess.CompletedProcess[str]:
        """In a process of its own, which may be killed."""
        return subprocess.run(self.command(*words), capture_output=True, text=True, timeout=60)

    def stages(self, key: str) -> list[str]:
        lines = (self.folder / "gate.log").read_text().splitlines()
        return [entry["stage"] for entry in map(json.loads, lines) if entry["key"] == key]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    return Lab(tmp_path, monkeypatch)


Ask = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def ask(lab: Lab, capsys: pytest.CaptureFixture[str]) -> Ask:
    """One call of the gate in this process: exit code and the one object it printed."""

    def call(*words: str) -> tuple[int, dict[str, Any]]:
        code = gate.main(words)
        body = json.loads(capsys.readouterr().out)
        assert body["exit"] == code
        return code, body

    return call


def hold(ask: Ask, node: str, key: str = "", reason: str = REASON) -> tuple[int, dict[str, Any]]:
    return ask("hold-node", node, "--reason", reason, "--key", key or f"412.1:hold_node:{node}:-")


# -- holding --------------------------------------------------------------------------------------


def test_a_node_is_drained_with_our_tag(lab: Lab, ask: Ask) -> None:
    code, body = hold(ask, "node-17", "k1")
    assert (code, body["ours"], body["state"]) == (0, True, "IDLE+DRAIN")
    assert lab.node("node-17") == {"state": "IDLE+DRAIN", "reason": REASON, "by": "xidbot-gate"}
    assert lab.stages("k1") == ["hold", "held", "end"]


def test_a_key_happens_once_even_when_somebody_undid_it(lab: Lab, ask: Ask) -> None:
    hold(ask, "node-17", "k1")
    lab.node("node-17", state="IDLE", reason="")
    code, body = hold(ask, "node-17", "k1")
    assert (code, body["ours"]) == (3, True)
    assert lab.node("node-17")["state"] == "IDLE"


def test_a_key_stands_for_one_thing(ask: Ask) -> None:
    hold(ask, "node-17", "k1")
    code, body = hold(ask, "node-18", "k1")
    assert code == 4 and "hold-node node-17" in body["reason"]


@pytest.mark.parametrize(
    ("state", "reason", "by"),
    [
        ("IDLE+DRAIN", "bad cable", "alice"),
        ("DOWN", "Not responding", "slurm"),
        ("IDLE+DRAIN", "NHC: check_fs failed", "root"),
        ("IDLE+MAINTENANCE+RESERVED", "", ""),
        ("DOWN", "", ""),
    ],
)
def test_what_somebody_else_holds_is_left_alone(lab: Lab, ask: Ask, state: str, reason: str, by: str) -> None:
    before = lab.node("node-17", state=state, reason=reason, by=by)
    code, body = hold(ask, "node-17")
    assert (code, body["ours"]) == (3, False)
    assert reason.split(":")[0] in body["reason"]
    assert lab.node("node-17") == before
    assert lab.calls("update") == 0


def test_our_hold_of_another_incident_stays(lab: Lab, ask: Ask) -> None:
    lab.node("node-17", state="IDLE+DRAIN", reason="xidbot:400.1 old", by="xidbot-gate")
    code, body = hold(ask, "node-17")
    assert (code, body["ours"]) == (3, False) and "400.1" in body["reason"]


def test_a_note_on_a_node_in_service_is_not_overwritten(lab: Lab, ask: Ask) -> None:
    lab.node("node-17", reason="watch this one", by="alice")
    code, body = hold(ask, "node-17")
    assert code == 4 and "watch this one" in body["reason"]
    lab.node("node-17", reason="Reboot ASAP : reboot complete", by="slurm")
    assert hold(ask, "node-17")[0] == 0


@pytest.mark.parametrize(
    "reason",
    [
        "", "GPU lost", "xidbot:412.1", "xidbot:412.1 ", " xidbot:412.1 x", "xidbot:412 x", "alice: x",
        "xidbot:412.1 a\nb", "xidbot:412.1 \x1b[0m", "xidbot:412.1 " + "x" * 200,
    ],
)  # fmt: skip
def test_only_our_own_form_of_reason(lab: Lab, ask: Ask, reason: str) -> None:
    code, _ = hold(ask, "node-17", reason=reason)
    assert code == 4 and lab.calls("update") == 0


@pytest.mark.parametrize("node", ["node-99", "node-[01-08]", "node-1 state=down", "node-01,node-02", "ALL", "", "a;b"])
def test_only_one_known_node_by_name(lab: Lab, ask: Ask, node: str) -> None:
    assert hold(ask, node, "k1")[0] == 4
    assert lab.calls("update") == 0


@pytest.mark.parametrize("nodes", [None, [], "", ["node-[18-40]"]])
def test_only_allowed_nodes(lab: Lab, ask: Ask, nodes: Any) -> None:
    del lab.settings["nodes"]
    lab.write(**({} if nodes is None else {"nodes": nodes}))
    code, body = hold(ask, "node-17")
    assert code == 4 and "list of nodes" in body["reason"]


@pytest.mark.parametrize("nodes", ["*", ["*"], "node-[01-40]"])
def test_a_star_allows_every_node(lab: Lab, ask: Ask, nodes: Any) -> None:
    lab.write(nodes=nodes)
    assert hold(ask, "node-17")[0] == 0


# -- caps -----------------------------------------------------------------------------------------


def test_the_share_of_nodes_counts_when_it_is_smaller(lab: Lab, ask: Ask) -> None:
    assert [hold(ask, f"node-0{n}")[0] for n in (1, 2, 3)] == [0, 0, 4]  # 5 % of 40


def test_the_absolute_count_counts_when_it_is_smaller(lab: Lab, ask: Ask) -> None:
    lab.write(caps={"held_nodes": "1", "held_share": "0.5"})
    assert [hold(ask, f"node-0{n}")[0] for n in (1, 2)] == [0, 4]


@pytest.mark.parametrize(
    ("held_nodes", "nodes", "limit"), [("3", "node-[01-04]", 1), ("0", "node-[01-40]", 0), ("3", "node-[01-40]", 2)]
)
def test_a_small_share_is_one_node_and_none_is_none(
    lab: Lab, ask: Ask, held_nodes: str, nodes: str, limit: int
) -> None:
    lab.write(nodes=[nodes], caps={"held_nodes": held_nodes})
    assert ask("status")[1]["held"]["cap"] == limit


def test_what_we_hold_is_counted_from_slurm(lab: Lab, ask: Ask) -> None:
    for name in ("node-01", "node-02"):
        lab.node(name, state="IDLE+DRAIN", reason="xidbot:r7 asked by alice", by="xidbot-gate")
    code, body = hold(ask, "node-03")
    assert code == 4 and body["held"] == {"node-01": "r7", "node-02": "r7"}


def test_writes_in_the_window_are_counted_across_keys_and_verbs(lab: Lab, ask: Ask) -> None:
    lab.write(caps={"held_nodes": "9", "held_share": "1", "writes": "3", "window": "10m"})
    for number in (1, 2):
        assert hold(ask, f"node-0{number}")[0] == 0
    lab.job(job_state="RUNNING")
    assert requeue(ask)[0] == 0  # with its start it is one write
    assert ask("release-own", "node-01", "--key", "r1")[0] == 0  # releases are free
    code, body = hold(ask, "node-03")
    assert code == 4 and "3 writes in 600 s" in body["reason"]
    assert ask("status")[1]["writes"] == {"used": 3, "cap": 3, "left": 0, "window": 600}


def test_old_writes_do_not_count(lab: Lab, ask: Ask) -> None:
    lab.write(caps={"held_nodes": "9", "held_share": "1", "writes": "1", "window": "1s"})
    assert hold(ask, "node-01")[0] == 0
    time.sleep(1.1)
    assert hold(ask, "node-02")[0] == 0


def test_what_was_refused_or_already_so_uses_no_slot(lab: Lab, ask: Ask) -> None:
    lab.node("node-01", state="IDLE+DRAIN", reason="bad cable", by="alice")
    hold(ask, "node-01")
    hold(ask, "node-99")
    assert ask("status")[1]["writes"]["used"] == 0


def test_two_callers_cannot_both_take_the_last_slot(lab: Lab) -> None:
    lab.write(caps={"held_nodes": "3", "held_share": "1", "writes": "9"})
    words = [["hold-node", f"node-{n:02d}", "--reason", REASON, "--key", f"k{n}"] for n in range(1, 9)]
    callers = [subprocess.Popen(lab.command(*w), stdout=subprocess.DEVNULL) for w in words]
    codes = sorted(caller.wait(60) for caller in callers)
    assert codes == [0, 0, 0, 4, 4, 4, 4, 4]
    assert sum("+DRAIN" in node["state"] for node in lab.state["nodes"].values()) == 3


def test_two_callers_with_one_key_write_once(lab: Lab) -> None:
    lab.job(job_state="RUNNING")
    lab.trick("scontrol requeue", "before", "slow", **{"for": 0.5})
    words = ["requeue", "123", "--restart", "0", "--key", "k1"]
    callers = [subprocess.Popen(lab.command(*words), stdout=subprocess.DEVNULL) for _ in range(4)]
    codes = sorted(caller.wait(60) for caller in callers)
    assert codes == [0, 3, 3, 3]
    assert (lab.calls("requeue"), lab.job()["restart_cnt"]) == (1, 1)


# -- releasing ------------------------------------------------------------------------------------


def test_our_own_drain_is_lifted(lab: Lab, ask: Ask) -> None:
    hold(ask, "node-17")
    code, body = ask("release-own", "node-17", "--key", "r1")
    assert (code, body["tag"], lab.node("node-17")["state"]) == (0, "412.1", "IDLE")


@pytest.mark.parametrize("reason", ["bad cable", "xidbot: x", "xidbot:412.1", "see xidbot:412.1 x", ""])
def test_nobody_elses_is(lab: Lab, ask: Ask, reason: str) -> None:
    lab.node("node-17", state="IDLE+DRAIN", reason=reason, by="alice")
    code, body = ask("release-own", "node-17", "--key", "r1")
    assert (code, body["ours"], lab.calls("update")) == (3, False, 0)
    assert "alice" in body["reason"] or not reason


def test_a_node_that_is_down_stays_down(lab: Lab, ask: Ask) -> None:
    lab.node("node-17", state="DOWN+DRAIN", reason="xidbot:412.1 x", by="xidbot-gate")
    code, body = ask("release-own", "node-17", "--key", "r1")
    assert (code, body["state"], lab.node("node-17")["state"]) == (0, "DOWN", "DOWN")


def test_a_release_that_was_done_before_the_caller_died(lab: Lab, ask: Ask) -> None:
    hold(ask, "node-17")
    lab.trick("scontrol update", "after", "kill")
    assert lab.apart("release-own", "node-17", "--key", "r1").returncode == -signal.SIGKILL
    code, body = ask("release-own", "node-17", "--key", "r1")
    assert (code, body["ours"]) == (3, True)


# -- requeueing -----------------------------------------------------------------------------------


def requeue(ask: Ask, job: str = "123", restart: str = "0", key: str = "412.1:requeue:s:123#0") -> tuple[int, Any]:
    return ask("requeue", job, "--restart", restart, "--key", key)


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "NODE_FAIL", "TIMEOUT", "OUT_OF_MEMORY"])
def test_requeue_and_start(lab: Lab, ask: Ask, state: str) -> None:
    lab.job(job_state=state)
    code, body = requeue(ask)
    assert (code, body["ours"], body["state"], body["restart"]) == (0, True, "RUNNING", 1)
    assert lab.stages("412.1:requeue:s:123#0") == ["requeue", "requeued", "start", "started", "end"]
    assert requeue(ask)[0] == 3
    assert lab.job()["restart_cnt"] == 1


def test_one_task_of_an_array(lab: Lab, ask: Ask) -> None:
    lab.job("120_3", array_job_id=120, array_task_id=3, job_id=124)
    lab.job("120_4", array_job_id=120, array_task_string="4-7", array_task_id=None, job_id=120, job_state="PENDING")
    code, body = requeue(ask, "120")
    assert code == 4 and "stands for 2 records" in body["reason"]
    assert requeue(ask, "120_3", key="k2")[0] == 0
    assert lab.job("120_3")["restart_cnt"] == 1


@pytest.mark.parametrize(
    "job", ["12", "1234", "123_0", "0123", "-123", "123+0", "123_[1-2]", "123,124", "all", "", "123 "]
)
def test_exactly_the_job(lab: Lab, ask: Ask, job: str) -> None:
    lab.job(job_state="RUNNING")
    code, _ = requeue(ask, job)
    assert (code, lab.calls("requeue")) == (4, 0)


@pytest.mark.parametrize("restart", ["", "-1", "x", "1_0", " 1", "1.0"])
def test_exactly_the_run(lab: Lab, ask: Ask, restart: str) -> None:
    lab.job(job_state="RUNNING")
    assert requeue(ask, restart=restart)[0] == 4
    assert lab.calls("requeue") == 0


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"partition": "debug"}, "partition debug"),
    ({"partition": "train,debug"}, "partition debug"),
    ({"account": "other"}, "account other"),
    ({"account": ""}, "account (none)"),
    ({"batch_flag": False}, "no batch job"),
    ({"requeue": False}, "--no-requeue"),
    ({"job_state": "COMPLETED"}, "COMPLETED"),
    ({"job_state": "CANCELLED"}, "CANCELLED"),
    ({"job_state": "PENDING"}, "PENDING"),
    ({"job_state": "SUSPENDED"}, "SUSPENDED"),
]


@pytest.mark.parametrize(("facts", "why"), REFUSED)
def test_jobs_that_are_not_requeued(lab: Lab, ask: Ask, facts: dict[str, Any], why: str) -> None:
    lab.job(**facts)
    code, body = requeue(ask)
    assert code == 4 and why in body["reason"]
    assert lab.calls("requeue") == 0


def test_a_name_cannot_pretend(lab: Lab, ask: Ask) -> None:
    """The queue is read as JSON: what a user writes is only ever text."""
    lab.job(account="other", name='x", "account": "acc', comment="Account=acc Partition=train")
    assert requeue(ask)[0] == 4


def test_a_job_that_somebody_else_requeued(lab: Lab, ask: Ask) -> None:
    lab.job(restart_cnt=1, job_state="PENDING", eligible_time=time.time() + 120)
    code, body = requeue(ask)
    assert (code, body["ours"]) == (3, False) and "somebody else" in body["reason"]
    assert lab.calls("update") == 0


def test_a_restart_count_that_went_back_is_unclear(lab: Lab, ask: Ask) -> None:
    lab.job(restart_cnt=0)
    assert requeue(ask, restart="1")[0] == 6


def test_a_job_that_somebody_holds_is_left_held(lab: Lab, ask: Ask) -> None:
    lab.job(job_state="RUNNING")
    lab.trick("scontrol requeue", "after", "kill")
    lab.apart("requeue", "123", "--restart", "0", "--key", "k1")
    lab.job(state_reason="JobHeldUser", priority=0)
    code, body = requeue(ask, key="k1")
    assert code == 6 and "held" in body["reason"]
    assert lab.calls("update") == 0


def test_the_start_waits_until_the_job_has_stopped(lab: Lab, ask: Ask) -> None:
    """A start that is set while it stops is lost."""
    lab.job(job_state="RUNNING")
    lab.set(stops=4)
    code, _ = requeue(ask)
    assert (code, lab.job()["job_state"]) == (0, "RUNNING")


def test_a_job_that_stops_for_long_is_finished_by_the_next_call(lab: Lab, ask: Ask) -> None:
    lab.job(job_state="RUNNING")
    lab.set(stops=10_000)
    code, body = requeue(ask)
    assert code == 5 and "still stopping" in body["reason"]
    lab.set(stops=0)
    lab.job(job_state="PENDING")
    assert requeue(ask)[0] == 0
    assert (lab.calls("requeue"), lab.job()["job_state"]) == (1, "RUNNING")


# -- dying, failing, hanging ----------------------------------------------------------------------


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("command", ["scontrol requeue", "scontrol update jobid=", "squeue"])
def test_killed_at_any_command_and_called_again(lab: Lab, ask: Ask, command: str, when: str) -> None:
    lab.job(job_state="RUNNING")
    lab.trick(command, when, "kill")
    words = ("requeue", "123", "--restart", "0", "--key", "k1")
    assert lab.apart(*words).returncode == -signal.SIGKILL
    code, body = ask(*words)
    assert (code, body["ours"]) == (0, True)
    assert (lab.job()["restart_cnt"], lab.job()["job_state"]) == (1, "RUNNING")
    assert ask("status")[1]["writes"]["used"] == 1


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_it_held_and_called_again(lab: Lab, ask: Ask, when: str) -> None:
    lab.trick("scontrol update", when, "kill")
    words = ("hold-node", "node-17", "--reason", REASON, "--key", "k1")
    assert lab.apart(*words).returncode == -signal.SIGKILL
    code, body = ask(*words)
    assert (code, body["ours"], lab.node("node-17")["reason"]) == (0, True, REASON)
    assert ask("status")[1]["writes"]["used"] == 1


def test_the_lock_outlives_a_killed_gate_until_its_command_has_ended(lab: Lab, ask: Ask) -> None:
    """Else the second call would see a running job and requeue it again."""
    lab.job(job_state="RUNNING")
    lab.trick("scontrol requeue", "before", "slow", **{"for": 1.0})
    words = ("requeue", "123", "--restart", "0", "--key", "k1")
    first = subprocess.Popen(lab.command(*words), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while "scontrol requeue 123" not in (lab.folder / "state.json").read_text():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    first.kill()
    first.wait()
    assert ask(*words)[0] == 0
    assert (lab.calls("requeue"), lab.job()["restart_cnt"]) == (1, 1)


def test_a_command_that_failed_and_acted_has_acted(lab: Lab, ask: Ask) -> None:
    lab.trick("scontrol update", "after", "slurm_update error: Socket timed out")
    assert hold(ask, "node-17")[0] == 0
    lab.job(job_state="RUNNING")
    lab.trick("scontrol requeue", "after", "slurm_requeue error: Socket timed out")
    assert requeue(ask)[0] == 0


def test_a_command_that_failed_is_told_and_can_be_asked_again(lab: Lab, ask: Ask) -> None:
    lab.trick("scontrol update", "before", "slurm_update error: Invalid user id")
    code, body = hold(ask, "node-17", "k1")
    assert code == 5 and "Invalid user id" in body["reason"]
    assert hold(ask, "node-17", "k1")[0] == 0
    lab.job(job_state="RUNNING")
    lab.trick("scontrol requeue", "before", "Access/permission denied")
    code, body = requeue(ask)
    assert code == 5 and "permission denied" in body["reason"]
    lab.trick("scontrol update jobid=", "before", "Access/permission denied")
    code, body = requeue(ask)
    assert code == 5 and "starts only later" in body["reason"]
    assert requeue(ask)[0] == 0
    assert lab.job()["restart_cnt"] == 1


def test_a_command_that_hangs_may_have_acted(lab: Lab, ask: Ask) -> None:
    lab.write(deadline="1s")
    lab.trick("scontrol update", "after", "hang")
    assert hold(ask, "node-17")[0] == 0  # read afterwards
    lab.trick("scontrol update", "before", "hang")
    assert hold(ask, "node-18")[0] == 6
    lab.trick("scontrol -d show", "before", "hang")
    code, body = hold(ask, "node-19")
    assert code == 5 and "cannot be read" in body["reason"]


def test_slurm_that_cannot_be_read_after_a_command_is_unclear(lab: Lab, ask: Ask) -> None:
    silent = 'if "show node" in spoken and any("update" in c for c in state["calls"]): sys.exit("no contact")'
    script = (lab.folder / "scontrol").read_text()
    (lab.folder / "scontrol").write_text(script.replace('trick("before")\n', f'{silent}\ntrick("before")\n'))
    code, body = hold(ask, "node-17")
    assert code == 6 and "no contact" in body["reason"]


def test_a_log_line_that_was_cut_off_is_no_obstacle(lab: Lab, ask: Ask) -> None:
    hold(ask, "node-17", "k1")
    with (lab.folder / "gate.log").open("a") as log:
        log.write('{"at": 1, "key": "k1", "sta')
    assert hold(ask, "node-18", "k2")[0] == 0
    assert hold(ask, "node-17", "k1")[0] == 3


def test_nothing_is_done_without_a_log(lab: Lab, ask: Ask) -> None:
    lab.write(log=str(lab.folder / "none" / "gate.log"))
    code, body = hold(ask, "node-17")
    assert code == 5 and "none" in body["reason"]
    assert lab.calls("update") == 0


def test_a_call_that_cannot_get_the_lock_says_so(lab: Lab, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "LOCK_WAIT", 0.2)
    with log.locked(lab.folder / "gate.log.lock"):
        code, body = hold(ask, "node-17")
        assert code == 5 and "another call" in body["reason"]
        assert ask("pause")[0] == 0  # pausing never waits


# -- pause and status -----------------------------------------------------------------------------


def test_pause_stops_every_write(lab: Lab, ask: Ask) -> None:
    hold(ask, "node-01", "k1")
    code, body = ask("pause", "--why", "storm\x1b of\nalerts")
    assert (code, body["paused"]) == (0, True)
    text = (lab.folder / "pause").read_text()
    assert text.startswith("storm of alerts (") and text.count("\n") == 1
    assert (lab.folder / "pause").stat().st_mode & 0o777 == 0o644
    lab.job(job_state="RUNNING")
    calls = lab.calls("update")
    for code, body in (hold(ask, "node-17"), ask("release-own", "node-01", "--key", "r1"), requeue(ask)):
        assert code == 4 and "storm of alerts" in body["reason"]
    assert (lab.calls("update"), lab.calls("requeue")) == (calls, 0)
    assert ask("pause")[0] == 3
    assert [ask("resume")[0], ask("resume")[0]] == [0, 3]
    assert requeue(ask)[0] == 0


def test_paused_between_requeue_and_start(lab: Lab, ask: Ask) -> None:
    lab.job(job_state="RUNNING")
    lab.trick("scontrol requeue", "after", "kill")
    lab.apart("requeue", "123", "--restart", "0", "--key", "k1")
    ask("pause", "--why", "wait")
    code, body = requeue(ask, key="k1")
    assert code == 4 and "was requeued" in body["reason"]
    ask("resume")
    assert requeue(ask, key="k1")[0] == 0


def test_a_pause_file_that_cannot_be_read_pauses(lab: Lab, ask: Ask) -> None:
    (lab.folder / "pause").mkdir()
    assert ask("status")[1]["paused"] is True
    assert hold(ask, "node-17")[0] == 4


def test_status(lab: Lab, ask: Ask) -> None:
    hold(ask, "node-17", "k1")
    lab.node("node-18", state="IDLE+DRAIN", reason="bad cable", by="alice")
    code, body = ask("status")
    assert code == 0
    assert body["held"] == {"cap": 2, "left": 1, "nodes": {"node-17": "412.1"}}
    assert body["writes"] == {"used": 1, "cap": 4, "left": 3, "window": 600}
    assert (body["paused"], body["why"]) == (False, "")
    lab.trick("scontrol -d show", "before", "Unable to contact slurm controller")
    code, body = ask("status")
    assert code == 5 and "Unable to contact" in body["reason"] and body["writes"]["used"] == 1


# -- settings and words ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "",
        "dance",
        "hold-node",
        "hold-node node-17 node-18",
        "--help",
        "status --config /x",
        "hold-node node-17 --reas xidbot:1.1 --key k",
        "hold-node node-17 --reason xidbot:1.1",
        "hold-node node-17 --reason xidbot:1.1 --key a;b",
        "hold-node node-17 --reason xidbot:1.1 --key -k",
        "sweep",
        "collect x --key k",
        "requeue-hold 1 --key k",
    ],
)
def test_words_that_are_none(lab: Lab, ask: Ask, words: str) -> None:
    code, body = ask(*words.split())
    assert code == 4 and body["reason"]
    assert lab.state["calls"] == []


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"color": "red"}, "color: no such setting"),
        ({"nodes": {"node-01": "yes"}}, "nodes must be a list"),
        ({"nodes": [["node-01"]]}, "nodes must be a list"),
        ({"nodes": ["node-[1-"]}, "not a host list"),
        ({"nodes": ["@all"]}, "not a host list"),
        ({"caps": "none"}, "caps must hold"),
        ({"caps": {"held": 3}}, "held: no such setting"),
        ({"caps": {"writes": -1}}, "caps.writes must be a whole number"),
        ({"caps": {"held_share": "5"}}, "caps.held_share"),
        ({"caps": {"held_share": "NaN"}}, "caps.held_share"),
        ({"caps": {"window": 600}}, "caps.window must be a duration"),
        ({"caps": {"window": "0m"}}, "caps.window must be a duration"),
        ({"pause_file": "pause"}, "pause_file must be an absolute path"),
        ({"log": ["/x"]}, "log must be an absolute path"),
    ],
)
def test_settings_that_are_not_understood(lab: Lab, ask: Ask, changed: dict[str, Any], why: str) -> None:
    lab.write(**changed)
    code, body = hold(ask, "node-17")
    assert code == 4 and why in body["reason"]
    assert lab.state["calls"] == []


@pytest.mark.parametrize("text", ["", "- a", "nodes: [", "pause_file: /x", "\x00"])
def test_a_file_that_holds_no_settings(lab: Lab, ask: Ask, text: str) -> None:
    lab.file.write_text(text)
    code, body = ask("status")
    assert code == 4 and body["reason"].startswith("gate settings: ")


def test_only_roots_own_file_counts(lab: Lab, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    for mode in (0o664, 0o646, 0o666):
        lab.file.chmod(mode)
        assert "writable by root alone" in ask("status")[1]["reason"]
    lab.file.chmod(0o644)
    lab.file.parent.chmod(0o777)
    assert "writable by root alone" in ask("status")[1]["reason"]
    lab.file.parent.chmod(0o755)
    monkeypatch.setattr(settings, "OWNER", os.getuid() + 1)
    assert "must belong to root" in ask("status")[1]["reason"]


def test_a_link_to_a_file_is_not_followed(lab: Lab, ask: Ask) -> None:
    lab.file.rename(lab.folder / "elsewhere.yaml")
    lab.file.symlink_to(lab.folder / "elsewhere.yaml")
    assert ask("status")[0] == 4
    lab.file.unlink()
    code, body = ask("status")
    assert code == 4 and "No such file" in body["reason"]


def test_the_callers_environment_does_not_reach_slurm(lab: Lab, ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_CONF", "/tmp/evil.conf")
    monkeypatch.setenv("PATH", "/tmp/evil")
    lab.write(slurm_conf="/etc/slurm/slurm.conf")
    (lab.folder / "scontrol").write_text(
        f"#!{sys.executable}\nimport os, sys\nsys.exit(str(sorted(os.environ.items())))"
    )
    said = ask("status")[1]["reason"]
    assert "evil" not in said and "/etc/slurm/slurm.conf" in said
