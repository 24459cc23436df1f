"""From scores, sources and sessions to incidents: what opens one, what changes it, what ends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bot import events as ev
from bot.model import (
    FAILED,
    Attempt,
    Incident,
    Kind,
    Node,
    NodeScore,
    Observation,
    Reading,
    Recovery,
    Session,
    SourceHealth,
)
from bot.naming import some
from bot.outcomes import chain_class
from bot.policy import Policy
from bot.sessions import is_dead
from bot.state import Draft, State
from bot.storms import storms

TOLD_BY_LOGS = frozenset({"gpu_fault", "session_failed", "session_hung"})
NAMED_BEFORE = 600  # s; a node's fault up to 10 min before a run's end names it (Meta RSC's attribution window)


def open_incident(state: State, kind: Kind, subject: str) -> Incident | None:
    mine = (i for i in state.all(Incident) if i.closed is None and i.kind == kind and i.subject == subject)
    return next(mine, None)


def _open(draft: Draft, policy: Policy, incident: Incident) -> Incident:
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


def open_new(draft: Draft, policy: Policy, incident: Incident) -> Incident:
    """For stages of their own; the number and the episode are given here."""
    return _open(draft, policy, incident)


# -- readings and sources -------------------------------------------------------------------------


def see_readings(draft: Draft, seen: Observation, policy: Policy) -> None:
    """A reading is an event when its state changes on a node that has an incident or a session. One that the node's
    phase mutes is as it was before: each save of each run would else be thousands of events."""
    busy = {n for s in draft.state.live_sessions() for n in s.nodes}
    busy |= {i.subject for i in draft.state.open_incidents()}
    before = {(r.node, r.signal): r.state for r in draft.state.all(Reading)}
    worse = {key for key, state in before.items() if state != "good"}
    # Thousands of readings were good and are: they are passed over first.
    maybe = [r for r in seen.readings if r.state != "good" or (r.node, r.signal) in worse]
    changed = [r for r in maybe if not r.muted and r.state != before.get((r.node, r.signal), "good")]
    measured = {r.signal for r in seen.readings if r.state != "unknown"} if changed else frozenset()
    for reading in changed:
        if reading.signal not in measured and (reading.node, reading.signal) not in before:
            continue  # this site does not measure it: nothing has changed on any node
        if reading.node in busy or reading.state == "bad":
            draft.emit(ev.ReadingChanged(draft.at, reading, draft.policy))


def see_sources(draft: Draft, seen: Observation, policy: Policy) -> None:
    looked_at = [SourceHealth(s.name, s.problem, draft.at) for s in seen.sources]
    problems = {s.name: bool(s.problem) for s in draft.state.all(SourceHealth)}
    for source in (*looked_at, *_node_sources(seen, policy)):
        if bool(source.problem) != problems.get(source.name, False):
            draft.emit(ev.SourceChanged(draft.at, source))


def _node_sources(seen: Observation, policy: Policy) -> Iterable[SourceHealth]:
    """A node whose whole telemetry is gone though the scheduler says it is up."""
    if seen.scores is None or seen.cluster is None:
        return
    of_gpus = {signal.id for signal in policy.signals.values() if signal.exporter == "dcgm"}
    heard = {r.node for r in seen.readings if r.state != "unknown" and r.signal in of_gpus}
    blinding = {signal.id for signal in policy.signals.values() if signal.opens == "blind"}
    down = {r.node: r.text for r in seen.readings if r.signal in blinding and r.state == "bad"}
    for name, node in sorted(seen.cluster.nodes.items()):
        if node.gpus:
            problem = _silence(node, down.get(name), name in heard) if node.up else ""
            yield SourceHealth(f"node:{name}", problem, seen.now)


def _silence(node: Node, down: str | None, heard: bool) -> str:
    if down is not None:
        return down or "its GPU exporter does not answer"
    return "" if heard else f"no GPU metric arrives from it, though the scheduler says {node.state}"


# -- opening --------------------------------------------------------------------------------------


def open_and_change(draft: Draft, seen: Observation, policy: Policy) -> None:
    told = {i.subject for i in draft.state.open_incidents()}
    struck = _see_storms(draft, seen, policy)
    worth = [
        s for s in (seen.scores or {}).values() if s.hard or s.node in told or s.score >= policy.numbers.score.open_at
    ]
    for score in sorted(worth, key=lambda s: (-s.score, s.node)):
        if score.node in told or not _of_the_storm(score, struck, policy):
            _see_score(draft, score, seen, policy)
    _see_blindness(draft, policy)
    _see_failed_sessions(draft, seen, policy)


def _see_storms(draft: Draft, seen: Observation, policy: Policy) -> dict[str, frozenset[str]]:
    """Category → nodes of the storms that blow. A storm is one incident; its nodes open none for the same category."""
    struck = {}
    blowing = {incident.subject for incident in draft.state.open_incidents() if incident.kind == "storm"}
    for category, storm in storms(seen.scores or {}, policy, blowing).items():
        incident = open_incident(draft.state, "storm", category)
        struck[category] = storm.nodes
        hurt = tuple(dict.fromkeys(key for node in sorted(storm.nodes) for key in _hurt(draft.state, node, draft.at)))
        if incident is None:
            blows = Incident(0, 0, "storm", category, draft.at, reasons=storm.reasons, note=storm.note, hurt=hurt)
            _open(draft, policy, blows)
    for incident in draft.state.open_incidents():
        if incident.kind == "storm" and seen.scores is not None:
            late = _late(incident, seen.scores.values(), policy)
            alone = len(late) < policy.numbers.incidents.storm_peers  # what is left on one node is soon that node's own
            _quieten(draft, incident, quiet=incident.subject not in struck and alone)
            struck[incident.subject] = struck.get(incident.subject, frozenset()) | late
    return struck


def _late(storm: Incident, scores: Iterable[NodeScore], policy: Policy) -> frozenset[str]:
    """Nodes that show just what the storm's nodes showed, though they came to it later, with a new run perhaps."""
    signals = {reason.signal for reason in storm.reasons}
    mine = {name for name, signal in policy.signals.items() if signal.category == storm.subject}
    shown = ((score.node, {r.signal for r in _bad(score)} & mine) for score in scores)
    return frozenset(node for node, bad in shown if bad and bad <= signals)


