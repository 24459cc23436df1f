"""Slurm's replies as they really are: shapes of several versions, free text, records that are broken."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.errors import BadReply
from bot.model import Holder, Job, Node
from bot.schedulers.slurm_history import Row, combine, parse_accounting
from bot.slurm_records import (
    gres_gpus,
    holder_of,
    is_held,
    parse_jobs,
    parse_nodes,
    parse_reservations,
    tres_gpus,
)

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


# -- nodes ----------------------------------------------------------------------------------------


def node_text(name: str = "node-01", state: str = "IDLE", reason: str = "", **changed: str) -> str:
    """A record as 22.05 prints it; `reason` goes where Slurm puts it."""
    fields = {
        "CPUAlloc": "1",
        "CPUTot": "64",
        "Gres": "gpu:b200:8",
        "AllocTRES": "cpu=1,mem=100G,gres/gpu=8",
        "BootTime": "1796071791",
        **changed,
    }
    text = f"""NodeName={name} Arch=x86_64 CoresPerSocket=32
   CPUAlloc={fields["CPUAlloc"]} CPUEfctv=64 CPUTot={fields["CPUTot"]} CPULoad=0.36
   AvailableFeatures=b200,ib
   ActiveFeatures=b200,ib
   Gres={fields["Gres"]}
   NodeAddr=127.0.0.1 NodeHostName=vm Port=17001 Version=22.05.8
   OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0
   RealMemory=1000000 AllocMem=102400 FreeMem=23188 Sockets=2 Boards=1
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=train,debug
   BootTime={fields["BootTime"]} SlurmdStartTime=1796074261
   CfgTRES=cpu=64,mem=1000000M,billing=64,gres/gpu=8
   AllocTRES={fields["AllocTRES"]}
