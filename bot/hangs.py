"""Runs that stand still and runs that have become slow. Pure.

Standing still is judged against the run itself: only what has moved in this attempt can stop, and a pause that the run
got out of by itself before (an evaluation, a rollout) is no hang the next time. Slowness is told and never acted upon.
"""

from __future__ import annotations

from collections.abc import Collection

from bot import events as ev
from bot.growth import LOG, with_logs
from bot.incidents import annotate, open_incident, open_new
from bot.model import Attempt, Incident, Kind, Observation, Pace, Plan, Progress, Reading, Recovery, Session
from bot.outcomes import chain_class
from bot.paces import paced
from bot.policy import Policy, ProgressNumbers
from bot.state import Draft, State

HUNG: Kind = "session_hung"
SLOW: Kind = "session_slow"
STALLED = "storage stall"
LARGE = 4  # nodes; a run of fewer may be anything


def see_progress(draft: Draft, seen: Observation, policy: Policy) -> None:
    """One look at every run under care; what is not known of a run changes nothing."""
    told = with_logs(seen, policy)
    for session in draft.state.live_sessions():
        attempt = session.latest
        progress = told.get(attempt.id) if attempt else None
        if attempt and attempt.state == "RUNNING" and progress and progress.measured:
            excuse = _excuse(draft, seen, session, progress, policy)
            _remember(draft, session, progress, excuse, policy.numbers.progress)
            fresh = draft.state.get(Session, session.key)
            _judge_hang(draft, fresh, progress, excuse, policy)
            _judge_pace(draft, fresh, progress, excuse, policy)
    for incident in draft.state.open_incidents():
        if incident.kind in (HUNG, SLOW):
            _close(draft, incident, policy)


# -- what explains that nothing moves ---------------------------------------------------------------------------------


def _excuse(draft: Draft, seen: Observation, session: Session, progress: Progress, policy: Policy) -> str:
    """Why the run may stand still now; empty = nothing explains it."""
    mine = [s for v in seen.storage if v.known for s in v.sessions if s.session == session.key]
    if _stall_of(draft, session) or any(s.stalled for s in mine):
        return STALLED
    if progress.phase:
        return progress.phase
    told = {s.phase for s in mine} & {"save", "load"}
    return min(told) if told else "save" if _saving(seen, session, policy) else ""


def _stall_of(draft: Draft, session: Session) -> Incident | None:
    """The storage stall that holds the run up. A save that is late by the trainer's word alone (its mount is the run)
    says nothing of the storage: a run that hangs saves late, too."""
    for i in draft.state.open_incidents():
        if i.stall and session.key in i.hurt and i.stall.ended is None and i.stall.export != session.name:
            return i
    return None


def _saving(seen: Observation, session: Session, policy: Policy) -> bool:
    """The trainer says that a save has begun and not that it is complete; one that never ends is a stall."""
    return any(
        c.started is not None
        and (c.completed is None or c.started > c.completed)
        and 0 <= seen.at - c.started < policy.storage.save_limit
        for c in seen.checkpoints
        if c.job in session.jobs
    )


def _remember(draft: Draft, session: Session, progress: Progress, excuse: str, numbers: ProgressNumbers) -> None:
    pace = paced(session, progress, excuse, draft.at, numbers)
    if pace != session.pace:
        draft.emit(ev.PaceChanged(draft.at, session.key, pace))


# -- hung --------------------------------------------------------------------------------------------------------------


def _judge_hang(draft: Draft, session: Session, progress: Progress, excuse: str, policy: Policy) -> None:
    incident = open_incident(draft.state, HUNG, session.name)
    since = _hung_since(session, progress, excuse, draft.at, policy)
    if since is not None:
        _stands(draft, session, progress, since, incident, policy)
    elif incident and excuse == STALLED:
        _explained(draft, session, incident)
    elif incident and incident.quiet_since is None and _went_on(progress, excuse, incident):
        draft.emit(ev.IncidentQuieted(draft.at, incident.id, incident.episode, draft.at))
        _void(draft, incident, f"{session.name} moves again")


def _went_on(progress: Progress, excuse: str, incident: Incident) -> bool:
    """It was seen to move since; that nobody knows any more is no movement."""
    moved = progress.moved_at is not None and progress.moved_at > incident.opened
    return excuse in ("save", "load") or (moved and progress.idle_since is None)