def _of_the_storm(score: NodeScore, struck: Mapping[str, frozenset[str]], policy: Policy) -> bool:
    """What stands against the node is what stands against many: without the storm's categories it opens nothing."""
    mine = {category for category, nodes in struck.items() if score.node in nodes}
    signals = policy.signals
    own = [r for r in _bad(score) if r.signal not in signals or signals[r.signal].category not in mine]
    return bool(mine) and max((r.evidence for r in own), default=0.0) < policy.numbers.score.open_at


def _see_score(draft: Draft, score: NodeScore, seen: Observation, policy: Policy) -> None:
    numbers = policy.numbers.score
    fault = open_incident(draft.state, "gpu_fault", score.node)
    if score.hard and score.score >= numbers.hard_line:
        if fault:
            _change(draft, fault, score)
        elif not _muted(draft, score.node, seen):
            _open_fault(draft, score, policy)
    elif fault:
        _quieten(draft, fault, quiet=_judgeable(fault, seen) and not score.hard)
    elif score.known:
        _see_soft(draft, score, seen, policy)


def _open_fault(draft: Draft, score: NodeScore, policy: Policy) -> None:
    """The fault explains what was open without it: a warning on the node, a run that failed for no known reason."""
    precursor = open_incident(draft.state, "precursor", score.node)
    fault = _open(draft, policy, _from_score("gpu_fault", score, draft))
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
        reasons=_bad(score),
        hurt=_hurt(draft.state, score.node, draft.at),
    )


def _bad(score: NodeScore) -> tuple[Reading, ...]:
    return tuple(r for r in score.reasons if r.state == "bad")


def _hurt(state: State, node: str, at: int) -> tuple[str, ...]:
    """Runs that are on the node, or ended on it so lately that the fault explains the end."""
    return tuple(s.key for s in state.live_sessions() if _was_on(s, node, at))


def _was_on(session: Session, node: str, at: int) -> bool:
    ran = next((a for a in reversed(session.attempts) if a.nodes), None)
    if ran is None or node not in ran.nodes:
        return False
    return ran.alive or (ran.end is not None and ran.end >= max(at - NAMED_BEFORE, session.seen))


def _see_soft(draft: Draft, score: NodeScore, seen: Observation, policy: Policy) -> None:
    numbers = policy.numbers.score
    warned = open_incident(draft.state, "precursor", score.node)
    if score.score >= numbers.open_at and (score.sudden or score.soft_for >= numbers.open_after):
        may_open = not _muted(draft, score.node, seen) and not _held(seen, score.node)
        if warned and may_open and _is_news(warned, score, policy):
            why = "the driver reports an error since: a new episode tells it"
            draft.emit(ev.IncidentClosed(draft.at, warned.id, warned.episode, why))
            _open(draft, policy, _from_score("precursor", score, draft))
        elif warned:
            _change(draft, warned, score)
        elif may_open:
            _open(draft, policy, _from_score("precursor", score, draft))
    elif warned:
        calm = score.score < numbers.close_below
        _quieten(draft, warned, quiet=calm and _judgeable(warned, seen))
        _fade(draft, warned, faded=calm and _heard(warned, seen))