"""
    return text + (f"   Reason={reason}\n" if reason else "") + "\n"


def node(**facts: str) -> Node:
    nodes, unknown = parse_nodes(node_text(**facts))
    assert unknown == ()
    return nodes["node-01"]


def test_a_node_in_service() -> None:
    assert node(state="MIXED") == Node(
        name="node-01",
        state="MIXED",
        up=True,
        open=True,
        gpus=8,
        gpus_used=8,
        features=frozenset({"b200", "ib"}),
        partitions=("train", "debug"),
        booted=1796071791,
    )


UP_AND_OPEN = {
    "IDLE": (True, True),
    "MIXED": (True, True),
    "ALLOCATED+COMPLETING": (True, True),
    "IDLE+PLANNED": (True, True),
    "mixed-": (True, True),
    "IDLE+CLOUD+RESERVED": (True, True),
    "IDLE+DRAIN": (True, False),
    "MIXED+DRAIN": (True, False),
    "DRAIN+ALLOCATED": (True, False),
    "draining": (True, False),
    "drng": (True, False),
    "MAINTENANCE": (True, False),
    "maint": (True, False),
    "IDLE+FAIL": (True, False),
    "failing": (True, False),
    "IDLE+DYNAMIC_NORM+MAINTENANCE+RESERVED+PLANNED": (True, False),
    "MIXED+CLOUD+REBOOT_REQUESTED": (True, False),
    "idle@": (True, False),
    "idle$": (True, False),
    "IDLE+A_FLAG_OF_THE_FUTURE": (True, False),
    "idle*": (False, False),
    "drained*": (False, False),
    "idle~": (False, False),
    "idle#": (False, False),
    "idle%": (False, False),
    "idle!": (False, False),
    "idle^": (False, False),
    "DOWN": (False, False),
    "DOWN*+DRAIN": (False, False),
    "MIXED+CLOUD+DOWN+POWERING_UP": (False, False),
    "IDLE+NOT_RESPONDING": (False, False),
    "DOWN+DYNAMIC_NORM+NOT_RESPONDING": (False, False),
    "IDLE+CLOUD+POWER": (False, False),
    "IDLE+CLOUD+DRAIN+INVALID_REG": (False, False),
    "UNKNOWN": (False, False),
    "FUTURE": (False, False),
    "": (False, False),
    "NEW": (False, False),
}


@pytest.mark.parametrize("state", UP_AND_OPEN)
def test_up_and_open_follow_from_base_and_every_flag(state: str) -> None:
    seen = node(state=state)
    assert (seen.up, seen.open) == UP_AND_OPEN[state]


OURS = "xidbot:412.1 GPU 3 lost; review 2026-12-02T09:00Z [xidbot-gate@1796083683]"
HOLDERS = {
    OURS: Holder("xidbot", "xidbot-gate", "GPU 3 lost; review 2026-12-02T09:00Z", "412.1", 1796083683),
    "xidbot:r7 asked by alice [root@1]": Holder("xidbot", "root", "asked by alice", "r7", 1),
    "xidbot: 412.1 x [root@1]": Holder("person", "root", "xidbot: 412.1 x", since=1),
    "xidbot:412 x [root@1]": Holder("person", "root", "xidbot:412 x", since=1),
    "old xidbot:412.1 x [root@1]": Holder("person", "root", "old xidbot:412.1 x", since=1),
    "xidbot:412.1: x [root@1]": Holder("person", "root", "xidbot:412.1: x", since=1),
    "memory issues? [root@2019-01-29T10:42:12]": Holder("person", "root", "memory issues?", since=1548758532),
    "维护中 [root@1]": Holder("person", "root", "维护中", since=1),
    "see [x@y] State=IDLE [bob@2]": Holder("person", "bob", "see [x@y] State=IDLE", since=2),
    "[user_problem] gpus_busy [root@1]": Holder("health", "[user_problem]", "[user_problem] gpus_busy", since=1),
    "NHC: check_fs failed [root@1]": Holder("health", "NHC", "NHC: check_fs failed", since=1),
    "Kill task failed [root@1]": Holder("health", "Kill task failed", "Kill task failed", since=1),
    "[J] [NVSentinel] gpu [root@1]": Holder("health", "[J] [NVSentinel]", "[J] [NVSentinel] gpu", since=1),
    "Not responding [slurm@1]": Holder("controller", "slurm", "Not responding", since=1),
    "gres/gpu count reported lower than configured (7 < 8) [slurm@1]": Holder(
        "controller", "slurm", "gres/gpu count reported lower than configured (7 < 8)", since=1
    ),
    "Foo/ failed [reframe_user@01 Jan 2018]": Holder("person", "reframe_user", "Foo/ failed"),
    "some reason": Holder("person", "somebody", "some reason"),
}  # fmt: skip


@pytest.mark.parametrize("reason", HOLDERS)
def test_who_drained_it(reason: str) -> None:
    assert node(state="IDLE+DRAIN", reason=reason).holders == (HOLDERS[reason],)


def test_a_reason_alone_holds_nothing() -> None:
    assert node(reason="just a note [root@1]").holders == ()


def test_a_lifted_drain_of_ours_stays_as_text_on_a_node_that_is_down() -> None:
    """Measured on 22.05: UNDRAIN clears the flag of a node that is down and leaves the reason."""
    down = node(state="DOWN+NOT_RESPONDING", reason=OURS)
    assert down.ours is None
    assert [h.kind for h in down.others] == ["controller"]


def test_a_drain_of_ours_on_a_node_that_is_down_is_still_ours() -> None:
    assert node(state="DOWN*+DRAIN", reason=OURS).ours == HOLDERS[OURS]


def test_down_without_a_word_is_held_by_the_controller() -> None:
    assert node(state="DOWN").holders == (Holder("controller", "slurm", "down"),)


def test_maintenance_is_a_holder_of_its_own() -> None:
    holders = node(state="IDLE+DRAIN+MAINTENANCE", reason=OURS).holders
    assert [h.kind for h in holders] == ["xidbot", "maintenance"]


def test_a_reason_of_several_lines_neither_ends_the_record_nor_makes_one() -> None:
    """22.05 puts the holder behind the first line and indents the rest by ten."""
    reason = f"line one [root@5]\n{' ' * 10}NodeName=node-09 State=IDLE\n{' ' * 10}State=IDLE"
    nodes, unknown = parse_nodes(node_text(state="IDLE+DRAIN", reason=reason) + node_text("node-02"))
    assert (list(nodes), unknown) == (["node-01", "node-02"], ())
    assert nodes["node-01"].state == "IDLE+DRAIN"
    assert nodes["node-01"].holders == (
        Holder("person", "root", "line one NodeName=node-09 State=IDLE State=IDLE", since=5),
    )


def test_one_line_per_node() -> None:
    text = (
        "NodeName=dm2 CPUAlloc=17 CPUTot=24 Gres=(null) State=DOWN*+DRAIN Partitions=copy  BootTime=None "
        "CfgTRES=cpu=24 AllocTRES= Reason=Not responding State=IDLE [root@2017-06-29T08:00:07]\n"
    )
    seen = parse_nodes(text)[0]["dm2"]
    assert (seen.state, seen.gpus, seen.booted) == ("DOWN*+DRAIN", 0, None)
    assert seen.holders == (Holder("controller", "slurm", "Not responding State=IDLE", since=1498723207),)


def test_broken_and_repeated_records_are_named_and_move_nothing() -> None:
    text = (
        node_text()
        + "NodeName=node-02 Arch=x86_64\n\n"
        + "NodeName=node-03NodeAddr=10.0.0.3\n   State=IDLE\n\n"
        + node_text(state="DOWN")
        + node_text("node-04", state="MIXED")
    )
    nodes, unknown = parse_nodes(text)
    assert {n: node.state for n, node in nodes.items()} == {"node-01": "IDLE", "node-04": "MIXED"}
    assert unknown == (
        "node record 'node-02'",
        "node record 'node-03NodeAddr=10.0.0.3'",
        "node record 'node-01'",
    )


@pytest.mark.parametrize("text", ["", "No nodes in the system", "slurm_load_node error", "\0"])
def test_a_reply_without_nodes_is_no_empty_cluster(text: str) -> None:
    with pytest.raises(BadReply):
        parse_nodes(text)


def test_gpus_in_use_come_from_gres_where_shown_else_from_tres() -> None:
    assert node(AllocTRES="cpu=1,gres/gpu=3,gres/gpu:b200=3").gpus_used == 3
    assert node(AllocTRES="cpu=1").gpus_used == 0
    used = node_text().replace("   NodeAddr", "   GresDrain=N/A\n   GresUsed=gpu:b200:5(IDX:0-4)\n   NodeAddr")
    assert parse_nodes(used)[0]["node-01"].gpus_used == 5
    assert parse_nodes(node_text().replace("   Gres=gpu:b200:8\n", ""))[0]["node-01"].gpus is None


@pytest.mark.parametrize(
    ("facts", "full"),
    [({}, False), ({"state": "ALLOCATED"}, True), ({"CPUAlloc": "64"}, True), ({"CPUAlloc": "N/A"}, False)],
)
def test_full(facts: dict[str, str], full: bool) -> None:
    assert node(**facts).full is full


def test_full_when_no_memory_is_left() -> None:
    text = node_text().replace("AllocMem=102400", "AllocMem=1000000")
    assert parse_nodes(text)[0]["node-01"].full


GRES = {
    "": 0,
    "(null)": 0,
    "gpu:8": 8,
    "gpu:b200:8(S:0-1)": 8,
    "gpu:tesla:2(S:0),gpu:kepler:2(S:1)": 4,
    "gpu:1080:7,gpu:block:1": 8,
    "gpu:nvidia_geforce_rtx_5090:4(S:0-3),VramPerGpu:no_consume:32G": 4,
    "gpu_mem:16280,gpu:1": 1,
    "gpu:h100:8(IDX:0-3,5)": 8,
    "gpu:h100:0(IDX:N/A)": 0,
    "gres:gpu:8": 8,
    "gres/gpu:h100:4": 4,
    "gres/gpu=2": 2,
    "gres:gpu": 1,
}


@pytest.mark.parametrize("text", GRES)
def test_gpus_of_a_gres(text: str) -> None:
    assert gres_gpus(text) == GRES[text]


def test_gpus_of_a_tres_are_not_counted_twice() -> None:
    assert tres_gpus("cpu=94,mem=375G,billing=231,gres/gpu=4,gres/gpu:rtx_5090=4") == 4
    assert tres_gpus("cpu=1,gres/gpu:h100=2,gres/gpu:a100=3") == 5
    assert tres_gpus("cpu=1,gres/gpu_mem=4") == 0


# -- reservations ---------------------------------------------------------------------------------

RESERVATION = """ReservationName=maint1 StartTime=1796083858 EndTime=1796087458 Duration=01:00:00
   Nodes=node-[07-08] NodeCnt=2 CoreCnt=128 Features=(null) PartitionName=(null) Flags=MAINT,IGNORE_JOBS,SPEC_NODES
   Users=root Groups=(null) Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) Watts=n/a