def _explained(draft: Draft, session: Session, incident: Incident) -> None:
    """The storage was judged later than the run: one cause is told once."""
    stall = _stall_of(draft, session)
    if stall:
        why = f"explained by the storage stall of incident {stall.id}"
        _void(draft, incident, why)
        _end_recoveries(draft, incident, why)
        draft.emit(ev.IncidentClosed(draft.at, incident.id, incident.episode, why))


def _hung_since(session: Session, progress: Progress, excuse: str, at: int, policy: Policy) -> int | None:
    """Since when it hangs; None = it does not, or nobody can say so."""
    pace, numbers = session.pace, policy.numbers.progress
    if excuse or pace is None or progress.idle_since is None:
        return None
    if not set(progress.by) & set(pace.moved):
        return _never_began(session, progress, at, policy)
    by = [signal for signal in progress.by if signal in pace.moved]
    longest = max(pace.pause, progress.pause if by == [LOG] else 0)
    patience = max(_rule(by, numbers), int(numbers.pauses * longest))
    since = pace.idle_since
    return since if since is not None and at - since >= patience else None


def _rule(by: Collection[str], numbers: ProgressNumbers) -> int:
    """Less time where a second thing says the same, or the trainer itself."""
    sure = {"tensor_busiest", "fabric_bytes"} <= set(by) or "train_step" in by or (LOG in by and len(by) > 1)
    return numbers.hung_after if sure else numbers.hung_after_alone


def _never_began(session: Session, progress: Progress, at: int, policy: Policy) -> int | None:
    """Twice the time that a load takes, and nothing has moved: a rendezvous that hangs. Fabric alone proves nothing,
    because nobody knows yet whether this run uses it; nor do tensor cores, which a simulation does not use, nor do
    people who took a node or two to think. So a run of few nodes is never called so."""
    began = at - progress.age
    saved = session.checkpoint.completed if session.checkpoint else None
    if saved is not None and saved > began:
        return None
    worked = session.pace is not None and bool(session.pace.moved)
    late = progress.age >= 2 * policy.numbers.recovery.load_time
    large = session.latest is not None and len(session.latest.nodes) >= LARGE
    still = {"tensor_busiest", "fabric_bytes"} <= set(progress.by)
    return began if large and late and still and not worked else None


def _stands(
    draft: Draft, session: Session, progress: Progress, since: int, incident: Incident | None, policy: Policy
) -> None:
    fault = _fault(draft.state, session)
    reasons = tuple(
        Reading(session.name, signal, "bad", since=since if first == 0 else None, text=text)
        for first, (signal, text) in enumerate(progress.signs)
    )
    if incident is None and fault is None:
        note = _suspects(draft.state, session)
        hung = Incident(0, 0, "session_hung", session.name, draft.at, reasons=reasons, note=note, hurt=(session.key,))
        open_new(draft, policy, hung)
    elif incident is None and fault is not None:
        _note(draft, fault, f"{session.name} stands still")
    elif incident and incident.quiet_since is not None:
        draft.emit(ev.IncidentQuieted(draft.at, incident.id, incident.episode, None))
    elif incident and session.latest and (session.latest.start or 0) > incident.opened:
        _note(draft, incident, f"attempt {session.latest.id} hangs too")


def _suspects(state: State, session: Session) -> str:
    """Nodes of the run that are warned of already: where to look first."""
    nodes = set(session.latest.nodes) if session.latest else set()
    warned = [i for i in state.open_incidents() if i.kind in ("precursor", "gpu_fault") and i.subject in nodes]
    return f"look first at {', '.join(f'{i.subject} (incident {i.id})' for i in warned[:3])}" if warned else ""


def _fault(state: State, session: Session) -> Incident | None:
    """A fault that is told already and explains why the run stands still."""
    mine = (i for i in state.open_incidents() if i.kind == "gpu_fault" and session.key in i.hurt)
    nodes = set(session.latest.nodes) if session.latest else set()
    return next((i for i in mine if i.subject in nodes), None)


def _note(draft: Draft, i: Incident, words: str) -> None:
    if words not in i.note:
        annotate(draft, i, f"{words}\n{i.note}" if i.note else words)


def _void(draft: Draft, incident: Incident, why: str) -> None:
    """Nobody may requeue a run that moves by a button that was made when it did not."""
    for plan in draft.state.all(Plan):
        if plan.tag == incident.tag and plan.status == "proposed":
            draft.emit(ev.PlanDecided(draft.at, plan.id, "voided", "xidbot", why))


