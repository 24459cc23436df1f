"""Many nodes with the same trouble at once: one cause, told once. Pure.

First suspected are telemetry, a rollout and shared parts (a switch, a rack's power, cooling): that many machines do not
fail by themselves within minutes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from bot.model import NodeScore, Reading
from bot.naming import some
from bot.policy import Policy

STRIKING = 0.30  # evidence that counts here, whether or not it would open an incident by itself


@dataclass(frozen=True, slots=True)
class Storm:
    """category: of the evidence that its nodes have in common. reasons: the strongest of some of them."""

    category: str
    nodes: frozenset[str]
    reasons: tuple[Reading, ...]

    @property
    def note(self) -> str:
        signals = ", ".join(sorted({reason.signal for reason in self.reasons}))
        who = f"{len(self.nodes)} nodes at once, {some(sorted(self.nodes))} ({signals})"
        return f"{who}: suspect telemetry, a rollout or a shared part"


def storms(scores: Mapping[str, NodeScore], policy: Policy, blowing: Collection[str] = ()) -> dict[str, Storm]:
    """Category → storm, where enough nodes began to show it within `storm_within` of each other. blowing: categories
    whose storm is already told; what has stood for long is still of it, and begins no other."""
    numbers = policy.numbers.incidents
    found = {}
    for category, readings in _by_category(scores.values(), policy).items():
        fresh = readings if category in blowing else [r for r in readings if r.begun]
        struck = _together(fresh, numbers.storm_within)
        nodes = frozenset(reading.node for reading in struck)
        compared = all(policy.signals[reading.signal].evidence.kind == "peers" for reading in struck)
        enough = numbers.storm_peers if compared else max(numbers.storm_nodes, numbers.storm_share * len(scores))
        if len(nodes) >= enough:
            found[category] = Storm(category, nodes, tuple(sorted(struck, key=lambda r: (-r.evidence, r.node))[:8]))
    return found


def _by_category(scores: Iterable[NodeScore], policy: Policy) -> Mapping[str, list[Reading]]:
    found: dict[str, list[Reading]] = defaultdict(list)
    for score in scores:
        for reading in score.reasons:
            signal = policy.signals.get(reading.signal)
            if signal and reading.evidence >= STRIKING and reading.since is not None:
                found[signal.category].append(reading)
    return found


def _together(readings: Iterable[Reading], within: int) -> list[Reading]:
    """Those that began within this time of each other, where that are the most nodes; of equal ones the latest."""
    ordered = sorted(readings, key=lambda reading: (reading.since or 0, reading.node))
    best: list[Reading] = []
    most, first = 0, 0
    nodes: Counter[str] = Counter()
    for last, reading in enumerate(ordered):
        nodes[reading.node] += 1
        while (reading.since or 0) - (ordered[first].since or 0) > within:
            nodes -= Counter([ordered[first].node])
            first += 1
        if len(nodes) >= most:
            most, best = len(nodes), ordered[first : last + 1]
    return best