ReservationName=team1 StartTime=2026-12-01T00:09:58 EndTime=2027-12-01T00:09:58 Duration=365-00:00:00
   Nodes=(null) NodeCnt=0 CoreCnt=64 Features=(null) PartitionName=(null) Flags=NOT_MAINT
"""


def test_reservations() -> None:
    (maintenance, team), unknown = parse_reservations(RESERVATION)
    assert (maintenance.name, maintenance.maintenance) == ("maint1", True)
    assert maintenance.nodes == {"node-07", "node-08"}
    assert (maintenance.start, maintenance.end) == (1796083858, 1796087458)
    assert (team.nodes, team.maintenance, team.start) == (frozenset(), False, 1796083798)
    assert unknown == ()


def test_no_reservation_is_an_answer_and_nothing_at_all_is_none() -> None:
    assert parse_reservations("No reservations in the system\n") == ((), ())
    with pytest.raises(BadReply):
        parse_reservations("")


def test_a_reservation_without_times_is_named() -> None:
    assert parse_reservations("ReservationName=odd StartTime=Unknown EndTime=1\n")[1] == (
        "reservation 'odd StartTime=Unknown EndTime=1'",
    )


# -- the queue ------------------------------------------------------------------------------------


def squeue(*jobs: dict[str, Any], errors: list[Any] | None = None) -> str:
    return json.dumps({"meta": {}, "errors": errors or [], "jobs": jobs})


def old(**changed: Any) -> dict[str, Any]:
    """A running job as 22.05 prints it, without what we do not read."""
    return {
        "job_id": 9041, "name": "solar-102b", "user_name": "alice", "user_id": 1001, "account": "acc",
        "partition": "train", "qos": "pretrain", "comment": "ckpt=/scratch/a", "job_state": "RUNNING",
        "state_reason": "None", "batch_flag": True, "requeue": True, "restart_cnt": 0, "priority": 4294901759,
        "array_job_id": 0, "array_task_id": None, "array_task_string": "", "het_job_id": 0, "het_job_offset": 0,
        "nodes": "node-[01-04]", "node_count": 4, "submit_time": 1000, "eligible_time": 1000, "start_time": 1010,
        "end_time": 8210, "exit_code": 0, "time_limit": 120, "features": "b200&ib", "resv_name": "",
        "required_nodes": "", "excluded_nodes": "node-[07,09]", "dependency": "", "tres_per_node": "gres:gpu:8",
        "tres_req_str": "cpu=4,node=4,gres/gpu=32", "gres_detail": ["gpu:b200:8(IDX:0-7)"] * 4, **changed,
    }  # fmt: skip


def new(**changed: Any) -> dict[str, Any]:
    """The same job as 24.11 prints it: lists of states, numbers in three parts."""
    job = old(**changed)
    job["job_state"] = job["job_state"] if isinstance(job["job_state"], list) else [job["job_state"]]
    for name in ("array_job_id", "array_task_id", "het_job_id", "het_job_offset", "node_count", "submit_time",
                 "eligible_time", "start_time", "end_time", "time_limit", "priority"):  # fmt: skip
        job[name] = {"set": job[name] is not None, "infinite": False, "number": job[name] or 0}
    code = {"set": True, "infinite": False, "number": job["exit_code"] >> 8}
    signal = {"id": {"set": False, "infinite": False, "number": job["exit_code"] & 127}, "name": ""}
    signal["id"] = {"set": bool(job["exit_code"] & 127), "infinite": False, "number": job["exit_code"] & 127}
    job["exit_code"] = {"status": ["SUCCESS"], "return_code": code, "signal": signal}
    job["tres_per_node"] = "gres/gpu:8"
    return {**job, "hold": False}


def one(record: dict[str, Any]) -> Job:
    jobs, unknown = parse_jobs(squeue(record))
    assert unknown == ()
    return next(iter(jobs.values()))


both = pytest.mark.parametrize("shape", [old, new])


@both
def test_a_running_job(shape: Any) -> None:
    job = one(shape())
    nodes = ("node-01", "node-02", "node-03", "node-04")
    assert (job.id, job.name, job.user, job.state) == ("9041", "solar-102b", "alice", "RUNNING")
    assert (job.partition, job.account, job.qos, job.comment) == ("train", "acc", "pretrain", "ckpt=/scratch/a")
    assert (job.node_count, job.gpus_per_node, job.time_limit) == (4, 8, 7200)
    assert (job.features, job.excluded) == (frozenset({"b200", "ib"}), ("node-07", "node-09"))
    assert (job.batch, job.requeue, job.queued, job.begin) == (True, True, True, None)
    assert job.latest and (job.latest.id, job.latest.nodes, job.latest.start) == ("9041#0", nodes, 1010)
    assert (job.latest.end, job.latest.exit_code) == (None, "")


@both
def test_an_ended_job(shape: Any) -> None:
    latest = one(shape(job_state="FAILED", exit_code=768, end_time=2000)).latest
    assert latest and (latest.state, latest.end, latest.exit_code) == ("FAILED", 2000, "3:0")
    latest = one(shape(job_state="FAILED", exit_code=9)).latest
    assert latest and latest.exit_code == "0:9"


@both
def test_a_pending_job_shows_nothing_of_the_run_before(shape: Any) -> None:
    waiting = {"job_state": "PENDING", "nodes": "", "restart_cnt": 1, "exit_code": 768, "start_time": 9_999_999}
    job = one(shape(**waiting, eligible_time=5000, state_reason="BeginTime"))
    assert job.latest and (job.latest.ordinal, job.latest.start, job.latest.exit_code) == (1, None, "")
    assert (job.begin, is_held(job)) == (5000, False)


@both
def test_held_is_seen_whatever_reason_slurm_shows(shape: Any) -> None:
    assert is_held(one(shape(job_state="PENDING", priority=0)))
    assert is_held(one(shape(job_state="PENDING", state_reason="JobHeldUser", priority=0)))
    assert not is_held(one(shape(job_state="RUNNING", priority=0)))


@both
def test_no_end_of_time(shape: Any) -> None:
    assert one(shape(time_limit=None)).time_limit is None


def test_a_requeued_job_that_still_stops_is_not_its_next_run() -> None:
    """Measured on 22.05: the restart count rises at once, start is the present second, the end a full limit later."""
    stopping = {"job_state": "COMPLETING", "restart_cnt": 1, "nodes": "node-01"}
    job = one(old(**stopping, start_time=5000, end_time=5000 + 4294967236, time_limit=None))
    assert job.state == "COMPLETING"
    assert job.latest and (job.latest.id, job.latest.state, job.latest.nodes) == ("9041#1", "PENDING", ())
    same = one(new(**{**stopping, "job_state": ["PENDING", "COMPLETING"]}))
    assert same.latest == job.latest


def test_a_job_that_stops_by_itself_is_still_the_same_run() -> None:
    for job in (
        one(old(job_state="COMPLETING", restart_cnt=1, start_time=1010, end_time=1500)),
        one(old(job_state="COMPLETING", restart_cnt=1, end_time=9000, state_reason="TimeLimit")),
        one(new(job_state=["FAILED", "COMPLETING"], restart_cnt=1)),
    ):
        assert job.latest and (job.latest.state, job.latest.start) == ("COMPLETING", 1010)


STATES = {
    "CONFIGURING": "RUNNING",
    "REQUEUED": "PENDING",
    "SPECIAL_EXIT": "PENDING",
    "STAGE_OUT": "COMPLETING",
    "STOPPED": "STOPPED",
    "SUSPENDED": "SUSPENDED",
    "NODE_FAIL": "NODE_FAIL",
    "OUT_OF_MEMORY": "OUT_OF_MEMORY",
    "CANCELLED by 1185300516": "CANCELLED",
}


@pytest.mark.parametrize("state", STATES)
def test_flags_in_place_of_a_state(state: str) -> None:
    assert one(old(job_state=state)).state == STATES[state]


def test_states_and_flags_together() -> None:
    assert one(new(job_state=["RUNNING", "CONFIGURING"])).state == "RUNNING"
    assert one(new(job_state=["RUNNING", "STOPPED"])).state == "STOPPED"
    assert one(new(job_state=["PENDING", "REQUEUE_HOLD"])).state == "PENDING"


def test_cancelled_while_it_waited_never_ran() -> None:
    latest = one(old(job_state="CANCELLED", nodes="", start_time=2000, end_time=2000)).latest
    assert latest and (latest.start, latest.started) == (None, False)


@both
def test_ids_are_exact(shape: Any) -> None:
    records = [
        shape(job_id=13, array_job_id=2, array_task_id=0),
        shape(job_id=2, array_job_id=2, array_task_string="2-5%2", job_state="PENDING", nodes=""),
        shape(job_id=21, array_job_id=21, array_task_id=0),
        shape(job_id=5, het_job_id=5),
        shape(job_id=6, het_job_id=5, het_job_offset=1),
    ]
    assert list(parse_jobs(squeue(*records))[0]) == ["2_0", "2_[2-5%2]", "21_0", "5+0", "5+1"]


def test_the_value_for_no_value_is_none() -> None:
    assert one(old(array_task_id=4294967294, array_job_id=0, time_limit=4294967295)).time_limit is None


@pytest.mark.parametrize(
    ("asked", "detail", "spread", "gpus"),
    [
        ("gres:gpu:b200:4", [], "", 4),
        ("", ["gpu:b200:8(IDX:0-7)", "gpu:b200:2(IDX:0-1)"], "", 8),
        ("", [], "cpu=4,gres/gpu=30", 8),
        ("", None, "cpu=4", 0),
    ],
)
def test_gpus_per_node(asked: str, detail: object, spread: str, gpus: int) -> None:
    assert one(old(tres_per_node=asked, gres_detail=detail, tres_req_str=spread)).gpus_per_node == gpus


def test_an_expression_of_features_fits_no_node() -> None:
    assert one(old(features="[r1|r2]*2")).features == {"[r1|r2]*2"}
    assert one(old(features="")).features == frozenset()


def test_broken_records_are_named_and_move_nothing() -> None:
    records = [
        old(job_id=None),
        old(job_id=1, job_state=None),
        old(job_id=2, nodes="node-[1-"),
        old(job_id=3, job_state="A_STATE_OF_THE_FUTURE"),
        old(job_id=4),
        old(job_id=4, name="again"),
        ["not", "a", "job"],
    ]
    jobs, unknown = parse_jobs(squeue(*records))  # type: ignore[arg-type]
    assert [(job.id, job.name) for job in jobs.values()] == [("4", "solar-102b")]
    names = ("no. 1", "1", "2", "3", "4", "no. 7")
    assert unknown == tuple(f"job record {name}" for name in names)


@pytest.mark.parametrize("text", ["", "null", "[]", "{}", '{"jobs": {}}', "<html>", "1" * 5000, "[" * 100_000])
def test_a_reply_that_is_none(text: str) -> None:
    with pytest.raises(BadReply):
        parse_jobs(text)


@pytest.mark.parametrize(
    "error", [{"error": "Invalid user id", "error_number": 2010}, {"errno": 2018, "error": "x"}, "plain"]
)
def test_errors_in_a_reply_are_errors(error: object) -> None:
    with pytest.raises(BadReply):
        parse_jobs(squeue(old(), errors=[error]))


# -- accounting -----------------------------------------------------------------------------------


def sacct_row(state: Any, submit: int, start: int = 0, end: int = 0, **changed: Any) -> dict[str, Any]:
    """A row as 22.05 prints it."""
    return {
        "job_id": 27, "name": "nf", "user": "root", "account": "acc", "partition": "train", "qos": "normal",
        "association": {"user": "root"}, "allocation_nodes": 2, "comment": {"job": None},
        "array": {"job_id": 0, "task_id": None, "task": None}, "het": {"job_id": 0, "job_offset": None},
        "nodes": "node-[01-02]" if start else "None assigned", "state": {"current": state, "reason": "None"},
        "time": {"submission": submit, "start": start, "end": end},
        "exit_code": {"status": "SUCCESS", "return_code": 0},
        "steps": [{"state": "CANCELLED", "step": {"id": "batch"}, "time": {"end": end}}] if end else [], **changed,
    }  # fmt: skip


def rows(*records: dict[str, Any], job: str = "27") -> tuple[Row, ...]:
    found, unknown = parse_accounting(squeue(*records))
    assert unknown == ()
    return found.get(job, ())


def live(state: str, submit: int, restarts: int, **changed: Any) -> Job:
    nodes = "" if state == "PENDING" else "node-[02-03]"
    facts = {"job_id": 27, "name": "nf", "user_name": "root", "submit_time": submit, "start_time": submit + 1}
    return one(old(job_state=state, restart_cnt=restarts, nodes=nodes, **{**facts, **changed}))


def attempts(job: Job | None) -> list[tuple[int, str, tuple[str, ...]]]:
    assert job
    return [(a.ordinal, a.state, a.nodes) for a in job.attempts]


def test_nothing_found_is_empty() -> None:
    error = {"description": "Nothing found", "error_number": 9003, "error": "Nothing found with query"}
    assert parse_accounting(squeue(errors=[error])) == ({}, ())
    assert parse_accounting(squeue()) == ({}, ())


def test_a_rerun_by_slurm_is_the_next_attempt() -> None:
    """Measured: NODE_FAIL and requeue by Slurm itself; submit is reset, accounting has the queue's row too."""
    past = rows(sacct_row("NODE_FAIL", 889, 889, 891), sacct_row("RUNNING", 891, 892))
    job = combine(live("RUNNING", 891, 1), past)
    assert attempts(job) == [(0, "NODE_FAIL", ("node-01", "node-02")), (1, "RUNNING", ("node-02", "node-03"))]
    assert job and (job.submit, job.first_submit) == (891, 889)


