"""What incidents of all kinds have in common: they begin, change, fall quiet, and hurt runs."""

from __future__ import annotations

from dataclasses import replace

from bot import events as ev
from bot.model import Incident, Kind, NodeScore, Observation, Reading, Recovery, Session
from bot.policy import Policy
from bot.state import Draft, State

NAMED_BEFORE = 600  # s; a node's fault up to 10 min before a run's end names it (Meta RSC's attribution window)


def open_incident(state: State, kind: Kind, subject: str) -> Incident | None:
    mine = (i for i in state.all(Incident) if i.closed is None and i.kind == kind and i.subject == subject)
    return next(mine, None)


def open_new(draft: Draft, policy: Policy, incident: Incident) -> Incident:
    """A new number, or a new episode of the number that closed within a day."""
    same = [i for i in draft.state.all(Incident) if (i.kind, i.subject) == (incident.kind, incident.subject)]
    last = max(same, key=lambda i: (i.id, i.episode), default=None)
    within = policy.numbers.incidents.episode_within
    if last and last.closed is not None and draft.at - last.closed < within:
        opened = replace(incident, id=last.id, episode=last.episode + 1)
    else:
        opened = replace(incident, id=draft.state.meta.incidents + 1, episode=1)
    draft.emit(ev.IncidentOpened(draft.at, opened, draft.policy))
    return opened


def change(draft: Draft, incident: Incident, score: NodeScore) -> None:
    """Reasons are kept for the whole episode: an Xid is a moment, the broken GPU stays."""
    fresh = {r.signal: r for r in bad_readings(score)}
    kept = [r for r in incident.reasons if r.signal not in fresh]
    reasons = tuple(sorted((*fresh.values(), *kept), key=lambda r: (-r.evidence, r.signal)))
    hurt = tuple(dict.fromkeys((*incident.hurt, *hurt_runs(draft.state, score.node, draft.at))))
    if {r.signal for r in reasons} != {r.signal for r in incident.reasons} or hurt != incident.hurt:
        top = max(incident.score, score.score)
        hard = incident.hard or score.hard
        draft.emit(ev.IncidentChanged(draft.at, incident.id, incident.episode, top, hard, reasons, hurt, incident.note))
    quieten(draft, incident, quiet=False)
    fade(draft, incident, faded=False)


def annotate(draft: Draft, i: Incident, note: str) -> None:
    """The same incident with another note."""
    draft.emit(ev.IncidentChanged(draft.at, i.id, i.episode, i.score, i.hard, i.reasons, i.hurt, note))


def quieten(draft: Draft, incident: Incident, *, quiet: bool) -> None:
    if quiet != (incident.quiet_since is not None):
        since = draft.at if quiet else None
        draft.emit(ev.IncidentQuieted(draft.at, incident.id, incident.episode, since))


def fade(draft: Draft, incident: Incident, *, faded: bool) -> None:
    if faded != (incident.faded_since is not None):
        since = draft.at if faded else None
        draft.emit(ev.IncidentFaded(draft.at, incident.id, incident.episode, since))


def quiet_for(incident: Incident, at: int) -> int:
    """s; 0 while it is loud."""
    return at - incident.quiet_since if incident.quiet_since is not None else 0


def hurt_runs(state: State, node: str, at: int) -> tuple[str, ...]:
    """Runs that are on the node, or ended on it so lately that the fault explains the end."""
    return tuple(s.key for s in state.live_sessions() if _was_on(s, node, at))


def _was_on(session: Session, node: str, at: int) -> bool:
    ran = next((a for a in reversed(session.attempts) if a.nodes), None)
    if ran is None or node not in ran.nodes:
        return False
    return ran.alive or (ran.end is not None and ran.end >= max(at - NAMED_BEFORE, session.seen))


def is_held(seen: Observation, node: str) -> bool:
    """Somebody has taken it out, xidbot or a person; a scheduler that did not answer says no."""
    known = seen.cluster.nodes.get(node) if seen.cluster else None
    return bool(known and known.holders)


def bad_readings(score: NodeScore) -> tuple[Reading, ...]:
    return tuple(r for r in score.reasons if r.state == "bad")


def recoveries_of(state: State, incident: Incident) -> list[Recovery]:
    return [r for r in state.all(Recovery) if r.tag == incident.tag]


def all_told(state: State, incident: Incident) -> bool:
    """Each run that it hurts has a recovery, or has ended."""
    told = {r.session for r in recoveries_of(state, incident)}
    live = {s.key for s in state.live_sessions()}
    return all(key in told or key not in live for key in incident.hurt)
