"""Training runs: which jobs are ours to care for, which attempts they had, how each attempt began and ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase

from bot import events as ev
from bot.model import (
    FAILED,
    RERUN,
    Action,
    Attempt,
    Checkpoint,
    Cluster,
    Incident,
    Job,
    Observation,
    Origin,
    Session,
    SessionState,
)
from bot.policy import Match, Policy, SessionRule
from bot.state import Draft, State

NOT_A_FAILURE = {
    "COMPLETED": "completed",
    "CANCELLED": "cancelled",
    "TIMEOUT": "reached its wall limit",
    "DEADLINE": "reached its deadline",
    "REVOKED": "revoked",
}


def see_sessions(draft: Draft, seen: Observation, policy: Policy) -> None:
    """Sessions, attempts, origins and ends from the scheduler; nothing where it could not be read."""
    if seen.cluster is None:
        return
    for job in seen.cluster.jobs.values():
        session = _session_for(draft.state, job, seen.cluster, policy)
        if session:
            _see_job(draft, session, job, seen.cluster)
    for session in draft.state.live_sessions():
        _see_lost(draft, session, seen.cluster)
        _attribute(draft, draft.state.get(Session, session.key))
        _see_end(draft, draft.state.get(Session, session.key), seen, policy)


def see_checkpoints(draft: Draft, seen: Observation, policy: Policy) -> None:
    """A save newer than the one known. An older one (a rerun that began again) is not newer."""
    for checkpoint in seen.checkpoints:
        session = draft.state.session_of(checkpoint.job)
        if session and session.ended_at is None and _newer(checkpoint, session.checkpoint):
            draft.emit(ev.CheckpointSeen(draft.at, session.key, checkpoint))


def _newer(new: Checkpoint, known: Checkpoint | None) -> bool:
    if known is None:
        return new.step is not None or new.completed is not None
    if new.completed is not None and known.completed is not None:
        return new.completed > known.completed
    return new.step is not None and new.step != known.step


# -- which session a job belongs to ---------------------------------------------------------------


def rule_for(job: Job, policy: Policy) -> SessionRule | None:
    """The first rule that matches: nothing else is ever requeued."""
    return next((rule for rule in policy.sessions if matches(rule.match, job)), None)


def matches(match: Match, job: Job) -> bool:
    """Every given glob matches; a rule without any matches nothing (an empty list is nobody)."""
    given = {name: glob for name, glob in match if glob is not None}
    return bool(given) and all(fnmatchcase(str(getattr(job, name)), glob) for name, glob in given.items())


def _session_for(state: State, job: Job, cluster: Cluster, policy: Policy) -> Session | None:
    known = state.session_of(job.id)
    rule = rule_for(job, policy)
    if known and not _other_run(known, job):
        return _described(known, job, rule) if _is_newest(job, known, cluster) else known
    if rule is None or job.latest is None:
        return None
    before = _predecessor(state, job)
    if before:
        joined = replace(before, jobs=(*before.jobs, job.id))
        return _described(joined, job, rule) if _is_newest(job, joined, cluster) else joined
    return _described(_new_session(job, cluster), job, rule)


def _is_newest(job: Job, session: Session, cluster: Cluster) -> bool:
    """Of the run's jobs the last that has begun, which is what the run is now: they may differ in size."""
    mine = [cluster.jobs[name] for name in session.jobs if name in cluster.jobs]
    begun = [one for one in mine if one.state != "PENDING"] or mine
    return (
        max(begun, key=lambda one: (one.latest.start if one.latest and one.latest.start else one.submit, one.id)) is job
    )


def _other_run(known: Session, job: Job) -> bool:
    """The id was reused: another name or user, or submitted after the known run had ended."""
    if (job.name, job.user) != (known.job_name, known.user):
        return True
    return known.ended_at is not None and job.first_submit > known.first_submit and job.submit > known.ended_at


def _predecessor(state: State, job: Job) -> Session | None:
    """The run that this job continues: same name and user, and its dependency names one of the run's jobs."""
    mine = [s for s in state.live_sessions() if (s.job_name, s.user) == (job.name, job.user)]
    named = _job_ids(job.dependency)
    return next((s for s in mine if named & set(s.jobs) or "singleton" in job.dependency), None)


def _job_ids(dependency: str) -> set[str]:
    """Job ids in `afterany:123(unfulfilled),afterok:124:125+5`."""
    ids: set[str] = set()
    for part in dependency.replace("?", ",").split(","):
        for word in part.split(":")[1:]:
            ids.add(word.split("(")[0].split("+")[0].strip())
    return ids


def _new_session(job: Job, cluster: Cluster) -> Session:
    return Session(
        key=f"{cluster.name}/{job.id}@{job.first_submit}",
        name=f"session-{job.id}",
        cluster=cluster.name,
        jobs=(job.id,),
        job_name=job.name,
        user=job.user,
        controller="xidbot",
        first_submit=job.first_submit,
        seen=cluster.at,
    )


def _described(session: Session, job: Job, rule: SessionRule | None) -> Session:
    controller = rule.controller if rule else session.controller
    gpus = job.node_count * job.gpus_per_node or session.gpus
    return replace(session, controller=controller, unrecoverable=_unrecoverable(job), gpus=gpus)


def _unrecoverable(job: Job) -> str:
    """Why no playbook can requeue it: said at the session's start, not at 3 a.m."""
    if not job.batch:
        return "not a batch job"
    if not job.requeue:
        return "submitted with --no-requeue"
    return ""