def test_accounting_lags() -> None:
    """The queue shows restart 1 before accounting has its row, or even the end of the run before."""
    job = combine(live("PENDING", 891, 1), rows(sacct_row("NODE_FAIL", 889, 889, 891)))
    assert attempts(job) == [(0, "NODE_FAIL", ("node-01", "node-02")), (1, "PENDING", ())]
    job = combine(live("PENDING", 891, 1), rows(sacct_row("RUNNING", 889, 889)))
    assert attempts(job) == [(0, "RUNNING", ("node-01", "node-02")), (1, "PENDING", ())]
    job = combine(live("PENDING", 891, 1), ())
    assert attempts(job) == [(1, "PENDING", ())]
    assert job and job.first_submit == 891


def test_three_runs_within_one_second() -> None:
    past = rows(sacct_row("REQUEUED", 500, 500, 500), sacct_row("REQUEUED", 500, 500, 500), sacct_row("PENDING", 500))
    assert [a[:2] for a in attempts(combine(live("PENDING", 500, 2), past))] == [
        (0, "REQUEUED"),
        (1, "REQUEUED"),
        (2, "PENDING"),
    ]


def test_a_requeue_that_still_stops_keeps_the_old_submit() -> None:
    stopping = live("COMPLETING", 500, 1, start_time=700, end_time=700 + 120 * 60)
    job = combine(stopping, rows(sacct_row("REQUEUED", 500, 501, 699)))
    assert attempts(job) == [(0, "REQUEUED", ("node-01", "node-02")), (1, "PENDING", ())]


