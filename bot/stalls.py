"""Storage events as incidents: one per mount, however many runs stall on it. Pure.

A storage stall never condemns a GPU node: no playbook holds a node for one, and a slow path of one node is told, not
acted upon.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from bot import events as ev
from bot.incidents import annotate, open_new
from bot.model import Incident, Observation, Session, SessionStorage, Stall, StorageView
from bot.policy import Policy
from bot.rhythm import told_views
from bot.state import Draft, State

KIND = "checkpoint_stall"
EXPLAINS_FOR = (
    900  # s after a stall in which a run's failure still belongs to it: NCCL's watchdog waits 10 min by default
)


def see_stalls(draft: Draft, seen: Observation, policy: Policy) -> None:
    """Open, change and close; what could not be measured changes nothing."""
    views = (*seen.storage, *told_views(draft.state, seen, policy.storage))
    for view in sorted(views, key=_is_idle):
        if view.known:
            _see(draft, view, policy)
    for incident in _open_stalls(draft.state):
        why = _over(draft, incident, views, policy)
        if why:
            draft.emit(ev.IncidentClosed(draft.at, incident.id, incident.episode, why))
    _explain_failures(draft)


def _is_idle(view: StorageView) -> bool:
    """Where a run saves or loads is where an event is told; other mounts of the same server hang with it."""
    return all(s.phase not in ("save", "load") for s in view.sessions)


def _open_stalls(state: State) -> list[Incident]:
    return [i for i in state.open_incidents() if i.kind == KIND and i.stall is not None]


# -- opening and changing -------------------------------------------------------------------------


def _see(draft: Draft, view: StorageView, policy: Policy) -> None:
    incident = next((i for i in _open_stalls(draft.state) if i.stall and i.stall.export == view.export), None)
    hurt = _hurt(draft.state, view.sessions)
    if view.stall and incident is None and not _is_no_event(view.stall, policy):
        if _hangs_with_another(draft.state, view.stall):
            return
        subject = view.stall.node or view.export
        stall = replace(view.stall, trace=view.trace)
        first = Incident(0, 0, "checkpoint_stall", subject, draft.at, hurt=hurt, stall=stall)
        open_new(draft, policy, first)
    elif view.stall and incident is not None:
        _go_on(draft, incident, replace(view.stall, trace=view.trace), hurt)
    elif incident is not None and incident.stall and incident.stall.ended is None:
        _end(draft, incident, replace(incident.stall, trace=view.trace), view.sessions)


def _is_no_event(stall: Stall, policy: Policy) -> bool:
    """Slow with nothing under way on any node: the run itself has stopped to write. Overdue on one node alone: what a
    person tries out there has no rhythm that anybody could rely on."""
    found = stall.measures
    idle = not stall.node and found.in_flight is not None and found.in_flight < policy.storage.least_in_flight
    return (stall.rule in ("slow_save", "slow_load") and idle) or (stall.rule == "overdue_save" and found.nodes == 1)


def _hangs_with_another(state: State, stall: Stall) -> bool:
    """One server that does not answer is one event on all its mounts."""
    server = stall.export.rpartition(":")[0]
    told = [i.stall for i in _open_stalls(state) if i.stall and i.stall.rule == "hang" and i.stall.ended is None]
    return stall.rule == "hang" and any(s.export.rpartition(":")[0] == server for s in told)


def _hurt(state: State, sessions: Iterable[SessionStorage]) -> tuple[str, ...]:
    """Runs under our care that stall; a recording may know of none."""
    known = {s.key for s in state.all(Session)}
    return tuple(s.session for s in sessions if s.stalled and s.session in known)


def _go_on(draft: Draft, incident: Incident, stall: Stall, hurt: tuple[str, ...]) -> None:
    """Told again when something else is known than before: numbers alone move all the time."""
    known = incident.stall
    assert known is not None
    everyone = tuple(dict.fromkeys((*incident.hurt, *hurt)))
    same = (known.rule, known.verdict, known.node) == (stall.rule, stall.verdict, stall.node)
    if not same or known.ended is not None or everyone != incident.hurt:
        first = known if known.ended is None else stall  # its beginning, and the picture of when it was seen
        beyond = _added(known.beyond, stall.beyond)
        changed = replace(stall, onset=first.onset, beyond=beyond, trace=first.trace)
        draft.emit(ev.StallChanged(draft.at, incident.id, incident.episode, changed, everyone))
    if incident.quiet_since is not None:
        draft.emit(ev.IncidentQuieted(draft.at, incident.id, incident.episode, None))


def _end(draft: Draft, incident: Incident, stall: Stall, sessions: Iterable[SessionStorage]) -> None:
    mine = [s for s in sessions if s.session in incident.hurt or not incident.hurt]
    ended = max((s.calm_since for s in mine if s.calm_since is not None), default=draft.at)
    beyond = _added(stall.beyond, tuple((s.session, s.beyond) for s in mine if s.beyond))
    over = replace(stall, ended=max(ended, stall.onset), beyond=beyond)
    draft.emit(ev.StallChanged(draft.at, incident.id, incident.episode, over, incident.hurt))
    draft.emit(ev.IncidentQuieted(draft.at, incident.id, incident.episode, over.ended))


def _added(known: tuple[tuple[str, int], ...], new: tuple[tuple[str, int], ...]) -> tuple[tuple[str, int], ...]:
    """What each run lost: the newer number counts from the same beginning, so the larger one is all of it."""
    total = dict(known)
    for session, seconds in new:
        total[session] = max(seconds, total.get(session, 0))
    return tuple(sorted(total.items()))


# -- closing --------------------------------------------------------------------------------------


def _over(draft: Draft, incident: Incident, views: Iterable[StorageView], policy: Policy) -> str:
    """Two normal saves of every run that saves in a rhythm, half an hour of calm for the others; a run that no longer
    runs cannot show either."""
    stall = incident.stall
    assert stall is not None
    numbers = policy.storage
    running = [s for s in _sessions(draft.state, incident) if s.latest and s.latest.alive]
    if incident.hurt and not running:
        ends = [s.latest.end for s in _sessions(draft.state, incident) if s.latest and s.latest.end is not None]
        gone = draft.at - max(ends, default=draft.at) >= numbers.calm_for
        return f"no run that it hurt is running any more{_cost(draft.state, stall)}" if gone else ""
    view = next((v for v in views if v.export == stall.export and v.known), None)
    if view is None or view.stall is not None or stall.ended is None:
        return ""
    mine = [s for s in view.sessions if s.session in incident.hurt or not incident.hurt]
    done = [_is_normal(s, draft.at, numbers.normal_saves, numbers.calm_for) for s in mine]
    if not done or not all(done):
        return ""
    saves = min((s.normal_saves for s in mine), default=0)
    since = f"{saves} normal saves since" if saves >= numbers.normal_saves else "normal since"
    return f"{since}{_cost(draft.state, stall)}"


def _is_normal(s: SessionStorage, at: int, saves: int, calm: int) -> bool:
    if s.normal_saves >= saves:
        return True
    return not s.cadence and s.calm_since is not None and at - s.calm_since >= calm


def _sessions(state: State, incident: Incident) -> list[Session]:
    found = [state.find(Session, key) for key in incident.hurt]
    return [s for s in found if s is not None]


def _cost(state: State, stall: Stall) -> str:
    hours = gpu_hours(state, stall)
    return f"; it cost up to {hours:,.1f} idle GPU-hours" if hours else ""


def gpu_hours(state: State, stall: Stall) -> float:
    """GPUs of the runs it hurt × the time beyond their usual. An upper bound: a trainer may go on while it saves."""
    return idle_hours(stall, {s.key: s.gpus for s in state.all(Session)})


def idle_hours(stall: Stall, sizes: Mapping[str, int]) -> float:
    """sizes: session key → GPUs."""
    return sum(sizes.get(key, 0) * seconds for key, seconds in stall.beyond) / 3600


# -- failures -------------------------------------------------------------------------------------


def _explain_failures(draft: Draft) -> None:
    """A watchdog that kills a run while its save hangs tells of the storage, not of a node."""
    for stall in draft.state.all(Incident):
        if stall.kind != KIND or not _lately(stall, draft.at):
            continue
        why = f"during the storage stall of incident {stall.id}"
        for failed in draft.state.open_incidents():
            if failed.kind == "session_failed" and set(failed.hurt) & set(stall.hurt) and why not in failed.note:
                said, *more = failed.note.split("\n")  # the log's own lines come after what is said
                annotate(draft, failed, "\n".join((f"{said}; {why}" if said else why, *more)))


def _lately(incident: Incident, at: int) -> bool:
    ended = incident.stall.ended if incident.stall else None
    return incident.closed is None and (ended is None or at - ended < EXPLAINS_FOR)
