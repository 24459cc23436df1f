"""What each event changes. PROJECT[type(event)] is the only thing that does, live, on rebuild and in a replay."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from bot import events as ev
from bot.model import Action, Attempt, Checkpoint, Hold, Incident, Plan, Recovery, SaveHistory, Session
from bot.state.documents import Documents


def _started(docs: Documents, e: ev.Started) -> None:
    docs.put(replace(docs.meta, version=e.version, policy=e.policy, write_mode=e.write_mode))


def _session_seen(docs: Documents, e: ev.SessionSeen) -> None:
    known = docs.find(Session, e.session.key)
    if known:
        new = e.session
        docs.put(
            replace(known, jobs=new.jobs, unrecoverable=new.unrecoverable, controller=new.controller, gpus=new.gpus)
        )
    else:
        docs.put(e.session)


def _attempt_seen(docs: Documents, e: ev.AttemptSeen) -> None:
    session = docs.get(Session, e.session)
    known = session.attempt(e.attempt.id)
    seen = replace(e.attempt, origin=known.origin) if known else e.attempt
    docs.put(replace(session, attempts=_upsert(session.attempts, seen)))


def _upsert(attempts: tuple[Attempt, ...], new: Attempt) -> tuple[Attempt, ...]:
    if any(a.id == new.id for a in attempts):
        return tuple(new if a.id == new.id else a for a in attempts)
    return (*attempts, new)


def _attributed(docs: Documents, e: ev.AttemptAttributed) -> None:
    session = docs.get(Session, e.session)
    named = tuple(replace(a, origin=e.origin) if a.id == e.attempt else a for a in session.attempts)
    docs.put(replace(session, attempts=named))


def _session_ended(docs: Documents, e: ev.SessionEnded) -> None:
    docs.put(replace(docs.get(Session, e.session), ended=e.how, ended_at=e.at))


def _checkpoint(docs: Documents, e: ev.CheckpointSeen) -> None:
    session = docs.get(Session, e.session)
    steps = [s for s in (session.best_step, e.checkpoint.step) if s is not None]
    docs.put(
        replace(
            session,
            checkpoint=e.checkpoint,
            best_step=max(steps, default=None),
            interval=_interval(session.interval, session.checkpoint, e.checkpoint),
        )
    )


def _interval(known: int | None, before: Checkpoint | None, new: Checkpoint) -> int | None:
    """Seconds between completed saves: a running mean that forgets by halves, so one long gap does not stay."""
    if not before or before.completed is None or new.completed is None or new.completed <= before.completed:
        return known
    gap = new.completed - before.completed
    return gap if known is None else (known + gap) // 2


def _save(docs: Documents, e: ev.SaveSeen) -> None:
    known = docs.saves_of(e.session)
    others = [s for s in known.saves if s.number not in (e.save.number, *e.gone)]
    saves = sorted((*others, e.save), key=lambda s: (s.at, s.number))[-e.kept :]
    docs.put(SaveHistory(e.session, tuple(saves), max(known.made, e.save.number)))


def _pace(docs: Documents, e: ev.PaceChanged) -> None:
    docs.put(replace(docs.get(Session, e.session), pace=e.pace))


def _reading(docs: Documents, e: ev.ReadingChanged) -> None:
    docs.put(e.reading)


def _app_xid(docs: Documents, e: ev.AppXidSeen) -> None:
    docs.put(e.sighting)


def _source(docs: Documents, e: ev.SourceChanged) -> None:
    docs.put(e.source)


def _opened(docs: Documents, e: ev.IncidentOpened) -> None:
    docs.put(e.incident)
    if e.incident.id > docs.meta.incidents:
        docs.put(replace(docs.meta, incidents=e.incident.id))


def _incident(docs: Documents, e: Any, **facts: Any) -> None:
    docs.put(replace(docs.get(Incident, f"{e.incident}.{e.episode}"), **facts))


def _changed(docs: Documents, e: ev.IncidentChanged) -> None:
    _incident(docs, e, score=e.score, hard=e.hard, reasons=e.reasons, hurt=e.hurt, note=e.note)


def _stall(docs: Documents, e: ev.StallChanged) -> None:
    _incident(docs, e, stall=e.stall, hurt=e.hurt)


def _quieted(docs: Documents, e: ev.IncidentQuieted) -> None:
    _incident(docs, e, quiet_since=e.since)


def _faded(docs: Documents, e: ev.IncidentFaded) -> None:
    _incident(docs, e, faded_since=e.since)


def _acknowledged(docs: Documents, e: ev.IncidentAcknowledged) -> None:
    _incident(docs, e, acked_by=e.by)


def _closed(docs: Documents, e: ev.IncidentClosed) -> None:
    _incident(docs, e, closed=e.at, closed_why=e.why)


def _recovery_started(docs: Documents, e: ev.RecoveryStarted) -> None:
    docs.put(e.recovery)


def _link(docs: Documents, e: ev.LinkChanged) -> None:
    recovery = docs.get(Recovery, e.recovery)
    others = [x for x in recovery.chain if x.attempt != e.link.attempt]
    chain = tuple(sorted((*others, e.link), key=lambda x: (x.started, x.attempt)))
    docs.put(
        replace(
            recovery,
            chain=chain,
            regained=next((x.regained for x in reversed(chain) if x.regained), None),
            survived=next((x.survived for x in reversed(chain) if x.survived), None),
        )
    )


def _recovery_ended(docs: Documents, e: ev.RecoveryEnded) -> None:
    recovery = docs.get(Recovery, e.recovery)
    docs.put(replace(recovery, ended=e.at, outcome=e.outcome, why=e.why, chain_class=e.chain_class))


def _last_step(docs: Documents, e: ev.RecoveryMeasured) -> None:
    docs.put(replace(docs.get(Recovery, e.recovery), last_step=e.last_step))


def _proposed(docs: Documents, e: ev.PlanProposed) -> None:
    docs.put(e.plan)


def _decided(docs: Documents, e: ev.PlanDecided) -> None:
    plan = docs.get(Plan, e.plan)
    by = e.by if e.status in ("approved", "rejected") else plan.by
    decided = plan.decided if e.status in ("done", "failed") else e.at
    docs.put(replace(plan, status=e.status, decided=decided, by=by, why=e.why))


def _reminded(docs: Documents, e: ev.PlanReminded) -> None:
    plan = docs.get(Plan, e.plan)
    docs.put(replace(plan, reminded=plan.reminded + 1))


def _wanted(docs: Documents, e: ev.ActionWanted) -> None:
    docs.put(e.action)


def _action_started(docs: Documents, e: ev.ActionStarted) -> None:
    action = docs.get(Action, e.key)
    docs.put(replace(action, started=action.started or e.at, argv=e.argv, tries=action.tries + 1))


def _action_ended(docs: Documents, e: ev.ActionEnded) -> None:
    docs.put(replace(docs.get(Action, e.key), ended=e.at, end=e.end, detail=e.detail))


def _withheld(docs: Documents, e: ev.ActionWithheld) -> None:
    """Kept in the log and shown in the thread; it changes nothing."""


def _held(docs: Documents, e: ev.NodeHeld) -> None:
    docs.put(e.hold)


def _released(docs: Documents, e: ev.NodeReleased) -> None:
    docs.put(replace(docs.get(Hold, e.hold), released=e.at, proof=e.proof))


def _paused(docs: Documents, e: ev.Paused) -> None:
    docs.put(replace(docs.meta, paused_by=e.by, paused_why=e.why))


def _resumed(docs: Documents, e: ev.Resumed) -> None:
    docs.put(replace(docs.meta, paused_by="", paused_why=""))


def _answered(docs: Documents, e: ev.RequestAnswered) -> None:
    docs.put(e.answer)


def _digest(docs: Documents, e: ev.DigestPosted) -> None:
    docs.put(e)


PROJECT: dict[type[ev.Event], Callable[[Documents, Any], None]] = {
    ev.Started: _started,
    ev.SessionSeen: _session_seen,
    ev.AttemptSeen: _attempt_seen,
    ev.AttemptAttributed: _attributed,
    ev.SessionEnded: _session_ended,
    ev.CheckpointSeen: _checkpoint,
    ev.SaveSeen: _save,
    ev.PaceChanged: _pace,
    ev.ReadingChanged: _reading,
    ev.AppXidSeen: _app_xid,
    ev.SourceChanged: _source,
    ev.IncidentOpened: _opened,
    ev.IncidentChanged: _changed,
    ev.StallChanged: _stall,
    ev.IncidentQuieted: _quieted,
    ev.IncidentFaded: _faded,
    ev.IncidentAcknowledged: _acknowledged,
    ev.IncidentClosed: _closed,
    ev.RecoveryStarted: _recovery_started,
    ev.RecoveryMeasured: _last_step,
    ev.LinkChanged: _link,
    ev.RecoveryEnded: _recovery_ended,
    ev.PlanProposed: _proposed,
    ev.PlanDecided: _decided,
    ev.PlanReminded: _reminded,
    ev.ActionWanted: _wanted,
    ev.ActionStarted: _action_started,
    ev.ActionEnded: _action_ended,
    ev.ActionWithheld: _withheld,
    ev.NodeHeld: _held,
    ev.NodeReleased: _released,
    ev.Paused: _paused,
    ev.Resumed: _resumed,
    ev.RequestAnswered: _answered,
    ev.DigestPosted: _digest,
}