def test_ordinals_count_from_the_end_when_early_rows_were_purged() -> None:
    past = rows(sacct_row("REQUEUED", 700, 700, 790), sacct_row("RUNNING", 800, 800))
    assert [a[:2] for a in attempts(combine(live("RUNNING", 800, 5), past))] == [(4, "REQUEUED"), (5, "RUNNING")]


def test_a_reused_id_is_another_job() -> None:
    before = sacct_row("COMPLETED", 10, 10, 20)
    assert attempts(combine(live("RUNNING", 900, 0), rows(before))) == [(0, "RUNNING", ("node-02", "node-03"))]
    own = [sacct_row("REQUEUED", 800, 800, 890), sacct_row("RUNNING", 900, 900)]
    job = combine(live("RUNNING", 900, 1), rows(before, *own))
    assert [a[:2] for a in attempts(job)] == [(0, "REQUEUED"), (1, "RUNNING")]
    assert job and job.first_submit == 800
    other_user = sacct_row("NODE_FAIL", 10, 10, 20, user="bob")
    assert len(attempts(combine(live("RUNNING", 900, 1), rows(other_user, own[1])))) == 1


def test_a_job_that_left_the_queue() -> None:
    other = sacct_row("NODE_FAIL", 10, 10, 20, name="another")
    past = rows(other, sacct_row("REQUEUED", 800, 800, 890), sacct_row("FAILED", 890, 900, 950))
    job = combine(None, past)
    assert [a[:2] for a in attempts(job)] == [(0, "REQUEUED"), (1, "FAILED")]
    assert job and (job.state, job.queued, job.first_submit, job.batch) == ("FAILED", False, 800, True)
    assert combine(None, ()) is None


