"""`squeue --json`: jobs in the queue."""

from __future__ import annotations

import math
import re

from bot.errors import BadReply
from bot.model import ENDED, FAILED, Attempt, Job
from bot.slurm_records.hostlist import parse_hostlist
from bot.slurm_records.nodes import gres_gpus, tres_gpus
from bot.slurm_records.values import (
    SOURCE,
    Record,
    as_int,
    as_text,
    as_time,
    exit_text,
    json_jobs,
    limit,
    record_name,
    true,
)

OPEN_JOB_ID = re.compile(r"[1-9][0-9]{0,9}(?:_[0-9]{1,9})?")
"""A job that may be acted on: one job or one task. Not a pending rest of an array, not a part of a het job."""
AGAIN = FAILED | {"RUNNING", "TIMEOUT", "PREEMPTED"}
"""States that a requeue makes sense in. Slurm would also rerun a completed job and one that its owner cancelled."""

# 22.05 shows a flag in place of the base state.
_FLAG_STATES = {
    "CONFIGURING": "RUNNING",
    "RESIZING": "RUNNING",
    "SIGNALING": "RUNNING",
    "POWER_UP_NODE": "RUNNING",
    "STAGE_OUT": "COMPLETING",
    "REQUEUED": "PENDING",
    "REQUEUE_FED": "PENDING",
    "REQUEUE_HOLD": "PENDING",
    "SPECIAL_EXIT": "PENDING",
    "RESV_DEL_HOLD": "PENDING",
}
_BASES = (ENDED - {"REQUEUED"}) | {"PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "STOPPED"}
_NO_LIMIT = 365 * 86400


def parse_jobs(text: str) -> tuple[dict[str, Job], tuple[str, ...]]:
    """`squeue --json`: each job with its present attempt; its restart count is that attempt's ordinal."""
    jobs: dict[str, Job] = {}
    unknown: list[str] = []
    for number, record in enumerate(json_jobs(text, SOURCE)):
        try:
            job = _job(record)
        except BadReply:
            unknown.append(f"job record {record_name(record, number)}")
            continue
        if job.id in jobs:
            unknown.append(f"job record {job.id}")
        jobs.setdefault(job.id, job)
    return jobs, tuple(unknown)


def is_held(job: Job) -> bool:
    """Kept from starting by its owner, an administrator or Slurm itself."""
    return "held" in job.why.lower()


def _job(record: Record) -> Job:
    job_id = job_id_of(record)
    state, stopping = _live_state(record)
    attempt = _live_attempt(record, job_id, state, stopping)
    submit = as_int(record.get("submit_time")) or 0
    return Job(
        id=job_id,
        name=as_text(record.get("name")).replace('"', "`"),  # as accounting writes it: one name for one job
        user=as_text(record.get("user_name")) or as_text(record.get("user_id")),
        state=state,
        account=as_text(record.get("account")),
        partition=as_text(record.get("partition")),
        qos=as_text(record.get("qos")),
        comment=as_text(record.get("comment")),
        why=_why(record, state),
        node_count=as_int(record.get("node_count")) or 1,
        gpus_per_node=_gpus_per_node(record),
        batch=true(record.get("batch_flag")),
        requeue=true(record.get("requeue")),
        submit=submit,
        first_submit=submit,
        time_limit=limit(record.get("time_limit")),
        features=_wanted_features(as_text(record.get("features"))),
        reservation=as_text(record.get("resv_name")),
        required=parse_hostlist(as_text(record.get("required_nodes"))),
        excluded=parse_hostlist(as_text(record.get("excluded_nodes"))),
        dependency=as_text(record.get("dependency")),
        begin=as_time(record.get("eligible_time")) if state == "PENDING" else None,
        attempts=(attempt,),
    )


def job_id_of(record: Record) -> str:
    """`123`, `120_3` (task), `120_[4-7%2]` (tasks that wait together), `130+1` (part of a het job)."""
    number = as_int(record.get("job_id"))
    if not number:
        raise BadReply(SOURCE, "a job without an id")
    het, array = as_int(record.get("het_job_id")), as_int(record.get("array_job_id"))
    if het:
        return f"{het}+{as_int(record.get('het_job_offset')) or 0}"
    if not array:
        return str(number)
    task = as_int(record.get("array_task_id"))
    return f"{array}_{task}" if task is not None else f"{array}_[{as_text(record.get('array_task_string'))}]"


def _live_state(record: Record) -> tuple[str, bool]:
    """State, and whether it is a requeued job that still stops: then the record mixes both attempts."""
    words = state_words(record.get("job_state"))
    base = next((w for w in words if w in _BASES), _FLAG_STATES.get(words[0], ""))
    if not base:
        raise BadReply(SOURCE, f"job state {words[0]}")
    if "COMPLETING" in words or base == "COMPLETING":
        return "COMPLETING", "PENDING" in words or (len(words) == 1 and _runs_into_the_future(record))
    return ("STOPPED" if "STOPPED" in words else base), False


def state_words(value: object) -> tuple[str, ...]:
    """`RUNNING`, `CANCELLED by 1000` or `["PENDING", "COMPLETING"]`."""
    found = value if isinstance(value, list) else [value]
    words = tuple(w.split()[0].upper() for w in found if isinstance(w, str) and w.strip())
    if not words:
        raise BadReply(SOURCE, "a job without a state")
    return words


def _runs_into_the_future(record: Record) -> bool:
    """22.05 hides PENDING behind COMPLETING; but then start is now and the end a full time limit later."""
    if not as_int(record.get("restart_cnt")) or record.get("state_reason") == "TimeLimit":
        return False
    start, end = as_int(record.get("start_time")) or 0, as_int(record.get("end_time")) or 0
    return end - start >= (limit(record.get("time_limit")) or _NO_LIMIT)


def _live_attempt(record: Record, job_id: str, state: str, stopping: bool) -> Attempt:
    """A pending attempt's start is an estimate, its exit code the one of the attempt before."""
    ordinal = as_int(record.get("restart_cnt")) or 0
    if stopping or state == "PENDING":
        return Attempt(job_id, ordinal, "PENDING")
    nodes = parse_hostlist(as_text(record.get("nodes")))
    start = as_time(record.get("start_time")) if nodes else None  # cancelled while it waited: it never ran
    if state not in ENDED:
        return Attempt(job_id, ordinal, state, nodes, start)
    end, code = as_time(record.get("end_time")), exit_text(record.get("exit_code"))
    return Attempt(job_id, ordinal, state, nodes, start, end, code)


def _why(record: Record, state: str) -> str:
    why = as_text(record.get("state_reason"))
    held = state == "PENDING" and (record.get("hold") is True or as_int(record.get("priority")) == 0)
    return f"{why} (held)" if held and "held" not in why.lower() else why


def _gpus_per_node(record: Record) -> int:
    asked = gres_gpus(as_text(record.get("tres_per_node")))
    detail = record.get("gres_detail")
    given = max((gres_gpus(as_text(d)) for d in detail), default=0) if isinstance(detail, list) else 0
    spread = math.ceil(tres_gpus(as_text(record.get("tres_req_str"))) / (as_int(record.get("node_count")) or 1))
    return asked or given or spread


def _wanted_features(text: str) -> frozenset[str]:
    """`a100&ib` → both. An expression with `|`, counts or brackets stays whole: no node has that, so fit says no."""
    plain = re.fullmatch(r"[\w.:&,-]*", text)
    return frozenset(w for w in re.split(r"[&,]", text) if w) if plain else frozenset({text})
