"""Faults, warnings and storms: from the scores of nodes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from bot import events as ev
from bot.incidents.episodes import (
    all_told,
    bad_readings,
    change,
    fade,
    hurt_runs,
    is_held,
    open_incident,
    open_new,
    quiet_for,
    quieten,
    recoveries_of,
)
from bot.incidents.storm import is_of_the_storm, see_storms
from bot.model import Incident, Kind, NodeScore, Observation, Reading
from bot.outcomes import chain_class
from bot.policy import Policy
from bot.state import Draft

WORSE = 2  # times what a warning told: hardware that wears out faster is to be taken out, not watched


def see_nodes(draft: Draft, seen: Observation, policy: Policy) -> None:
    """Storms first; then each node whose evidence is worth a word, the worst first."""
    told = {i.subject for i in draft.state.open_incidents()}
    struck = see_storms(draft, seen, policy)
    worth = [
        s for s in (seen.scores or {}).values() if s.hard or s.node in told or s.score >= policy.numbers.score.open_at
    ]
    for score in sorted(worth, key=lambda s: (-s.score, s.node)):
        if score.node in told or not is_of_the_storm(score, struck, policy):
            _see_score(draft, score, seen, policy)


def _see_score(draft: Draft, score: NodeScore, seen: Observation, policy: Policy) -> None:
    numbers = policy.numbers.score
    fault = open_incident(draft.state, "gpu_fault", score.node)
    if score.hard and score.score >= numbers.hard_line:
        if fault:
            change(draft, fault, score)
        elif not _muted(draft, score.node, seen):
            _open_fault(draft, score, policy)
        return
    if fault:
        quieten(draft, fault, quiet=_judgeable(fault, seen) and not score.hard)
    if score.known and (fault is None or _is_beside(draft, fault, score, policy)):
        _see_soft(draft, score, seen, policy)


def _is_beside(draft: Draft, fault: Incident, score: NodeScore, policy: Policy) -> bool:
    """The fault has ended and only waits for its runs: what is new since has a warning of its own."""
    if quiet_for(fault, draft.at) < policy.numbers.incidents.clean_after:
        return False
    told = {reason.signal for reason in fault.reasons}
    fresh = any(r.evidence >= policy.numbers.score.open_at and r.signal not in told for r in bad_readings(score))
    return score.sudden or fresh or open_incident(draft.state, "precursor", fault.subject) is not None


def _open_fault(draft: Draft, score: NodeScore, policy: Policy) -> None:
    """The fault explains what was open without it: a warning on the node, a run that failed for no known reason."""
    precursor = open_incident(draft.state, "precursor", score.node)
    fault = open_new(draft, policy, _from_score("gpu_fault", score, draft))
    if precursor:
        draft.emit(ev.IncidentClosed(draft.at, precursor.id, precursor.episode, f"became incident {fault.id}"))
    for recovery in draft.state.open_recoveries():
        unexplained = draft.state.get(Incident, recovery.tag)
        if recovery.session in fault.hurt and unexplained.kind == "session_failed":
            why = f"explained by incident {fault.id}"
            draft.emit(ev.RecoveryEnded(draft.at, recovery.id, "moved", why, chain_class(recovery.chain)))
            draft.emit(ev.IncidentClosed(draft.at, unexplained.id, unexplained.episode, why))


def _from_score(kind: Kind, score: NodeScore, draft: Draft) -> Incident:
    return Incident(
        id=0,
        episode=0,
        kind=kind,
        subject=score.node,
        opened=draft.at,
        score=score.score,
        hard=score.hard,
        known=score.known,
        reasons=bad_readings(score),
        hurt=hurt_runs(draft.state, score.node, draft.at),
    )


def _see_soft(draft: Draft, score: NodeScore, seen: Observation, policy: Policy) -> None:
    numbers = policy.numbers.score
    warned = open_incident(draft.state, "precursor", score.node)
    if score.score >= numbers.open_at and (score.sudden or score.soft_for >= numbers.open_after):
        may_open = not _muted(draft, score.node, seen) and not is_held(seen, score.node)
        if warned:
            _see_again(draft, warned, score, policy, may_open)
        elif may_open:
            open_new(draft, policy, _from_score("precursor", score, draft))
    elif warned:
        calm = score.score < numbers.close_below and not _lingers(warned, seen, policy)
        quieten(draft, warned, quiet=calm and _judgeable(warned, seen))
        fade(draft, warned, faded=calm and _heard(warned, seen))


def _see_again(draft: Draft, warned: Incident, score: NodeScore, policy: Policy, may_open: bool) -> None:
    """What the warning does not tell yet is a new episode, where it is something that nobody shall miss in an edit of
    an old message."""
    another = _another_part(warned, score, draft.at, policy)
    why = ""
    if score.sudden and _events(bad_readings(score), policy) - _events(warned.reasons, policy):
        why = "the driver reports an error since"
    elif any(r.since is not None and draft.at - r.since >= policy.numbers.score.open_after for r in another):
        why = f"another part shows a fault ({', '.join(sorted(_parts(another, policy)))})"
    elif _is_worse(warned, score, draft.at, policy):
        why = "it is getting worse"
    if why and may_open:
        draft.emit(ev.IncidentClosed(draft.at, warned.id, warned.episode, f"{why}: a new episode tells it"))
        open_new(draft, policy, _from_score("precursor", score, draft))
    else:
        change(draft, warned, replace(score, reasons=tuple(r for r in score.reasons if r not in another)))


def _another_part(warned: Incident, score: NodeScore, at: int, policy: Policy) -> tuple[Reading, ...]:
    """Of a part of which the warning says nothing, and enough for a warning of its own; only later: one failure shows
    itself in one part after another."""
    if at - warned.opened < policy.numbers.incidents.episode_within:
        return ()
    told = _parts(warned.reasons, policy)
    enough = (r for r in bad_readings(score) if r.evidence >= policy.numbers.score.open_at)
    return tuple(r for r in enough if not _parts([r], policy) & told)


def _is_worse(warned: Incident, score: NodeScore, at: int, policy: Policy) -> bool:
    """What has hovered at the line for a day or more shows twice as much as was told."""
    if at - warned.opened < policy.numbers.incidents.episode_within:
        return False
    hovering = (r for r in warned.reasons if (s := policy.signals.get(r.signal)) and s.evidence.until is not None)
    told = {reason.signal: reason.value for reason in hovering if reason.value}
    return any((r.value or 0) >= WORSE * (told[r.signal] or 0) for r in bad_readings(score) if r.signal in told)


def _parts(readings: Iterable[Reading], policy: Policy) -> set[str]:
    return {policy.signals[r.signal].category for r in readings if r.signal in policy.signals}


def _events(readings: Iterable[Reading], policy: Policy) -> set[tuple[str, float | None]]:
    """What the driver or the kernel reported: (signal, the Xid where it is one)."""
    found = ((r, policy.signals.get(r.signal)) for r in readings)
    return {
        (r.signal, r.value if signal.xid_action else None)
        for r, signal in found
        if signal and signal.evidence.event and r.evidence >= policy.numbers.score.open_at
    }


def _lingers(warned: Incident, seen: Observation, policy: Policy) -> bool:
    """What hovers at the line is one story, not one for each time that it crosses it."""
    signals = (policy.signals.get(reason.signal) for reason in warned.reasons)
    until = {s.id: s.evidence.until for s in signals if s and s.evidence.until is not None}
    mine = (r for r in seen.readings if r.signal in until and r.node == warned.subject)
    return any(r.state != "unknown" and (r.value or 0.0) >= (until[r.signal] or 0.0) for r in mine)


def _judgeable(incident: Incident, seen: Observation) -> bool:
    """Unknown resolves nothing: each signal that made the incident must be readable again."""
    told = {r.signal: r.state for r in seen.readings if r.node == incident.subject}
    return all(told.get(reason.signal, "unknown") != "unknown" for reason in incident.reasons)


def _heard(incident: Incident, seen: Observation) -> bool:
    """Something that the node's exporters tell is known: what is not shown is no darkness."""
    return any(r.node == incident.subject and r.state != "unknown" for r in seen.readings)


def _muted(draft: Draft, node: str, seen: Observation) -> bool:
    """Somebody has already taken the node out and nothing of ours runs there: repairs make Xids too."""
    return is_held(seen, node) and not hurt_runs(draft.state, node, draft.at)


def close_fault(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    """Every hurt run has survived, was given up or ended, and the node is held or clean."""
    if any(r.ended is None for r in recoveries_of(draft.state, incident)) or not all_told(draft.state, incident):
        return ""
    if is_held(seen, incident.subject):
        return "the runs are settled and the node is held"
    clean = quiet_for(incident, draft.at) >= policy.numbers.incidents.clean_after
    return "the runs are settled and the node is clean" if clean else ""


def close_precursor(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    if is_held(seen, incident.subject):
        return "the node is held"
    numbers = policy.numbers.incidents
    patience = min(numbers.precursor_good_after * 2 ** (incident.episode - 1), numbers.episode_within)
    if quiet_for(incident, draft.at) >= patience:  # what comes back is believed to be gone later each time
        return "its readings have been good"
    faded = incident.faded_since is not None and draft.at - incident.faded_since >= numbers.precursor_faded_after
    return "nothing of it has been shown any more" if faded and _heard(incident, seen) else ""