def test_running_for_accounting_but_gone_from_the_queue_is_lost() -> None:
    job = combine(None, rows(sacct_row("RUNNING", 800, 800)))
    assert job and (job.state, job.latest and job.latest.state) == ("LOST", "LOST")


def test_the_end_of_a_run_that_was_requeued_later() -> None:
    """Measured: requeueing a failed job turns its row to REQUEUED and moves the end to the requeue."""
    steps = [{"state": "FAILED", "step": {"id": "batch"}, "time": {"end": 260}}]
    assert rows(sacct_row("REQUEUED", 250, 250, 286, steps=steps))[0].end == 260
    in_parts = [{"step": {"id": "27.batch"}, "time": {"end": {"set": True, "infinite": False, "number": 260}}}]
    assert rows(sacct_row(["REQUEUED"], 250, 250, 286, steps=in_parts))[0].end == 260
    assert rows(sacct_row("NODE_FAIL", 250, 250, 286, steps=steps))[0].end == 286


def test_only_a_completed_zero_proves_anything() -> None:
    """22.05's JSON shows code 0 for `exit 3`."""
    killed = {"status": "SIGNALED", "return_code": None, "signal": {"signal_id": 9, "name": "Killed"}}
    assert rows(sacct_row("FAILED", 1, 1, 2))[0].exit_code == ""
    assert rows(sacct_row("COMPLETED", 1, 1, 2))[0].exit_code == "0:0"
    assert rows(sacct_row("FAILED", 1, 1, 2, exit_code=killed))[0].exit_code == "0:9"


