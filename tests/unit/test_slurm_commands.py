"""What is still missing for an action on Slurm, and how its programs' answers and silences are told."""

from __future__ import annotations

import os
import stat
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from bot.errors import AuthFailed, BadReply, GateError, SourceError, Unreachable
from bot.model import Action, Argv, Attempt, Cluster, Done, Holder, Job, Next, Node, Unclear, Wait
from bot.schedulers.gate_process import GateProcess
from bot.schedulers.process import run
from bot.schedulers.slurm import SlurmScheduler, next_command

NOW = 1000
OURS = Holder("xidbot", "xidbot-gate", "GPU lost", "412.1")
PERSON = Holder("person", "alice", "bad cable")


def cluster(*, node: Node | None = None, job: Job | None = None) -> Cluster:
    nodes = {node.name: node} if node else {}
    return Cluster("testcl", NOW, nodes, {job.id: job} if job else {})


# -- nodes ----------------------------------------------------------------------------------------


def hold(*holders: Holder, started: bool = False) -> Next:
    action = Action("412.1", "hold_node", "node-01", why="GPU lost", started=NOW if started else None)
    return next_command(action, cluster(node=Node("node-01", "IDLE", True, not holders, holders)))


def release(*holders: Holder) -> Next:
    action = Action("r7", "release_node", "node-01")
    return next_command(action, cluster(node=Node("node-01", "IDLE", True, not holders, holders)))


def test_hold() -> None:
    assert hold() == Argv("hold-node", ("node-01", "--reason", "xidbot:412.1 GPU lost"))
    assert isinstance(hold(OURS), Done) and hold(OURS).ours  # type: ignore[union-attr]
    others = hold(replace(OURS, tag="411.1")), hold(PERSON), hold(Holder("maintenance", "slurm", "maintenance"))
    assert all(isinstance(o, Done) and not o.ours for o in others)
    assert "alice" in others[1].detail  # type: ignore[union-attr]


def test_release_lifts_only_ours() -> None:
    assert release(OURS) == Argv("release-own", ("node-01",))
    assert all(isinstance(o, Done) and not o.ours for o in (release(), release(PERSON)))


def test_a_node_that_nobody_knows() -> None:
    for step in ("hold_node", "release_node"):
        assert isinstance(next_command(Action("412.1", step, "node-99"), cluster()), Unclear)


# -- jobs -----------------------------------------------------------------------------------------


def job(state: str = "RUNNING", ordinal: int = 0, job_id: str = "123", **facts: object) -> Job:
    attempt = Attempt(job_id, ordinal, state)
    return replace(Job(job_id, "train", "trainer", state, attempts=(attempt,)), **facts)  # type: ignore[arg-type]


def requeue(record: Job | None, attempt: str = "123#0", started: bool = False) -> Next:
    action = Action("412.1", "requeue", attempt.split("#")[0], attempt, started=NOW - 5 if started else None)
    return next_command(action, cluster(job=record))


AGAIN = Argv("requeue", ("123", "--restart", "0"))


