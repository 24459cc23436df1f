"""Requeueing a job."""

from __future__ import annotations

import time
from collections.abc import Mapping

from bot.errors import SourceError
from bot.gate.answer import ALREADY, FAILED, REFUSED, UNCLEAR, End
from bot.gate.call import Call, allows, done, must_match, not_done, paused
from bot.gate.slurm import Ran
from bot.model import Job
from bot.slurm_records import AGAIN, OPEN_JOB_ID, is_held

NEXT_SECOND = 1.1  # a node that started a job again in the second of its requeue would kill it: "credential revoked"
SETTLE = 10.0  # seconds to wait for a requeued job to stop; the caller asks again after that
CLOCK_SLACK = 2  # seconds that the controller's clock may be ahead of ours


def requeue(call: Call) -> tuple[int, dict[str, object]]:
    """`scontrol requeue`, then StartTime=now: Slurm would else wait for the life of a credential, two minutes."""
    must_match(OPEN_JOB_ID, call.target, "job")
    if call.restart is None:
        raise End(REFUSED, "--restart must say which run of the job is meant")
    job = _allowed_job(call)
    ordinal = job.attempts[-1].ordinal
    if ordinal < call.restart:
        raise End(UNCLEAR, f"job {job.id} is at restart {ordinal}: Slurm lost state, or the id was reused")
    if ordinal > call.restart and not call.began("requeue"):
        raise End(ALREADY, "already requeued by somebody else", ours=False, restart=ordinal, state=job.state)
    if ordinal == call.restart:
        _requeue_now(job, call)
    return _start(call)


def _allowed_job(call: Call) -> Job:
    jobs = call.slurm.jobs()
    job = jobs.get(call.target)
    if job is None:
        parts = [i for i in jobs if i.startswith((f"{call.target}_", f"{call.target}+"))]
        if parts:
            raise End(REFUSED, f"{call.target} stands for {len(parts)} records ({parts[0]}, …): name one task")
        raise End(REFUSED, f"job {call.target} is not in the queue")
    for partition in job.partition.split(","):
        if not allows(call.settings.partitions, partition):
            raise End(REFUSED, f"partition {partition} is not in the gate's list")
    if not allows(call.settings.accounts, job.account):
        raise End(REFUSED, f"account {job.account or '(none)'} is not in the gate's list")
    return job


def _requeue_now(job: Job, call: Call) -> None:
    if job.state == "COMPLETING":
        raise End(FAILED, f"job {job.id} is still stopping; ask again", state=job.state)
    if job.state not in AGAIN:
        raise End(REFUSED, f"job {job.id} is {job.state}: there is no run to repeat", state=job.state)
    if not job.batch or not job.requeue:
        why = "was submitted with --no-requeue" if job.batch else "is no batch job"
        raise End(REFUSED, f"job {job.id} {why}")
    call.must_not_be_paused()
    call.must_have_slot("requeue")
    call.say("requeue", restart=call.restart, state=job.state)
    ran = call.slurm.change("requeue", job.id)
    call.say("requeued", code=ran.code, said=ran.said)
    after = _job_again(call, ran)
    if after.attempts[-1].ordinal <= job.attempts[-1].ordinal:
        raise not_done(ran, f"job {job.id} is {after.state}", state=after.state)


def _start(call: Call) -> tuple[int, dict[str, object]]:
    """A start that is set while the job still stops is lost, so that is waited for."""
    job = _stopped(call)
    facts: dict[str, object] = {"restart": job.attempts[-1].ordinal, "state": job.state}
    if call.restart is not None and job.attempts[-1].ordinal > call.restart + 1:
        return done(f"job {job.id} was requeued, and again since", **facts)
    if is_held(job):
        raise End(UNCLEAR, f"job {job.id} was requeued, but it is held ({job.why})", **facts)
    if not _waits(job):
        return done(f"job {job.id} was requeued and is {job.state}", **facts)
    _must_not_be_paused_now(job, call, facts)
    time.sleep(NEXT_SECOND)
    call.say("start", restart=job.attempts[-1].ordinal)
    ran = call.slurm.change("update", f"jobid={job.id}", "StartTime=now")
    call.say("started", code=ran.code, said=ran.said)
    after = _job_again(call, ran)
    if _waits(after):
        raise End(FAILED, f"job {job.id} was requeued, but starts only later: {ran.said}; ask again", **facts)
    return done(f"job {job.id} was requeued and is {after.state}", **{**facts, "state": after.state})


def _must_not_be_paused_now(job: Job, call: Call, facts: Mapping[str, object]) -> None:
    why = paused(call.settings)
    if why is not None:
        raise End(REFUSED, f"job {job.id} was requeued and starts by itself later; paused since: {why}", **facts)


def _stopped(call: Call) -> Job:
    until = time.monotonic() + SETTLE
    while True:
        job = _job_again(call, None)
        if job.state != "COMPLETING":
            return job
        if time.monotonic() > until:
            raise End(
                FAILED, f"job {job.id} was requeued and is still stopping; ask again to start it", state=job.state
            )
        time.sleep(0.25)


def _job_again(call: Call, ran: Ran | None) -> Job:
    said = f"Slurm said {ran.said!r} and" if ran else "Slurm"
    try:
        job = call.slurm.jobs().get(call.target)
    except (End, SourceError) as error:
        raise End(UNCLEAR, f"{said} cannot be read since: {error}") from error
    if job is None:
        raise End(UNCLEAR, f"{said} shows no job {call.target} since")
    return job


def _waits(job: Job) -> bool:
    return job.state == "PENDING" and job.begin is not None and job.begin > time.time() + CLOCK_SLACK
