"""What Slurm's accounting remembers of a job, and how it joins what the queue shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from bot.errors import BadReply
from bot.model import ENDED, RERUN, Attempt, Job
from bot.slurm_records import (
    Record,
    as_int,
    as_list,
    as_map,
    as_text,
    as_time,
    exit_text,
    job_id_of,
    json_jobs,
    parse_hostlist,
    record_name,
    state_words,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One attempt in accounting. start and end None: not told."""

    job: str
    name: str
    user: str
    account: str
    partition: str
    qos: str
    state: str
    submit: int
    start: int | None
    end: int | None
    nodes: tuple[str, ...]
    node_count: int
    exit_code: str
    batch: bool
    comment: str


def parse_accounting(text: str) -> tuple[dict[str, tuple[Row, ...]], tuple[str, ...]]:
    """`sacct -D --json`: the rows of each job, oldest first. Ids may be reused, see `combine`."""
    rows: dict[str, list[Row]] = {}
    unknown: list[str] = []
    for number, record in enumerate(json_jobs(text, "slurm accounting")):
        try:
            row = _row(record)
        except BadReply:
            unknown.append(f"accounting record {record_name(record, number)}")
            continue
        if row.state != "RESIZING":  # the same attempt goes on in the next row
            rows.setdefault(row.job, []).append(row)
    return {job: tuple(sorted(found, key=lambda r: r.submit)) for job, found in rows.items()}, tuple(unknown)


def _row(record: Record) -> Row:
    time, array, het = (as_map(record.get(k)) for k in ("time", "array", "het"))
    flat = {
        "job_id": record.get("job_id"),
        "array_job_id": array.get("job_id"),
        "array_task_id": array.get("task_id"),
        "array_task_string": as_text(array.get("task")) or "?",
        "het_job_id": het.get("job_id"),
        "het_job_offset": het.get("job_offset"),
    }
    state = state_words(as_map(record.get("state")).get("current"))[0]
    return Row(
        job=job_id_of(flat),
        name=as_text(record.get("name")),
        user=as_text(record.get("user")) or as_text(as_map(record.get("association")).get("user")),
        account=as_text(record.get("account")),
        partition=as_text(record.get("partition")),
        qos=as_text(record.get("qos")),
        state=state,
        submit=as_int(time.get("submission")) or 0,
        start=as_time(time.get("start")),
        end=_row_end(record, state, as_time(time.get("end"))),
        nodes=parse_hostlist(as_text(record.get("nodes"))),
        node_count=as_int(record.get("allocation_nodes")) or 1,
        exit_code=_told_exit(record, state),
        batch=_batch_step(record) is not None,
        comment=as_text(as_map(record.get("comment")).get("job")),
    )


def _row_end(record: Record, state: str, end: int | None) -> int | None:
    """A requeue of a job that had ended makes its row REQUEUED with a new end: the batch step keeps the true one."""
    step = _batch_step(record)
    stopped = as_time(as_map(step.get("time")).get("end")) if step and state == "REQUEUED" else None
    return min(end, stopped) if end and stopped else end


def _batch_step(record: Record) -> Record | None:
    for step in map(as_map, as_list(record.get("steps"))):
        if as_text(as_map(step.get("step")).get("id")).split(".")[-1] == "batch":
            return step
    return None


def _told_exit(record: Record, state: str) -> str:
    """22.05's JSON says 0 for every plain exit code: only a completed job's 0 proves anything."""
    code = exit_text(record.get("exit_code"))
    return "" if code == "0:0" and state != "COMPLETED" else code


def combine(live: Job | None, rows: Sequence[Row]) -> Job | None:
    """A job with all its attempts: earlier ones from accounting, the present one from the queue.

    None when neither knows it. A job that the queue has forgotten comes from accounting alone; one that accounting
    still takes for running or waiting is LOST then.
    """
    if live is None:
        return _from_accounting(_last_run(rows, rows[-1].user, rows[-1].name)) if rows else None
    now = live.attempts[-1]
    past = _last_run([r for r in rows if _before(r, live)], live.user)
    if len(past) > now.ordinal and past[-1].submit == live.submit:
        past = past[:-1]  # the row of the present attempt itself
    past = past[len(past) - min(len(past), now.ordinal) :]
    first = now.ordinal - len(past)
    attempts = [_past_attempt(row, first + n) for n, row in enumerate(past)]
    submits = [live.submit, *(row.submit for row in past)]
    return replace(live, attempts=(*attempts, now), first_submit=min(submits))


def _before(row: Row, live: Job) -> bool:
    """A requeue resets submit, so an earlier attempt has an earlier one, or ended within the same second."""
    return row.submit < live.submit or (row.submit == live.submit and row.state in RERUN and row.state != live.state)


def _last_run(rows: Sequence[Row], user: str, name: str | None = None) -> list[Row]:
    """The newest rows that belong together. Job ids are reused after a reset: an attempt that ended for good, or that
    another user or name had, is another job. A run's owner may rename it, so the queue's name is not asked for."""
    run: list[Row] = []
    for row in reversed(rows):
        ended_for_good = row.state in ENDED and row.state not in RERUN
        same = row.user == user and (name is None or row.name == name)
        if not same or (ended_for_good and (run or name is None)):
            break
        run.insert(0, row)
    return run


def _from_accounting(run: Sequence[Row]) -> Job:
    last = run[-1]
    attempts = [_past_attempt(row, n) for n, row in enumerate(run)]
    if last.state not in ENDED:
        attempts[-1] = replace(attempts[-1], state="LOST")
    return Job(
        id=last.job,
        name=last.name,
        user=last.user,
        state=attempts[-1].state,
        account=last.account,
        partition=last.partition,
        qos=last.qos,
        comment=last.comment,
        why="no longer in the queue",
        node_count=last.node_count,
        batch=any(row.batch for row in run),
        submit=last.submit,
        first_submit=min(row.submit for row in run),
        queued=False,
        attempts=tuple(attempts),
    )


def _past_attempt(row: Row, ordinal: int) -> Attempt:
    start = row.start if row.nodes else None
    return Attempt(row.job, ordinal, row.state, row.nodes, start, row.end, row.exit_code)