def test_rows_of_arrays_and_het_jobs_have_their_own_ids() -> None:
    array = {"job_id": 2, "task_id": 0, "task": None}
    waiting = {"job_id": 2, "task_id": None, "task": "0x3C"}
    het = {"job_id": 21, "job_offset": 1}
    found, _ = parse_accounting(
        squeue(
            sacct_row("RUNNING", 1, 1, job_id=13, array=array),
            sacct_row("PENDING", 1, job_id=2, array=waiting),
            sacct_row("RUNNING", 1, 1, job_id=22, het=het),
            sacct_row("RUNNING", 1, 1, job_id=200),
        )
    )
    assert list(found) == ["2_0", "2_[0x3C]", "21+1", "200"]


def test_a_row_that_only_tells_a_new_size_is_no_attempt() -> None:
    assert [r.state for r in rows(sacct_row("RESIZING", 1, 1, 2), sacct_row("RUNNING", 1, 1))] == ["RUNNING"]


def test_one_name_for_one_job() -> None:
    """Measured: accounting turns a quotation mark into a back-quote."""
    assert one(old(name='it\'s "x"')).name == "it's `x`"


# -- whatever comes -------------------------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
field = st.sampled_from(sorted(old()))


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_a_parser(text: str) -> None:
    for parse in (parse_nodes, parse_jobs, parse_accounting, parse_reservations):
        for reply in (text, f"NodeName={text}", f"ReservationName={text}", f'{{"jobs": [{text}]}}'):
            try:
                parse(reply)
            except BadReply:
                continue


@settings(deadline=None)
@given(st.dictionaries(field, anything, max_size=6), st.booleans())
def test_no_value_breaks_the_queue_or_another_job(changed: dict[str, Any], first: bool) -> None:
    odd, good = {**old(job_id=1), **changed}, old(job_id=77)
    jobs, unknown = parse_jobs(json.dumps({"jobs": [odd, good] if first else [good, odd], "errors": []}))
    assert one(good) in jobs.values() or "job record 77" in unknown


