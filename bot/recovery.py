"""Recoveries: from the moment progress stopped to regained and survived, given up, cancelled or left open."""

from __future__ import annotations

from dataclasses import replace

from bot import events as ev
from bot.model import ENDED, FAILED, Attempt, Checkpoint, Incident, Link, Observation, Recovery, Session
from bot.outcomes import chain_class
from bot.policy import Policy, RecoveryNumbers
from bot.state import Draft, State

RECOVERED_KINDS = ("gpu_fault", "session_failed", "session_hung")


def follow(draft: Draft, seen: Observation, policy: Policy) -> None:
    for incident in draft.state.open_incidents():
        if incident.kind in RECOVERED_KINDS:
            _start(draft, incident)
    for recovery in draft.state.open_recoveries():
        _follow_one(draft, recovery.id, policy)


# -- start ----------------------------------------------------------------------------------------


def _start(draft: Draft, incident: Incident) -> None:
    for key in incident.hurt:
        session = draft.state.get(Session, key)
        covered = any(r.session == key and (r.ended is None or r.tag == incident.tag) for r in _all(draft.state))
        failed = _failed_attempt(session, incident)
        if covered or session.ended_at is not None or failed is None:
            continue
        recovery = Recovery(
            id=f"{incident.tag}/{key}",
            incident=incident.id,
            episode=incident.episode,
            session=key,
            stopped=_stopped(incident, failed, draft.at),
            failed_attempt=failed.id,
            last_step=session.best_step,
        )
        draft.emit(ev.RecoveryStarted(draft.at, recovery))


def _all(state: State) -> list[Recovery]:
    return state.all(Recovery)


def _failed_attempt(session: Session, incident: Incident) -> Attempt | None:
    """The attempt that the incident hurt: of a failed run the newest that failed (the next may have begun already),
    else the newest that really ran and had begun before the incident opened."""
    failed = [a for a in session.attempts if a.state in FAILED]
    if incident.kind == "session_failed" and failed:
        return failed[-1]
    ran = [a for a in session.attempts if a.started]
    before = [a for a in ran if a.start is not None and a.start <= incident.opened]
    return next(reversed(before or ran), None)


def _stopped(incident: Incident, failed: Attempt, at: int) -> int:
    """Earliest of hard evidence, the onset of a hang and attempt end."""
    telling = [r for r in incident.reasons if r.hard or incident.kind == "session_hung"]
    evidence = [r.since for r in telling if r.since is not None]
    ends = [failed.end] if failed.end is not None and failed.state in ENDED else []
    return min([*evidence, *ends, at])


# -- follow ---------------------------------------------------------------------------------------


def _follow_one(draft: Draft, recovery_id: str, policy: Policy) -> None:
    recovery = draft.state.get(Recovery, recovery_id)
    session = draft.state.get(Session, recovery.session)
    _measure(draft, recovery, session)
    for attempt in _attempts_after(recovery, session):
        recovery = draft.state.get(Recovery, recovery_id)
        known = next((link for link in recovery.chain if link.attempt == attempt.id), None)
        link = _judged(known or Link(attempt.id, attempt.start or draft.at), attempt, session, recovery, draft, policy)
        if link != known:
            draft.emit(ev.LinkChanged(draft.at, recovery_id, link))
    _end(draft, draft.state.get(Recovery, recovery_id), session, policy)


def _attempts_after(recovery: Recovery, session: Session) -> list[Attempt]:
    ids = [a.id for a in session.attempts]
    first = ids.index(recovery.failed_attempt) + 1 if recovery.failed_attempt in ids else len(ids)
    return [a for a in session.attempts[first:] if a.started]


def _measure(draft: Draft, recovery: Recovery, session: Session) -> None:
    """The old attempt's last saves may be seen after it ended: a rerun must pass those too."""
    first = _attempts_after(recovery, session)[:1]
    best = session.best_step
    if best is None or best == recovery.last_step:
        return
    old = not first or _began_before(session.checkpoint, first[0].start or draft.at)
    if old and (recovery.last_step is None or best > recovery.last_step):
        draft.emit(ev.RecoveryMeasured(draft.at, recovery.id, best))


def _began_before(checkpoint: Checkpoint | None, start: int) -> bool:
    if checkpoint is None:
        return True
    began = checkpoint.started if checkpoint.started is not None else checkpoint.completed
    return began is not None and began < start


def _judged(link: Link, attempt: Attempt, session: Session, recovery: Recovery, draft: Draft, policy: Policy) -> Link:
    """The link with every fact that is known by now; a fact once known stays."""
    link = replace(link, origin=attempt.origin, started=attempt.start or link.started)
    if link.ended is None and (attempt.state in ENDED or attempt.state == "LOST"):  # a requeue rewrites FAILED later
        link = replace(link, ended=attempt.end or draft.at, end_state=attempt.state)
    if link.regained is None:
        link = _regained(link, session, recovery)
    if link.regained is None and link.ended is None and draft.at - link.started > patience(session, policy):
        link = replace(link, failed_why="no new checkpoint in the time it may take")
    if link.regained is not None and link.survived is None and link.ended is None:
        survives_at = link.regained + survival(session, policy)
        link = replace(link, survived=survives_at) if draft.at >= survives_at else link
    return link


