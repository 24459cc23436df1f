"""Runs that failed and no node is named; and what their own logs tell."""

from __future__ import annotations

from bot.incidents.episodes import NAMED_BEFORE, all_told, annotate, open_incident, open_new, recoveries_of
from bot.model import FAILED, Attempt, Incident, Observation, Recovery, Session
from bot.naming import some
from bot.policy import Policy
from bot.sessions import is_dead
from bot.state import Draft, State

TOLD_BY_LOGS = frozenset({"gpu_fault", "session_failed", "session_hung"})


def see_failed_runs(draft: Draft, seen: Observation, policy: Policy) -> None:
    """A run that failed and no node is named: observe, say so, watch who brings it back."""
    if seen.cluster is None:
        return
    for session in draft.state.live_sessions():
        failed = _failed_attempt(session, seen.now, policy)
        if failed and _is_unexplained(draft, session, failed):
            note = _ended(failed) + _struck(draft.state, failed, seen)
            incident = Incident(0, 0, "session_failed", session.name, draft.at, note=note, hurt=(session.key,))
            open_new(draft, policy, incident)


def _is_unexplained(draft: Draft, session: Session, failed: Attempt) -> bool:
    told = open_incident(draft.state, "session_failed", session.name) or _has_recovery(draft.state, session)
    return not told and not _named(draft.state, session, failed.end or draft.at)


def _ended(attempt: Attempt) -> str:
    code = f" (exit code {attempt.exit_code})" if attempt.exit_code else ""
    return f"attempt {attempt.id} ended {attempt.state}{code}"


def _struck(state: State, attempt: Attempt, seen: Observation) -> str:
    """Its nodes with hard evidence, in a storm: nothing holds them, and the run would come back to them."""
    storm = next((i for i in state.open_incidents() if i.kind == "storm" and any(r.hard for r in i.reasons)), None)
    hard = {name for name, score in (seen.scores or {}).items() if score.hard}
    nodes = sorted(hard.intersection(attempt.nodes)) if storm else []
    if not storm or not nodes:
        return ""
    return f". {some(nodes)}: hard evidence in incident {storm.id}, a storm. Exclude them before you retry"


def see_notes(draft: Draft, seen: Observation, policy: Policy) -> None:
    """What a job's own log tells of its failure stands with the incidents that the run is hurt by."""
    for note in seen.notes:
        session = draft.state.session_of(note.job)
        for i in draft.state.open_incidents() if session and note.text else ():
            if session and session.key in i.hurt and i.kind in TOLD_BY_LOGS and note.noted not in i.note:
                annotate(draft, i, f"{i.note}\n{note.noted}" if i.note else note.noted)


def _failed_attempt(session: Session, now: int, policy: Policy) -> Attempt | None:
    """The newest failure since we know the run, also when the scheduler has already queued or begun the next one."""
    failed = next((a for a in reversed(session.attempts[-2:]) if a.state in FAILED), None)
    if failed is None or (failed.end or now) < session.seen:
        return None
    if failed == session.latest and not is_dead(session, now, policy):
        return None  # its scheduler may requeue it any moment
    return failed


def _has_recovery(state: State, session: Session) -> bool:
    """The failure is already being told: an open recovery, or one that has ended with this very attempt. The attempt
    that recovered a run may fail itself, much later: that is a new story."""
    mine = [r for r in state.all(Recovery) if r.session == session.key]
    failed = [a.id for a in session.attempts if a.state in FAILED]
    told = {r.failed_attempt for r in mine} | {link.attempt for r in mine for link in r.chain if link.ended is not None}
    return any(r.ended is None for r in mine) or (bool(failed) and failed[-1] in told)


def _named(state: State, session: Session, end: int) -> bool:
    faults = [i for i in state.all(Incident) if i.kind == "gpu_fault" and i.subject in session.nodes]
    return any(i.closed is None or i.closed > end - NAMED_BEFORE for i in faults if i.opened <= end + 300)


def close_failed(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    recoveries = recoveries_of(draft.state, incident)
    if any(r.ended is None for r in recoveries) or not all_told(draft.state, incident):
        return ""
    return "; ".join(sorted({r.why or r.outcome for r in recoveries})) or "the run has ended"