@pytest.mark.parametrize("state", ["RUNNING", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT", "BOOT_FAIL"])
def test_a_run_that_can_be_repeated(state: str) -> None:
    assert requeue(job(state)) == AGAIN
    assert requeue(job(state), started=True) == AGAIN  # the gate failed: it finishes only what is missing


def test_one_task_of_an_array_by_its_exact_id() -> None:
    assert requeue(job(job_id="120_3"), "120_3#0") == Argv("requeue", ("120_3", "--restart", "0"))


@pytest.mark.parametrize(
    ("record", "attempt", "why"),
    [
        (None, "123#0", "knows no job"),
        (job(), "12#0", "knows no job"),
        (job(job_id="120_[4-7%2]"), "120_[4-7%2]#0", "no single job"),
        (job(job_id="130+0"), "130+0#0", "no single job"),
        (job(), "123", "no single job"),
        (job(), "123#x", "no single job"),
        (job(batch=False), "123#0", "no batch job"),
        (job(requeue=False), "123#0", "--no-requeue"),
        (job("FAILED", queued=False), "123#0", "left the queue"),
        (job("COMPLETED"), "123#0", "COMPLETED"),
        (job("CANCELLED"), "123#0", "CANCELLED"),
        (job("SUSPENDED"), "123#0", "SUSPENDED"),
        (job("PENDING"), "123#0", "PENDING"),
        (job("PENDING", why="JobHeldUser"), "123#0", "held"),
        (job("PENDING", 1, why="job_requeued_in_held_state", begin=NOW + 60), "123#0", "held"),
        (job("PENDING", 1, why="None (held)"), "123#0", "held"),
        (job(ordinal=1), "123#2", "lost state"),
    ],
)  # fmt: skip
def test_a_person_must_look(record: Job | None, attempt: str, why: str) -> None:
    for started in (False, True):
        step = requeue(record, attempt, started)
        assert isinstance(step, Unclear) and why in step.why


def test_a_job_that_still_stops_is_waited_for() -> None:
    assert isinstance(requeue(job("COMPLETING")), Wait)
    assert isinstance(requeue(job("COMPLETING", 1), started=True), Wait)


def test_after_a_requeue() -> None:
    for record in (
        job("RUNNING", 1),
        job("FAILED", 1),
        job("RUNNING", 4),
        job("PENDING", 1, why="Resources"),
        job("PENDING", 1, begin=NOW),
    ):
        for started in (False, True):
            step = requeue(record, started=started)
            assert isinstance(step, Done) and not step.ours


def test_a_requeued_job_that_may_not_start_yet_is_finished_only_if_we_had_begun() -> None:
    record = job("PENDING", 1, why="BeginTime", begin=NOW + 120)
    assert requeue(record, started=True) == AGAIN
    step = requeue(record)
    assert isinstance(step, Done) and "somebody else" in step.detail


def test_unknown_steps_are_for_a_person() -> None:
    assert isinstance(next_command(Action("412.1", "dance", "node-01"), cluster()), Unclear)


# -- programs -------------------------------------------------------------------------------------


def program(folder: Path, name: str, body: str) -> Path:
    path = folder / name
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_the_deadline_holds_even_when_a_child_keeps_the_pipe(tmp_path: Path) -> None:
    shell = ["/bin/sh", "-c", "echo said; sleep 60 & exec sleep 60"]
    began = time.monotonic()
    done = run(shell, 0.3)
    assert (done.code, done.out) == (None, "said\n")
    assert time.monotonic() - began < 5


def test_a_child_in_its_own_session_is_left_behind(tmp_path: Path) -> None:
    began = time.monotonic()
    done = run(["/bin/sh", "-c", f"echo said; setsid sleep 8 & echo $! > {tmp_path}/pid"], 0.3)
    assert (done.code, done.out) == (None, "said\n")
    assert time.monotonic() - began < 5


def gate(tmp_path: Path, body: str, deadline: float = 5) -> GateProcess:
    return GateProcess([str(program(tmp_path, "gate", body))], deadline)


def ask(tmp_path: Path, body: str) -> tuple[int, str]:
    report = gate(tmp_path, body, 1).run(Argv("hold-node", ("node-01", "--reason", "xidbot:1.1 x; y")), "k:1")
    return report.exit, report.text


def test_what_the_gate_is_told_and_says(tmp_path: Path) -> None:
    body = "import json, sys\nprint(json.dumps({'detail': ' '.join(sys.argv[1:])}))\nsys.exit(3)"
    assert ask(tmp_path, body) == (3, "hold-node node-01 --reason xidbot:1.1 x; y --key k:1")


@pytest.mark.parametrize(
    ("body", "text"),
    [
        ("import time\ntime.sleep(30)", "did not answer within 1 s"),
        ("print('nonsense')", "no report"),
        ("print('[1]')", "no report"),
        ("print('{}')\nraise SystemExit(9)", "ended with 9"),
        ("raise ValueError('oops')", "ended with 1"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "ended with -9"),
        ("import sys\nprint('sudo: unable to resolve host', file=sys.stderr)\nraise ValueError", "sudo: unable"),
    ],
)
def test_a_gate_that_may_have_acted_is_unclear(tmp_path: Path, body: str, text: str) -> None:
    code, said = ask(tmp_path, body)
    assert code == 6 and text in said


@pytest.mark.parametrize(
    "line",
    [
        "sudo: a password is required",
        "Sorry, user xidbot is not allowed to execute '/x' as root on vm.",
        "sudo: x: command not found",
    ],
)
def test_a_gate_that_sudo_refused_never_ran(tmp_path: Path, line: str) -> None:
    with pytest.raises(GateError) as refused:
        ask(tmp_path, f"import sys\nprint({line!r}, file=sys.stderr)\nsys.exit(1)")
    assert line in str(refused.value) and "sudo rule" in str(refused.value)


def test_a_gate_that_is_not_there_never_ran(tmp_path: Path) -> None:
    for command in ([str(tmp_path / "none")], ["/usr/bin/env", "no-such-gate-here"]):
        with pytest.raises(GateError):
            GateProcess(command).run(Argv("status", ()), "k")
    with pytest.raises(GateError):
        GateProcess(["/bin/true"]).run(Argv("hold-node", ("a\0b",)), "k")


# -- the adapter over scripted programs -----------------------------------------------------------

FAKE = """
import os, sys
words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
assert sorted(k for k in os.environ if k.startswith(("SQUEUE", "SACCT"))) == []
{cases}
"""
NODE = "NodeName=node-01 CPUAlloc=0 CPUTot=4\\n   Gres=gpu:8\\n   State=IDLE\\n   Partitions=train"
JOB = (
    '{{"job_id": {0}, "job_state": "{1}", "name": "n", "user_name": "u", "restart_cnt": {2}, "submit_time": {3}, '
    '"nodes": "node-01", "batch_flag": true, "requeue": true}}'
)
ROW = (
    '{{"job_id": {0}, "state": {{"current": "{1}"}}, "name": "n", "user": "u", "nodes": "node-01", '
    '"time": {{"submission": {2}, "start": {2}, "end": {3}}}}}'
)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """What scontrol, squeue and sacct do, by their first words; a test may change it before it looks."""
    queue = ", ".join([JOB.format(123, "RUNNING", 1, 900), JOB.format(124, "RUNNING", 0, 950)])
    rows = ", ".join([ROW.format(123, "NODE_FAIL", 800, 900), ROW.format(125, "FAILED", 700, 750)])
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("SQUEUE_USERS", "nobody")
    return {
        "scontrol show config": "print('ClusterName             = testcl')",
        "scontrol -d show": f"print('{NODE}')",
        "scontrol show reservation": "print('No reservations in the system')",
        "squeue --json": f"""print('{{"jobs": [{queue}]}}')""",
        "sacct --json": f"""open({str(tmp_path / "asked")!r}, "w").write(words[-1]); print('{{"jobs": [{rows}]}}')""",
    }


def look(tmp_path: Path, cases: dict[str, str], *watch: str, deadline: float = 5) -> Cluster:
    lines = [f"if ' '.join(words).startswith({k!r}):\n    {v}" for k, v in cases.items()]
    for name in ("scontrol", "squeue", "sacct"):
        program(tmp_path, name, FAKE.format(cases="\n".join(lines)))
    return SlurmScheduler(deadline=deadline, match=lambda job: job.id == "124").snapshot(NOW, watch)


def test_a_look(tmp_path: Path, slurm: dict[str, str]) -> None:
    seen = look(tmp_path, slurm, "123", "125", "999", "120_[4-7%2]")
    assert (seen.name, seen.at, seen.unknown, list(seen.nodes)) == ("testcl", NOW, (), ["node-01"])
    assert {i: [a.id for a in j.attempts] for i, j in seen.jobs.items()} == {
        "123": ["123#0", "123#1"],
        "124": ["124#0"],
        "125": ["125#0"],
    }
    assert (seen.jobs["123"].first_submit, seen.jobs["125"].queued) == (800, False)
    assert (tmp_path / "asked").read_text() == "123,125,999"  # 124 never restarted: nothing to ask


def test_accounting_down_is_named_and_the_queue_still_counts(tmp_path: Path, slurm: dict[str, str]) -> None:
    slurm["sacct --json"] = "sys.exit('sacct: error: Problem talking to the database: Connection refused')"
    seen = look(tmp_path, slurm, "123", "125")
    assert seen.unknown == ("accounting",)
    assert [a.id for a in seen.jobs["123"].attempts] == ["123#1"]
    assert "125" not in seen.jobs


def test_reservations_unreadable_are_named(tmp_path: Path, slurm: dict[str, str]) -> None:
    slurm["scontrol show reservation"] = "print('what?')"
    assert look(tmp_path, slurm).unknown == ("reservations",)


FAILURES = {
    "sys.exit('slurm_load_jobs error: Unable to contact slurm controller (connect failure)')": Unreachable,
    "sys.exit('slurm_load_jobs error: Socket timed out on send/recv operation')": Unreachable,
    "sys.exit('error: Munge encode failed: Failed to access /run/munge')": AuthFailed,
    "sys.exit('slurm_load_jobs error: Protocol authentication error')": AuthFailed,
    "sys.exit('something else')": BadReply,
    "sys.exit(1)": BadReply,
    "print('{')": BadReply,
    "import time; time.sleep(30)": Unreachable,
}


@pytest.mark.parametrize("body", FAILURES)
def test_a_queue_that_cannot_be_read(tmp_path: Path, slurm: dict[str, str], body: str) -> None:
    with pytest.raises(SourceError) as failure:
        look(tmp_path, {**slurm, "squeue --json": body}, deadline=1)
    assert type(failure.value) is FAILURES[body]
    assert str(failure.value).startswith("slurm: ")


def test_commands_that_are_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Unreachable, match="client commands"):
        SlurmScheduler().snapshot(NOW)