@settings(deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(sacct_row("RUNNING", 1))), anything, max_size=6))
def test_no_value_breaks_accounting(changed: dict[str, Any]) -> None:
    found, unknown = parse_accounting(json.dumps({"jobs": [{**sacct_row("RUNNING", 1, 1), **changed}]}))
    assert len(found) + len(unknown) in (0, 1)


@settings(deadline=None)
@given(st.text(), st.text())
def test_what_a_user_writes_changes_nothing_else(name: str, comment: str) -> None:
    seen, plain = one(old(name=name, comment=comment)), one(old())
    facts = ("id", "user", "state", "account", "partition", "qos", "batch", "requeue", "attempts", "why", "submit")
    assert [getattr(seen, f) for f in facts] == [getattr(plain, f) for f in facts]


@settings(deadline=None)
@given(st.text(st.characters(exclude_characters="\r\n\v\f\x1c\x1d\x1e\x85\u2028\u2029")))
def test_no_reason_changes_another_field(why: str) -> None:
    reason = f"{why} [root@5]"
    plain, seen = node(state="MIXED+DRAIN", reason="x [root@5]"), node(state="MIXED+DRAIN", reason=reason)
    facts = ("name", "state", "up", "open", "gpus", "gpus_used", "full", "features", "partitions", "booted")
    assert [getattr(seen, f) for f in facts] == [getattr(plain, f) for f in facts]
    assert seen.holders[0].since == 5


@settings(deadline=None)
@given(st.text())
def test_only_the_exact_tag_is_ours(why: str) -> None:
    holder = holder_of(f"{why} [root@5]")
    assert (holder.kind == "xidbot") == bool(holder.tag)
    if holder.tag:
        assert why.startswith(f"xidbot:{holder.tag} ")


# -- real outputs, where they lie beside the checkout ---------------------------------------------

samples = pytest.mark.skipif(not SHARED.is_dir(), reason="no shared data beside this checkout")


def read(name: str) -> str:
    return (SHARED / name).read_text()


@samples
@pytest.mark.parametrize("name", ["22.05", "24.11"])
def test_real_nodes(name: str) -> None:
    nodes, unknown = parse_nodes(read(f"samples/{name}-scontrol-show-node.txt"))
    assert (len(nodes), unknown) == (8, ())
    assert nodes["node-03"].holders[0].why == "xid79 inc-42"
    assert {n.gpus for n in nodes.values()} == {8}


@samples
@pytest.mark.parametrize(
    "name", ["samples/22.05-squeue.json", "samples/24.11-squeue.json", "slurm/rivos_squeue_out.json"]
)
def test_real_queues(name: str) -> None:
    jobs, unknown = parse_jobs(read(name))
    assert jobs and unknown == ()
    assert len(jobs) == len(json.loads(read(name))["jobs"])
    running = [j for j in jobs.values() if j.state == "RUNNING"]
    assert all(j.latest and j.latest.nodes and j.latest.start for j in running)


@samples
def test_real_job_of_a_newer_rest_interface() -> None:
    job = one(json.loads(read("slurm/soperator_2_node_job.json")))
    assert job.latest and (job.id, job.state, job.latest.nodes) == ("349", "COMPLETED", ("worker-1", "worker-0"))


@samples
def test_real_accounting() -> None:
    found, unknown = parse_accounting(read("samples/24.11-sacct.json"))
    assert unknown == ()
    assert [r.nodes for r in found["1"]] == [("node-01", "node-02", "node-03", "node-04")]
    assert parse_accounting(read("samples/22.05-sacct.json")) == ({}, ())


@samples
def test_real_node_records_of_many_versions() -> None:
    nodes, unknown = parse_nodes(read("slurm/scontrol_show_node.txt"))
    assert (sorted(nodes), unknown) == (
        ["cu201", "datamover2", "gpu010", "gpu02", "node-04", "server5", "worker-0"],
        (),
    )
    assert {n: node.gpus for n, node in nodes.items() if node.gpus} == {"gpu010": 4, "gpu02": 8}
    assert not any(node.open for node in nodes.values())
    assert nodes["worker-0"].holders[0].kind == "health"
    for name in ("slurm/parallelcluster_nodeinfo_blocks.txt", "slurm/reframe_scontrol_o_nodes.txt"):
        parse_nodes(read(name))


@samples
def test_real_states() -> None:
    lines = [line for line in read("slurm/node_states.csv").splitlines() if line]
    for row in csv.DictReader(lines):
        seen = node(state=row["state"])
        words = row["state"].upper()
        if any(
            w in words for w in ("DRAIN", "DRNG", "DOWN", "FAIL", "MAINT", "REBOOT", "NOT_RESP", "POWER", "*", "~", "^")
        ):
            assert not seen.open, words