# -- slow --------------------------------------------------------------------------------------------------------------


def _judge_pace(draft: Draft, session: Session, progress: Progress, excuse: str, policy: Policy) -> None:
    pace, incident = session.pace, open_incident(draft.state, SLOW, session.name)
    if pace is None or excuse or progress.level is None:
        return
    if pace.slow_since is None:
        if incident and incident.quiet_since is None:
            draft.emit(ev.IncidentQuieted(draft.at, incident.id, incident.episode, draft.at))
    elif incident and incident.quiet_since is not None:
        draft.emit(ev.IncidentQuieted(draft.at, incident.id, incident.episode, None))
    elif incident and progress.straggler and progress.straggler not in incident.note:
        _note(draft, incident, _stands_out(draft.state, progress))
    elif incident is None and draft.at - pace.slow_since >= policy.numbers.progress.slow_after:
        _open_slow(draft, session, pace, progress, policy)


def _open_slow(draft: Draft, session: Session, pace: Pace, progress: Progress, policy: Policy) -> None:
    if open_incident(draft.state, HUNG, session.name) or _fault(draft.state, session):
        return  # told already, and by its cause
    note = _stands_out(draft.state, progress) if progress.straggler else ""
    signal = "train_step" if pace.level_of == "steps" else "tensor_activity"
    reason = Reading(session.name, signal, "bad", since=pace.slow_since, text=_pace_words(pace, progress.level or 0))
    slow = Incident(0, 0, "session_slow", session.name, draft.at, reasons=(reason,), note=note, hurt=(session.key,))
    open_new(draft, policy, slow)


def _pace_words(pace: Pace, level: float) -> str:
    usual = pace.usual or level
    if pace.level_of == "steps":
        return f"{level:.2g} steps a minute, usually {usual:.2g} ({level / usual:.0%})"
    return f"tensor activity {level:.2f}, usually {usual:.2f} ({level / usual:.0%})"


def _stands_out(state: State, progress: Progress) -> str:
    warned = open_incident(state, "precursor", progress.straggler)
    told = f" (incident {warned.id})" if warned else ""
    return f"{progress.straggler} stands out{told}: {progress.straggler_why}"


# -- closing -----------------------------------------------------------------------------------------------------------


def _close(draft: Draft, incident: Incident, policy: Policy) -> None:
    session = draft.state.find(Session, incident.hurt[0]) if incident.hurt else None
    if session is None:
        return
    if incident.kind == SLOW:
        why = _no_longer_slow(draft, incident, session, policy)
    else:
        why = _no_longer_hung(draft, incident, session, policy)
    if why:
        _end_recoveries(draft, incident, why)
        draft.emit(ev.IncidentClosed(draft.at, incident.id, incident.episode, why))


def _no_longer_slow(draft: Draft, incident: Incident, session: Session, policy: Policy) -> str:
    if session.ended_at is not None or _another(session.latest, incident):
        return "the attempt has ended"
    quiet = incident.quiet_since
    if quiet is None or draft.at - quiet < policy.numbers.incidents.clean_after:
        return ""
    pace = session.pace
    accepted = pace is not None and pace.learnt is not None and pace.learnt >= incident.opened and pace.learnt == quiet
    return "nothing has changed it: taken as the usual level now" if accepted else "its usual pace again"


def _no_longer_hung(draft: Draft, incident: Incident, session: Session, policy: Policy) -> str:
    """It moves again in the very attempt. A run that was brought back is followed by its recovery instead."""
    if session.ended_at is None and not _another(session.latest, incident):
        quiet = incident.quiet_since
        moving = quiet is not None and draft.at - quiet >= policy.numbers.progress.resumed_after
        return "it went on by itself" if moving else ""
    followed = any(r.tag == incident.tag for r in draft.state.all(Recovery))
    return "" if followed else "the attempt has ended"


def _another(latest: Attempt | None, incident: Incident) -> bool:
    return latest is None or not latest.alive or (latest.start or 0) > incident.opened


def _end_recoveries(draft: Draft, incident: Incident, why: str) -> None:
    for recovery in [r for r in draft.state.open_recoveries() if r.tag == incident.tag]:
        draft.emit(ev.RecoveryEnded(draft.at, recovery.id, "cancelled", why, chain_class(recovery.chain)))
