"""What we read of a real Slurm is what is there."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from bot.errors import Unreachable
from bot.model import Cluster, Job
from bot.schedulers.hostlist import parse_hostlist
from bot.schedulers.slurm import SlurmScheduler
from tests.real.slurm import SlurmCluster
from tests.real.supervise import eventually

pytestmark = pytest.mark.real

SLEEP = "#!/bin/bash\nexec sleep 1000\n"
SLOW_TO_STOP = "#!/bin/bash\ntrap 'sleep 1.5; exit 1' TERM\nsleep 1000 & wait\nsleep 1\n"
ONE_GPU = ("--nodes=1", "--gpus-per-node=1", "--mem=1G", "--requeue", "--account=research")


def look(slurm: SlurmCluster, *watch: str, deadline: float = 10) -> Cluster:
    scheduler = SlurmScheduler(str(slurm.conf), deadline, lambda job: job.user == "trainer")
    return scheduler.snapshot(int(time.time()), watch)


def attempts(job: Job) -> list[tuple[str, str]]:
    return [(attempt.id, attempt.state) for attempt in job.attempts]


def mixture(slurm: SlurmCluster) -> str:
    """Jobs of every kind; the id of a plain one."""
    job = slurm.submit(SLEEP, "--nodes=2", "--gpus-per-node=8", "--mem=1G", "--account=research", "--job-name=llm")
    slurm.submit(SLEEP, *ONE_GPU, "--array=3-9%2")
    slurm.submit(SLEEP, *ONE_GPU, ":", *ONE_GPU)
    slurm.submit(SLEEP, *ONE_GPU, "--hold")
    slurm.submit(SLEEP, *ONE_GPU, "--begin=now+1hour", '--job-name=x" State=FAILED')
    failed = slurm.submit("#!/bin/bash\nexit 3\n", *ONE_GPU)
    slurm.wait_job(job)
    slurm.wait_job(failed, "FAILED")
    eventually(lambda: slurm.run("squeue", "-h", "-t", "R", "-o", "%i").stdout.count("\n") == 5, why="five run")
    return job


def test_jobs_are_what_squeue_says(slurm: SlurmCluster) -> None:
    job = mixture(slurm)
    seen = look(slurm)
    assert (seen.name, seen.unknown) == ("testcl", ())
    words = slurm.run("squeue", "-h", "-a", "-t", "all", "-o", "%i|%T|%u|%P|%a|%N|%D").stdout.splitlines()
    told = sorted(tuple(line.split("|")) for line in words)
    ours = sorted(
        (j.id, j.state, j.user, j.partition, j.account, ",".join(latest.nodes), str(j.node_count))
        for j in seen.jobs.values()
        if (latest := j.latest)
    )
    assert ours == [(*line[:5], ",".join(parse_hostlist(line[5])), line[6]) for line in told]
    assert {i for i in seen.jobs if "_" in i or "+" in i} >= {"2_3", "2_4"} or job != "1"
    assert seen.jobs[job].gpus_per_node == 8
    held = [j for j in seen.jobs.values() if "held" in j.why.lower()]
    later = [j for j in seen.jobs.values() if j.begin and j.begin > time.time() + 3000]
    assert (len(held), len(later), later[0].name) == (1, 1, "x` State=FAILED")
    (failed,) = [j for j in seen.jobs.values() if j.state == "FAILED" and int(j.id) > int(job)]
    assert failed.latest and failed.latest.exit_code == "3:0"


def test_nodes_are_what_sinfo_says(slurm: SlurmCluster) -> None:
    mixture(slurm)
    slurm.run("scontrol", "update", "nodename=node-03", "state=drain", "reason=odd [a@b] State=IDLE 维护 = it's")
    slurm.run("scontrol", "update", "nodename=node-04", "state=drain", "reason=two\nNodeName=node-05 State=DOWN")
    slurm.down("node-05", "bad cable")
    slurm.run("scontrol", "create", "reservation=m1", "starttime=now", "duration=60", "nodes=node-06",
              "flags=maint,ignore_jobs", "users=root")  # fmt: skip
    try:
        eventually(lambda: "MAINT" in slurm.node("node-06")["State"], why="the reservation is active")
        seen = look(slurm)
        text = slurm.run("sinfo", "-h", "-N", "-p", "train", "-O", "NodeList:40,StateComplete:80").stdout
    finally:
        slurm.run("scontrol", "delete", "reservation=m1")
    told = {line[:40].strip(): line[40:].strip() for line in text.splitlines()}
    assert sorted(seen.nodes) == sorted(told) == slurm.nodes
    for name, state in told.items():
        words = set(state.split("+"))
        good = not words & {"drain", "down", "maint", "maintenance", "not_responding"}
        assert seen.nodes[name].open == good, (name, state)
    used = slurm.run("scontrol", "-d", "-o", "show", "node").stdout.splitlines()
    for line in used:
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        node = seen.nodes[fields["NodeName"]]
        assert (node.gpus, str(node.gpus_used)) == (8, fields["GresUsed"].split(":")[2].split("(")[0])
        assert abs((node.booted or 0) - (time.time() - float(Path("/proc/uptime").read_text().split()[0]))) < 120
    holders = {name: [(h.kind, h.by, h.why) for h in node.holders] for name, node in seen.nodes.items()}
    assert holders["node-03"] == [("person", "root", "odd [a@b] State=IDLE 维护 = it's")]
    assert holders["node-04"] == [("person", "root", "two NodeName=node-05 State=DOWN")]
    assert holders["node-05"] == [("person", "root", "bad cable")]
    assert holders["node-06"][-1][0] == "maintenance"
    (reservation,) = seen.reservations
    assert (reservation.name, reservation.nodes, reservation.maintenance) == ("m1", frozenset({"node-06"}), True)
    assert abs(reservation.end - time.time() - 3600) < 60


def test_the_bots_account_sees_the_same(slurm: SlurmCluster) -> None:
    """It has no rights in Slurm but to look."""
    job = mixture(slurm)
    slurm.run("scontrol", "requeue", job)
    look_as_bot = (
        "from bot.schedulers.slurm import SlurmScheduler; import json\n"
        "seen = SlurmScheduler(match=lambda job: True).snapshot(0)\n"
        "print(json.dumps([sorted(seen.nodes), {i: len(j.attempts) for i, j in seen.jobs.items()}, seen.unknown]))"
    )

    def same() -> bool:
        env = {"PYTHONPATH": os.getcwd(), "PYTHONDONTWRITEBYTECODE": "1"}
        text = slurm.run(sys.executable, "-c", look_as_bot, user="xidbot", env=env).stdout
        nodes, jobs, unknown = json.loads(text)
        seen = look(slurm)
        assert (nodes, unknown) == (sorted(seen.nodes), [])
        assert jobs == {i: len(j.attempts) for i, j in seen.jobs.items()}
        return bool(jobs[job] == 2)

    eventually(same, within=15, why="accounting has caught up")


def test_a_rerun_by_slurm_is_the_next_attempt(slurm: SlurmCluster) -> None:
    job = slurm.submit(SLEEP, *ONE_GPU)
    first = slurm.wait_job(job)
    slurm.down(first["nodes"])
    slurm.wait_job(job, "PENDING")
    pending = look(slurm, job).jobs[job]
    assert pending.attempts[-1].id == f"{job}#1" and pending.attempts[-1].start is None
    slurm.run("scontrol", "update", f"jobid={job}", "StartTime=now")
    second = slurm.wait_job(job)
    eventually(lambda: len(look(slurm, job).jobs[job].attempts) == 2, within=15, why="accounting")
    seen = look(slurm, job).jobs[job]
    assert attempts(seen) == [(f"{job}#0", "NODE_FAIL"), (f"{job}#1", "RUNNING")]
    assert [a.nodes for a in seen.attempts] == [(first["nodes"],), (second["nodes"],)]
    assert [a.start for a in seen.attempts] == [first["start_time"], second["start_time"]]
    assert seen.attempts[0].end is not None
    assert (seen.first_submit, seen.submit) == (first["submit_time"], second["submit_time"])


def test_a_failed_run_that_was_requeued_keeps_its_own_end(slurm: SlurmCluster) -> None:
    job = slurm.submit("#!/bin/bash\nexit 3\n", *ONE_GPU)
    failed = slurm.wait_job(job, "FAILED")
    time.sleep(2.2)
    slurm.run("scontrol", "requeue", job)
    eventually(lambda: len(look(slurm, job).jobs[job].attempts) == 2, within=15, why="accounting")
    before = look(slurm, job).jobs[job].attempts[0]
    assert before.state == "REQUEUED"
    assert before.end is not None and before.end <= failed["end_time"] + 1


def test_a_requeued_job_that_still_stops_is_no_running_attempt(slurm: SlurmCluster) -> None:
    job = slurm.submit(SLOW_TO_STOP, *ONE_GPU)
    slurm.wait_job(job)
    time.sleep(0.5)
    slurm.run("scontrol", "requeue", job)
    seen = look(slurm, job).jobs[job]
    assert seen.state == "COMPLETING"
    assert attempts(seen)[-1] == (f"{job}#1", "PENDING") and not seen.attempts[-1].nodes
    slurm.wait_job(job, "PENDING")
    assert look(slurm, job).jobs[job].begin is not None


def test_a_job_that_only_accounting_knows(slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done, lost = slurm.submit("#!/bin/bash\nexit 0\n", *ONE_GPU), slurm.submit(SLEEP, *ONE_GPU)
    slurm.wait_job(done, "COMPLETED")
    slurm.wait_job(lost)
    (tmp_path / "squeue").write_text('#!/bin/sh\necho \'{"jobs": [], "errors": []}\'\n')
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def told() -> bool:
        jobs = look(slurm, done, lost, "999999").jobs
        states = {i: (job.state, job.queued, job.batch) for i, job in jobs.items()}
        return states == {done: ("COMPLETED", False, True), lost: ("LOST", False, True)}

    eventually(told, within=15, why="accounting")


@pytest.fixture
def hung_accounting(slurm: SlurmCluster) -> Iterator[None]:
    pid = slurm.root / "run/slurmdbd.pid"
    slurm._world.signal(pid, signal.SIGSTOP)
    yield
    slurm._world.signal(pid, signal.SIGCONT)


def test_hung_accounting_is_named_in_time(slurm: SlurmCluster, hung_accounting: None) -> None:
    job = slurm.submit(SLEEP, *ONE_GPU)
    slurm.wait_job(job)
    began = time.monotonic()
    seen = look(slurm, job, "999999", deadline=1.5)
    assert time.monotonic() - began < 4
    assert (seen.unknown, attempts(seen.jobs[job])) == (("accounting",), [(f"{job}#0", "RUNNING")])


def test_a_hung_controller_is_unreachable_in_time(slurm: SlurmCluster) -> None:
    look(slurm)
    slurm.pause_controller()
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"did not answer within 1.5 s \(see `scontrol ping`\)"):
        look(slurm, deadline=1.5)
    assert time.monotonic() - began < 3.5
    slurm.resume_controller()
    assert look(slurm).nodes


def test_a_controller_that_is_not_there_says_so(slurm: SlurmCluster) -> None:
    slurm.stop_controller()
    with pytest.raises(Unreachable) as gone:
        look(slurm, deadline=3)
    assert "slurm" in str(gone.value) and "scontrol ping" in gone.value.remedy


@pytest.mark.parametrize(
    "text",
    ["node-[01-08]", "n[01-100]", "a[001,2-3,004]", "n[98-100,0101]", "r[1-2][3-4]", "a[1-2]b[3-4]", "x,y[9-11]"],
)
def test_host_lists_are_read_as_slurm_reads_them(slurm: SlurmCluster, text: str) -> None:
    assert list(parse_hostlist(text)) == slurm.run("scontrol", "show", "hostnames", text).stdout.split()