def _is_news(warned: Incident, score: NodeScore, policy: Policy) -> bool:
    """The driver has reported something that the warning does not tell yet, as another Xid: nobody shall miss that in
    an edit of an old message."""
    return score.sudden and bool(_events(_bad(score), policy) - _events(warned.reasons, policy))


def _events(readings: Iterable[Reading], policy: Policy) -> set[tuple[str, float | None]]:
    """What the driver or the kernel reported: (signal, the Xid where it is one)."""
    found = ((r, policy.signals.get(r.signal)) for r in readings)
    return {
        (r.signal, r.value if signal.xid_action else None)
        for r, signal in found
        if signal and signal.evidence.event and r.evidence >= policy.numbers.score.open_at
    }


def _judgeable(incident: Incident, seen: Observation) -> bool:
    """Unknown resolves nothing: each signal that made the incident must be readable again."""
    told = {r.signal: r.state for r in seen.readings if r.node == incident.subject}
    return all(told.get(reason.signal, "unknown") != "unknown" for reason in incident.reasons)


def _heard(incident: Incident, seen: Observation) -> bool:
    """Something that the node's exporters tell is known: what is not shown is no darkness."""
    return any(r.node == incident.subject and r.state != "unknown" for r in seen.readings)


def _muted(draft: Draft, node: str, seen: Observation) -> bool:
    """Somebody has already taken the node out and nothing of ours runs there: repairs make Xids too."""
    return _held(seen, node) and not _hurt(draft.state, node, draft.at)


def _held(seen: Observation, node: str) -> bool:
    known = seen.cluster.nodes.get(node) if seen.cluster else None
    return bool(known and known.holders)


def _change(draft: Draft, incident: Incident, score: NodeScore) -> None:
    """Reasons are kept for the whole episode: an Xid is a moment, the broken GPU stays."""
    fresh = {r.signal: r for r in _bad(score)}
    kept = [r for r in incident.reasons if r.signal not in fresh]
    reasons = tuple(sorted((*fresh.values(), *kept), key=lambda r: (-r.evidence, r.signal)))
    hurt = tuple(dict.fromkeys((*incident.hurt, *_hurt(draft.state, score.node, draft.at))))
    if {r.signal for r in reasons} != {r.signal for r in incident.reasons} or hurt != incident.hurt:
        top = max(incident.score, score.score)
        hard = incident.hard or score.hard
        draft.emit(ev.IncidentChanged(draft.at, incident.id, incident.episode, top, hard, reasons, hurt, incident.note))
    _quieten(draft, incident, quiet=False)
    _fade(draft, incident, faded=False)


def _fade(draft: Draft, incident: Incident, *, faded: bool) -> None:
    if faded != (incident.faded_since is not None):
        since = draft.at if faded else None
        draft.emit(ev.IncidentFaded(draft.at, incident.id, incident.episode, since))


def _quieten(draft: Draft, incident: Incident, *, quiet: bool) -> None:
    if quiet != (incident.quiet_since is not None):
        since = draft.at if quiet else None
        draft.emit(ev.IncidentQuieted(draft.at, incident.id, incident.episode, since))


def _see_blindness(draft: Draft, policy: Policy) -> None:
    numbers = policy.numbers.incidents
    patience = (numbers.blind_after - 1) * policy.numbers.time.step
    for source in _fold_nodes([s for s in draft.state.all(SourceHealth) if s.problem and _lasted(draft, s, patience)]):
        hurt = _hurt_by_blindness(draft, source.name)
        idle = source.name.startswith("node:") and not hurt
        if idle and not _lasted(draft, source, numbers.blind_idle_after):
            continue  # a node that nothing runs on is rebooted and rebuilt: that nobody sees it hurts nobody yet
        if not open_incident(draft.state, "blind", source.name):
            _open(draft, policy, Incident(0, 0, "blind", source.name, draft.at, note=source.problem, hurt=hurt))


def _lasted(draft: Draft, source: SourceHealth, seconds: int) -> bool:
    return draft.at - source.since >= seconds


def _fold_nodes(bad: Sequence[SourceHealth]) -> list[SourceHealth]:
    """Many nodes silent at once is one cause: telemetry, a rollout, a shared part; not that many faults."""
    sources = [s for s in bad if not s.name.startswith("node:")]
    nodes = [s for s in bad if s.name.startswith("node:")]
    if any(s.name == "prometheus" for s in sources):
        return sources
    if len(nodes) < 4:
        return [*sources, *nodes]
    names = some([s.name.removeprefix("node:") for s in nodes])
    return [*sources, SourceHealth("nodes", f"no GPU telemetry from {len(nodes)} nodes: {names}", nodes[0].since)]


