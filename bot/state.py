"""What the log adds up to. PROJECT[type(event)] is the only thing that changes it, live, on rebuild and in a replay."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, TypeVar

from bot import events as ev
from bot.model import (
    Action,
    Answer,
    Attempt,
    Checkpoint,
    Hold,
    Incident,
    Meta,
    Plan,
    Reading,
    Recovery,
    SaveHistory,
    Session,
    Sighting,
    SourceHealth,
)

T = TypeVar("T")
Doc = Any
Loader = Callable[[str, str], Doc | None]


class Kind:
    """One kind of document: its name in the store, its class, its id and whether it is still live."""

    def __init__(self, name: str, cls: type, key: Callable[[Any], str], live: Callable[[Any], bool]) -> None:
        self.name, self.cls, self.key, self.live = name, cls, key, live


KINDS: tuple[Kind, ...] = (
    Kind("meta", Meta, lambda d: "meta", lambda d: True),
    Kind("session", Session, lambda d: d.key, lambda d: d.ended_at is None),
    Kind("reading", Reading, lambda d: f"{d.node}/{d.signal}", lambda d: d.state != "good"),
    Kind("app_xid", Sighting, lambda d: d.id, lambda d: False),  # kept as long as anything that has ended
    Kind("saves", SaveHistory, lambda d: d.session, lambda d: False),  # a run that saves changes it all the time
    Kind("source", SourceHealth, lambda d: d.name, lambda d: True),
    Kind("incident", Incident, lambda d: d.tag, lambda d: d.closed is None),
    Kind("recovery", Recovery, lambda d: d.id, lambda d: d.ended is None),
    Kind("plan", Plan, lambda d: d.id, lambda d: d.status in ("proposed", "approved")),
    Kind("action", Action, lambda d: d.key, lambda d: d.end is None),
    Kind("hold", Hold, lambda d: d.id, lambda d: d.released is None),
    Kind("answer", Answer, lambda d: str(d.request), lambda d: False),
    Kind("digest", ev.DigestPosted, lambda d: d.week, lambda d: True),  # never forgotten: never posted twice
)
BY_CLASS = {kind.cls: kind for kind in KINDS}
BY_NAME = {kind.name: kind for kind in KINDS}


class State:
    """Documents by kind and id. `load` finds one that is no longer kept in memory."""

    def __init__(self, load: Loader | None = None) -> None:
        self.docs: dict[str, dict[str, Doc]] = {kind.name: {} for kind in KINDS}
        self.changed: set[tuple[str, str]] = set()
        self._load = load

    def copy(self) -> State:
        twin = State(self._load)
        twin.docs = {name: dict(table) for name, table in self.docs.items()}
        return twin

    def put(self, doc: Doc) -> None:
        kind = BY_CLASS[type(doc)]
        key = kind.key(doc)
        self.docs[kind.name][key] = doc
        self.changed.add((kind.name, key))

    def find(self, cls: type[T], key: str) -> T | None:
        """What is in memory: everything live, and what ended in the last days."""
        found: T | None = self.docs[BY_CLASS[cls].name].get(key)
        return found

    def get(self, cls: type[T], key: str) -> T:
        """Like find, but it must exist: an old one is loaded."""
        doc = self.find(cls, key)
        if doc is None and self._load:
            doc = self._load(BY_CLASS[cls].name, key)
        if doc is None:
            raise KeyError(f"no {cls.__name__} {key}")
        return doc

    def all(self, cls: type[T]) -> list[T]:
        return list(self.docs[BY_CLASS[cls].name].values())

    def saves_of(self, session: str) -> SaveHistory:
        """Empty where no save is known."""
        try:
            return self.get(SaveHistory, session)
        except KeyError:
            return SaveHistory(session)

    @property
    def meta(self) -> Meta:
        return self.find(Meta, "meta") or Meta()

    def apply(self, event: ev.Event) -> None:
        PROJECT[type(event)](self, event)

    # -- looks that many need --------------------------------------------------------------------

    def open_incidents(self) -> list[Incident]:
        return sorted((i for i in self.all(Incident) if i.closed is None), key=lambda i: (i.id, i.episode))

    def live_sessions(self) -> list[Session]:
        return [s for s in self.all(Session) if s.ended_at is None]

    def open_recoveries(self) -> list[Recovery]:
        return [r for r in self.all(Recovery) if r.ended is None]

    def our_holds(self) -> list[Hold]:
        return [h for h in self.all(Hold) if h.released is None]

    def session_of(self, job: str) -> Session | None:
        """The newest session that has this job id: ids are reused after a reset."""
        mine = [s for s in self.all(Session) if job in s.jobs]
        return max(mine, key=lambda s: s.first_submit, default=None)


class Draft:
    """A state being decided upon: every event is applied as soon as it is emitted, so later stages see it."""

    def __init__(self, state: State, at: int, policy_hash: str) -> None:
        self.state = state.copy()
        self.at = at
        self.policy = policy_hash
        self.events: list[ev.Event] = []

    def emit(self, event: ev.Event) -> None:
        self.state.apply(event)
        self.events.append(event)


def fold(events: Iterable[ev.Event]) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state


# -- projections ----------------------------------------------------------------------------------


def _started(state: State, e: ev.Started) -> None:
    state.put(replace(state.meta, version=e.version, policy=e.policy, write_mode=e.write_mode))


def _session_seen(state: State, e: ev.SessionSeen) -> None:
    known = state.find(Session, e.session.key)
    if known:
        new = e.session
        state.put(
            replace(known, jobs=new.jobs, unrecoverable=new.unrecoverable, controller=new.controller, gpus=new.gpus)
        )
    else:
        state.put(e.session)


def _attempt_seen(state: State, e: ev.AttemptSeen) -> None:
    session = state.get(Session, e.session)
    known = session.attempt(e.attempt.id)
    seen = replace(e.attempt, origin=known.origin) if known else e.attempt
    state.put(replace(session, attempts=_upsert(session.attempts, seen)))


def _upsert(attempts: tuple[Attempt, ...], new: Attempt) -> tuple[Attempt, ...]:
    if any(a.id == new.id for a in attempts):
        return tuple(new if a.id == new.id else a for a in attempts)
    return (*attempts, new)


def _attributed(state: State, e: ev.AttemptAttributed) -> None:
    session = state.get(Session, e.session)
    named = tuple(replace(a, origin=e.origin) if a.id == e.attempt else a for a in session.attempts)
    state.put(replace(session, attempts=named))


def _session_ended(state: State, e: ev.SessionEnded) -> None:
    state.put(replace(state.get(Session, e.session), ended=e.how, ended_at=e.at))


def _checkpoint(state: State, e: ev.CheckpointSeen) -> None:
    session = state.get(Session, e.session)
    steps = [s for s in (session.best_step, e.checkpoint.step) if s is not None]
    state.put(
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


def _save(state: State, e: ev.SaveSeen) -> None:
    known = state.saves_of(e.session)
    others = [s for s in known.saves if s.number not in (e.save.number, *e.gone)]
    saves = sorted((*others, e.save), key=lambda s: (s.at, s.number))[-e.kept :]
    state.put(SaveHistory(e.session, tuple(saves), max(known.made, e.save.number)))


def _pace(state: State, e: ev.PaceChanged) -> None:
    state.put(replace(state.get(Session, e.session), pace=e.pace))


def _reading(state: State, e: ev.ReadingChanged) -> None:
    state.put(e.reading)


def _app_xid(state: State, e: ev.AppXidSeen) -> None:
    state.put(e.sighting)


def _source(state: State, e: ev.SourceChanged) -> None:
    state.put(e.source)


def _opened(state: State, e: ev.IncidentOpened) -> None:
    state.put(e.incident)
    if e.incident.id > state.meta.incidents:
        state.put(replace(state.meta, incidents=e.incident.id))


def _incident(state: State, e: Any, **facts: Any) -> None:
    state.put(replace(state.get(Incident, f"{e.incident}.{e.episode}"), **facts))


def _changed(state: State, e: ev.IncidentChanged) -> None:
    _incident(state, e, score=e.score, hard=e.hard, reasons=e.reasons, hurt=e.hurt, note=e.note)


def _stall(state: State, e: ev.StallChanged) -> None:
    _incident(state, e, stall=e.stall, hurt=e.hurt)


def _quieted(state: State, e: ev.IncidentQuieted) -> None:
    _incident(state, e, quiet_since=e.since)


def _acknowledged(state: State, e: ev.IncidentAcknowledged) -> None:
    _incident(state, e, acked_by=e.by)


def _closed(state: State, e: ev.IncidentClosed) -> None:
    _incident(state, e, closed=e.at, closed_why=e.why)


def _recovery_started(state: State, e: ev.RecoveryStarted) -> None:
    state.put(e.recovery)


def _link(state: State, e: ev.LinkChanged) -> None:
    recovery = state.get(Recovery, e.recovery)
    others = [x for x in recovery.chain if x.attempt != e.link.attempt]
    chain = tuple(sorted((*others, e.link), key=lambda x: (x.started, x.attempt)))
    state.put(
        replace(
            recovery,
            chain=chain,
            regained=next((x.regained for x in reversed(chain) if x.regained), None),
            survived=next((x.survived for x in reversed(chain) if x.survived), None),
        )
    )


def _recovery_ended(state: State, e: ev.RecoveryEnded) -> None:
    recovery = state.get(Recovery, e.recovery)
    state.put(replace(recovery, ended=e.at, outcome=e.outcome, why=e.why, chain_class=e.chain_class))


def _last_step(state: State, e: ev.RecoveryMeasured) -> None:
    state.put(replace(state.get(Recovery, e.recovery), last_step=e.last_step))


def _proposed(state: State, e: ev.PlanProposed) -> None:
    state.put(e.plan)


def _decided(state: State, e: ev.PlanDecided) -> None:
    plan = state.get(Plan, e.plan)
    by = e.by if e.status in ("approved", "rejected") else plan.by
    decided = plan.decided if e.status in ("done", "failed") else e.at
    state.put(replace(plan, status=e.status, decided=decided, by=by, why=e.why))


def _reminded(state: State, e: ev.PlanReminded) -> None:
    plan = state.get(Plan, e.plan)
    state.put(replace(plan, reminded=plan.reminded + 1))


def _wanted(state: State, e: ev.ActionWanted) -> None:
    state.put(e.action)


def _action_started(state: State, e: ev.ActionStarted) -> None:
    action = state.get(Action, e.key)
    state.put(replace(action, started=action.started or e.at, argv=e.argv, tries=action.tries + 1))


def _action_ended(state: State, e: ev.ActionEnded) -> None:
    state.put(replace(state.get(Action, e.key), ended=e.at, end=e.end, detail=e.detail))


def _withheld(state: State, e: ev.ActionWithheld) -> None:
    """Kept in the log and shown in the thread; it changes nothing."""


def _held(state: State, e: ev.NodeHeld) -> None:
    state.put(e.hold)


def _released(state: State, e: ev.NodeReleased) -> None:
    state.put(replace(state.get(Hold, e.hold), released=e.at, proof=e.proof))


def _paused(state: State, e: ev.Paused) -> None:
    state.put(replace(state.meta, paused_by=e.by, paused_why=e.why))


def _resumed(state: State, e: ev.Resumed) -> None:
    state.put(replace(state.meta, paused_by="", paused_why=""))


def _answered(state: State, e: ev.RequestAnswered) -> None:
    state.put(e.answer)


def _digest(state: State, e: ev.DigestPosted) -> None:
    state.put(e)


PROJECT: dict[type[ev.Event], Callable[[State, Any], None]] = {
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
