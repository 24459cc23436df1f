"""A storm as an incident, and the nodes whose own trouble it is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from bot.incidents.episodes import bad_readings, hurt_runs, open_incident, open_new, quiet_for, quieten
from bot.model import Incident, NodeScore, Observation
from bot.policy import Policy
from bot.state import Draft
from bot.storms import storms


def see_storms(draft: Draft, seen: Observation, policy: Policy) -> dict[str, frozenset[str]]:
    """Category → nodes of the storms that blow. A storm is one incident; its nodes open none for the same category."""
    struck = {}
    blowing = {incident.subject for incident in draft.state.open_incidents() if incident.kind == "storm"}
    for category, storm in storms(seen.scores or {}, policy, blowing).items():
        incident = open_incident(draft.state, "storm", category)
        struck[category] = storm.nodes
        if incident is None:
            runs = (hurt_runs(draft.state, node, draft.at) for node in sorted(storm.nodes))
            hurt = tuple(dict.fromkeys(chain.from_iterable(runs)))
            blows = Incident(0, 0, "storm", category, draft.at, reasons=storm.reasons, note=storm.note, hurt=hurt)
            open_new(draft, policy, blows)
    for incident in draft.state.open_incidents():
        if incident.kind == "storm" and seen.scores is not None:
            late = _late(incident, seen.scores.values(), policy)
            alone = len(late) < policy.numbers.incidents.storm_peers  # what is left on one node is soon that node's own
            quieten(draft, incident, quiet=incident.subject not in struck and alone)
            struck[incident.subject] = struck.get(incident.subject, frozenset()) | late
    return struck


def _late(storm: Incident, scores: Iterable[NodeScore], policy: Policy) -> frozenset[str]:
    """Nodes that show just what the storm's nodes showed, though they came to it later, with a new run perhaps."""
    signals = {reason.signal for reason in storm.reasons}
    mine = {name for name, signal in policy.signals.items() if signal.category == storm.subject}
    shown = ((score.node, {r.signal for r in bad_readings(score)} & mine) for score in scores)
    return frozenset(node for node, bad in shown if bad and bad <= signals)


def is_of_the_storm(score: NodeScore, struck: Mapping[str, frozenset[str]], policy: Policy) -> bool:
    """What stands against the node is what stands against many: without the storm's categories it opens nothing."""
    mine = {category for category, nodes in struck.items() if score.node in nodes}
    signals = policy.signals
    own = [r for r in bad_readings(score) if r.signal not in signals or signals[r.signal].category not in mine]
    return bool(mine) and max((r.evidence for r in own), default=0.0) < policy.numbers.score.open_at


def close_storm(draft: Draft, incident: Incident, seen: Observation, policy: Policy) -> str:
    calm = quiet_for(incident, draft.at) >= policy.numbers.incidents.clean_after
    return "it has blown over" if calm else ""