def _see_job(draft: Draft, session: Session, job: Job, cluster: Cluster) -> None:
    known = draft.state.find(Session, session.key)
    if known is None and job.latest and not job.latest.alive and job.latest.state != "PENDING":
        return  # it had ended before we first looked: history, not a run under our care
    if known is None or _description(known) != _description(session):
        draft.emit(ev.SessionSeen(draft.at, session))
    known = draft.state.get(Session, session.key)
    for attempt in job.attempts:
        before = known.attempt(attempt.id)
        if before is None or _facts(before) != _facts(attempt):
            draft.emit(ev.AttemptSeen(draft.at, session.key, attempt))


def _description(s: Session) -> tuple[object, ...]:
    return (s.jobs, s.controller, s.unrecoverable, s.gpus)


def _facts(a: Attempt) -> tuple[object, ...]:
    return (a.state, a.nodes, a.start, a.end, a.exit_code)


# -- how attempts begin and end -------------------------------------------------------------------


def _see_lost(draft: Draft, session: Session, cluster: Cluster) -> None:
    """Gone from queue and accounting alike, both of which could be read: we do not know how it ended."""
    latest = session.latest
    if latest is None or cluster.unknown or any(job in cluster.jobs for job in session.jobs):
        return
    if latest.alive or latest.state == "PENDING":
        draft.emit(ev.AttemptSeen(draft.at, session.key, replace(latest, state="LOST", end=draft.at)))


def _attribute(draft: Draft, session: Session) -> None:
    for before, attempt in zip(session.attempts, session.attempts[1:], strict=False):
        if attempt.origin is None and attempt.started:
            origin = origin_of(before, attempt, session, draft.state.all(Action))
            if origin:
                draft.emit(ev.AttemptAttributed(draft.at, session.key, attempt.id, origin))


def origin_of(before: Attempt, attempt: Attempt, session: Session, actions: Iterable[Action]) -> Origin | None:
    """How an attempt began, from what can be seen (DETAILS). None = cannot be told yet."""
    mine = [a for a in actions if a.step == "requeue" and a.session == session.key and a.attempt == before.id]
    if any(a.end == "done" for a in mine):
        return next(a.origin for a in mine if a.end == "done")
    if any(a.started is not None and a.end is None for a in mine):
        return None  # ours is under way: its report will tell
    if before.state in ("NODE_FAIL", "PREEMPTED", "BOOT_FAIL"):
        return "scheduler"
    if before.state == "REQUEUED" or (before.job != attempt.job and before.state not in RERUN):
        return "external"
    if before.alive:
        return None  # accounting lags: the queue shows the rerun before the end of the run before is told
    return "external" if before.state in FAILED | {"CANCELLED", "TIMEOUT"} else "unattributed"


def _see_end(draft: Draft, session: Session, seen: Observation, policy: Policy) -> None:
    latest = session.latest
    if latest is None or seen.cluster is None:
        return
    how = ""
    if latest.state in NOT_A_FAILURE:
        how = NOT_A_FAILURE[latest.state]
    elif latest.state == "LOST":
        how = "gone from the scheduler; nothing tells how it ended"
    elif latest.state == "PREEMPTED" and _silent_for(latest, seen.now) > policy.numbers.recovery.chain_window:
        how = "preempted"
    elif is_dead(session, seen.now, policy) and _silent_for(latest, seen.now) > policy.numbers.recovery.chain_window:
        how = "failed, and nobody ran it again"
    if how and not _continues(session, seen.cluster):
        draft.emit(ev.SessionEnded(draft.at, session.key, how))


def _continues(session: Session, cluster: Cluster) -> bool:
    """A queued or running successor of the same run."""
    jobs = [cluster.jobs[j] for j in session.jobs if j in cluster.jobs]
    return any(j.latest and (j.latest.alive or j.latest.state == "PENDING") for j in jobs)


def _silent_for(attempt: Attempt, now: int) -> int:
    return now - (attempt.end or now)


# -- states ---------------------------------------------------------------------------------------


def is_dead(session: Session, now: int, policy: Policy) -> bool:
    """Its newest attempt failed, and the time in which a scheduler or an owner requeues it has passed."""
    latest = session.latest
    if latest is None or latest.state not in FAILED | {"REQUEUED"}:
        return False
    settled = _silent_for(latest, now) >= policy.numbers.recovery.settle
    return settled if latest.state in RERUN else True


def session_state(session: Session, state: State, now: int, policy: Policy) -> SessionState:
    latest = session.latest
    if session.ended_at is not None:
        return "ended"
    if latest is None or latest.state == "PENDING":
        return "starting"
    if not latest.alive:
        return "dead" if is_dead(session, now, policy) else "starting"
    return "degraded" if faulty_nodes(state) & set(latest.nodes) or _held_up(session, state) else "running"


def _held_up(session: Session, state: State) -> bool:
    """It hangs, or is slow."""
    mine = (i for i in state.open_incidents() if i.kind in ("session_hung", "session_slow") and i.quiet_since is None)
    return any(session.key in i.hurt for i in mine)


def faulty_nodes(state: State) -> set[str]:
    """Nodes that an open incident condemns."""
    return {i.subject for i in state.all(Incident) if i.closed is None and i.kind == "gpu_fault"}