def _hurt_by_blindness(draft: Draft, source: str) -> tuple[str, ...]:
    nodes = [source] if source.startswith("node:") else []
    if source == "nodes":
        nodes = [s.name for s in draft.state.all(SourceHealth) if s.problem and s.name.startswith("node:")]
    return tuple(dict.fromkeys(k for n in nodes for k in _hurt(draft.state, n.removeprefix("node:"), draft.at)))


def _see_failed_sessions(draft: Draft, seen: Observation, policy: Policy) -> None:
    """A run that failed and no node is named: observe, say so, watch who brings it back."""
    if seen.cluster is None:
        return
    for session in draft.state.live_sessions():
        failed = _failed_attempt(session, seen.now, policy)
        if (
            failed is None
            or _has_recovery(draft.state, session)
            or _named(draft.state, session, failed.end or draft.at)
        ):
            continue
        if open_incident(draft.state, "session_failed", session.name) is None:
            note = f"attempt {failed.id} ended {failed.state}"
            note += f" (exit code {failed.exit_code})" if failed.exit_code else ""
            note += _struck(draft.state, failed, seen)
            incident = Incident(0, 0, "session_failed", session.name, draft.at, note=note, hurt=(session.key,))
            _open(draft, policy, incident)


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
                told = f"{i.note}\n{note.noted}" if i.note else note.noted
                draft.emit(ev.IncidentChanged(draft.at, i.id, i.episode, i.score, i.hard, i.reasons, i.hurt, told))


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


# -- closing --------------------------------------------------------------------------------------


def close(draft: Draft, seen: Observation, policy: Policy) -> None:
    for incident in draft.state.open_incidents():
        why = CLOSES[incident.kind](draft, incident, seen, policy) if incident.kind in CLOSES else ""
        if why:
            draft.emit(ev.IncidentClosed(draft.at, incident.id, incident.episode, why))


def _recoveries(state: State, incident: Incident) -> list[Recovery]:
    return [r for r in state.all(Recovery) if r.tag == incident.tag]


def _quiet_for(incident: Incident, at: int) -> int:
    return at - incident.quiet_since if incident.quiet_since is not None else 0


def _close_fault(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    """Every hurt run has survived, was given up or ended, and the node is held or clean."""
    if any(r.ended is None for r in _recoveries(draft.state, incident)) or not _all_told(draft.state, incident):
        return ""
    if _held(seen, incident.subject):
        return "the runs are settled and the node is held"
    clean = _quiet_for(incident, draft.at) >= policy.numbers.incidents.clean_after
    return "the runs are settled and the node is clean" if clean else ""


def _all_told(state: State, incident: Incident) -> bool:
    told = {r.session for r in _recoveries(state, incident)}
    live = {s.key for s in state.live_sessions()}
    return all(key in told or key not in live for key in incident.hurt)


def _close_precursor(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    if _held(seen, incident.subject):
        return "the node is held"
    numbers = policy.numbers.incidents
    if _quiet_for(incident, draft.at) >= numbers.precursor_good_after:
        return "its readings have been good"
    faded = incident.faded_since is not None and draft.at - incident.faded_since >= numbers.precursor_faded_after
    return "nothing of it has been shown any more" if faded and _heard(incident, seen) else ""


def _close_failed(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    recoveries = _recoveries(draft.state, incident)
    if any(r.ended is None for r in recoveries) or not _all_told(draft.state, incident):
        return ""
    return "; ".join(sorted({r.why or r.outcome for r in recoveries})) or "the run has ended"


def _close_blind(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    """Two good ticks in a row."""
    good_for = (policy.numbers.incidents.blind_clear_after - 1) * policy.numbers.time.step
    names = [incident.subject]
    if incident.subject == "nodes":
        names = [s.name for s in draft.state.all(SourceHealth) if s.name.startswith("node:")]
    sources = [s for s in draft.state.all(SourceHealth) if s.name in names]
    if all(not s.problem and draft.at - s.since >= good_for for s in sources):
        return "it can be read again"
    return ""


def _close_storm(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    calm = _quiet_for(incident, draft.at) >= policy.numbers.incidents.clean_after
    return "it has blown over" if calm else ""


CLOSES = {
    "storm": _close_storm,
    "gpu_fault": _close_fault,
    "precursor": _close_precursor,
    "session_failed": _close_failed,
    "session_hung": _close_failed,  # where it is followed by a recovery; see hangs
    "blind": _close_blind,
}