def _regained(link: Link, session: Session, recovery: Recovery) -> Link:
    """A checkpoint that began after the attempt and whose step is beyond the last one before the failure; without
    steps, one completed after the attempt's start, marked unverified."""
    save = session.checkpoint
    if save is None or save.completed is None or _began_before(save, link.started):
        return link
    if link.ended is not None and save.completed > link.ended:
        return link
    if save.step is None or recovery.last_step is None:
        return replace(link, regained=save.completed, verified=False, step=save.step)
    if save.step <= recovery.last_step:
        return link
    return replace(link, regained=save.completed, verified=save.started is not None, step=save.step, failed_why="")


def patience(session: Session, policy: Policy) -> int:
    """s an attempt may take before it is judged: load time and one checkpoint interval."""
    numbers = policy.numbers.recovery
    return numbers.load_time + (session.interval or numbers.checkpoint_interval)


def survival(session: Session, policy: Policy) -> int:
    numbers = policy.numbers.recovery
    return max(numbers.survived_after, 2 * (session.interval or 0))


# -- end ------------------------------------------------------------------------------------------


def _end(draft: Draft, recovery: Recovery, session: Session, policy: Policy) -> None:
    verdict = _verdict(recovery, session, draft, policy)
    if verdict:
        outcome, why = verdict
        draft.emit(ev.RecoveryEnded(draft.at, recovery.id, outcome, why, chain_class(recovery.chain)))


def _verdict(recovery: Recovery, session: Session, draft: Draft, policy: Policy) -> tuple[str, str] | None:
    last = recovery.chain[-1] if recovery.chain else None
    if last and last.survived is not None and last.origin is not None:
        return "survived", "regained and survived"
    if session.ended_at is not None:
        return _ended_by_owner(last, session)
    if last is None and _went_on(recovery, session, draft, policy):
        return "cancelled", "the run never stopped: it saved again without a restart"
    if last and _is_unmeasured(last, session, draft.at, policy):
        return "censored", "it has run for long, and no checkpoint of it is known: nobody can tell how it fares"
    spent = budget_spent(recovery, draft.at, policy.numbers.recovery)
    if spent and last and last.ended is not None and last.regained is None:
        return "given_up", spent
    return None


def _is_unmeasured(last: Link, session: Session, at: int, policy: Policy) -> bool:
    """No save of the run was ever seen, and its attempt has lived as long as one that regains and survives."""
    known = session.checkpoint is not None or last.regained is not None
    lives = last.ended is None and last.origin is not None
    return not known and lives and at - last.started > patience(session, policy) + survival(session, policy)


def _ended_by_owner(last: Link | None, session: Session) -> tuple[str, str]:
    if last and last.regained is not None:
        return "censored", f"the run {session.ended} after it had regained"
    if session.ended.startswith("failed"):
        return "given_up", session.ended
    return "cancelled", f"the run ended: {session.ended}"


def _went_on(recovery: Recovery, session: Session, draft: Draft, policy: Policy) -> bool:
    """Two saves that began after the fault, by the very attempt that was thought hurt, and the cause is quiet."""
    incident = draft.state.get(Incident, recovery.tag)
    attempt, save = session.latest, session.checkpoint
    if attempt is None or attempt.id != recovery.failed_attempt or not attempt.alive or incident.quiet_since is None:
        return False
    if save is None or save.started is None or draft.at - incident.quiet_since < policy.numbers.incidents.clean_after:
        return False
    return save.started > recovery.stopped + (session.interval or 0)


def budget_spent(recovery: Recovery, at: int, numbers: RecoveryNumbers) -> str:
    """Why no further attempt may be made; empty = one may. Unknown progress consumes, a new checkpoint resets only
    the first ledger; the count of all attempts can never be reset."""
    fruitless = 0
    for link in recovery.chain:
        fruitless = 0 if link.regained is not None else fruitless + 1
    if fruitless >= numbers.attempts_without_checkpoint:
        return f"{fruitless} attempts without a new checkpoint"
    recent = [link for link in recovery.chain if at - link.started < numbers.chain_window]
    if len(recent) >= numbers.chain_attempts:
        return f"{len(recent)} attempts in {numbers.chain_window // 3600} h"
    return ""


def gap_before_next(recovery: Recovery, numbers: RecoveryNumbers) -> int:
    """s from the last end to the next start: none before the first retry, then the gap, doubling."""
    if not recovery.chain:
        return 0
    return int(min(numbers.gap * 2 ** (len(recovery.chain) - 1), numbers.gap_max))
