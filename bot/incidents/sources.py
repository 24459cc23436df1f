"""Readings and sources: what has changed, and what nobody can see any more."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bot import events as ev
from bot.incidents.episodes import hurt_runs, open_incident, open_new
from bot.model import Incident, Node, Observation, Reading, SourceHealth
from bot.naming import some
from bot.policy import Policy
from bot.state import Draft


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


def see_blindness(draft: Draft, seen: Observation, policy: Policy) -> None:
    """What nobody has seen for some ticks; the fewer nodes it is and the less runs there, the later."""
    numbers = policy.numbers.incidents
    patience = (numbers.blind_after - 1) * policy.numbers.time.step
    for source in _fold_nodes([s for s in draft.state.all(SourceHealth) if s.problem and _lasted(draft, s, patience)]):
        hurt = _hurt_by_blindness(draft, source.name)
        idle = source.name.startswith("node:") and not hurt
        if idle and not _lasted(draft, source, numbers.blind_idle_after):
            continue  # a node that nothing runs on is rebooted and rebuilt: that nobody sees it hurts nobody yet
        if not open_incident(draft.state, "blind", source.name):
            open_new(draft, policy, Incident(0, 0, "blind", source.name, draft.at, note=source.problem, hurt=hurt))


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
    return tuple(dict.fromkeys(k for n in nodes for k in hurt_runs(draft.state, n.removeprefix("node:"), draft.at)))


def close_blind(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    """Two good ticks in a row."""
    good_for = (policy.numbers.incidents.blind_clear_after - 1) * policy.numbers.time.step
    names = [incident.subject]
    if incident.subject == "nodes":
        names = [s.name for s in draft.state.all(SourceHealth) if s.name.startswith("node:")]
    sources = [s for s in draft.state.all(SourceHealth) if s.name in names]
    if all(not s.problem and draft.at - s.since >= good_for for s in sources):
        return "it can be read again"
    return ""
