"""Why a reading is unknown: the reasons that lie in the window itself, node by node. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bot.policy import Phase, Policy, Signal
from bot.signals.peers import Groups
from bot.signals.phases import phases
from bot.signals.score import Scores

Flags = NDArray[np.bool_]
EXPORTERS = {"dcgm": "GPU exporter", "node": "node exporter", "": "exporter"}
PHASES: Mapping[Phase, str] = {
    "idle": "muted: no run on the node",
    "start": "muted: the run is starting",
    "save": "muted: the run saves",
    "load": "muted: the run loads",
    "boot": "muted: the node has just booted",
}


@dataclass(frozen=True, slots=True)
class Blanks:
    """The newest row of one signal. unknown: node → why. lonely: nodes that are good for want of peers to be compared
    with."""

    unknown: Mapping[str, str]
    lonely: tuple[str, ...] = ()


class Reasons:
    """Of the newest row of some scores. hosts: signal → those of which its query answered anything at all."""

    def __init__(self, scores: Scores, policy: Policy, hosts: Mapping[str, Collection[str]]) -> None:
        self._scores, self._hosts = scores, hosts
        window = scores.window
        self._row = {signal.id: row for row, signal in enumerate(window.signals)}
        context = {name: window.values[row] for name, row in self._row.items()}
        groups = window.groups or Groups.none(*window.values.shape[1:])
        found = phases(context, groups, window.step, policy.numbers.phases)
        self._phases = {phase: now[-1] for phase, now in found.items()}
        self._newest = window.values[:, -1]

    def of(self, signal: Signal) -> Blanks:
        row, nodes = self._row[signal.id], self._scores.window.nodes
        unknown = np.isnan(self._scores.evidence[row, -1])
        if signal.evidence.kind == "context":
            unknown = np.isnan(self._newest[row])
        why = {nodes[n]: self._why(signal, int(n)) for n in np.flatnonzero(unknown)}
        if signal.evidence.kind != "peers":
            return Blanks(why)
        usual = self._scores.usual.get(row)
        alone = ~unknown & (np.isnan(usual[-1]) if usual is not None else True)
        return Blanks(why, tuple(nodes[n] for n in np.flatnonzero(alone)))

    def _why(self, signal: Signal, n: int) -> str:
        """The first that holds."""
        node, value = self._scores.window.nodes[n], self._newest[self._row[signal.id], n]
        muted = next((PHASES[phase] for phase in signal.not_during if self._phases[phase][n]), "")
        if np.isnan(value):
            return self._silent(signal, node, n) or muted or f"its {EXPORTERS[signal.exporter]} does not show it"
        return muted or self._unjudged(signal, n, float(value))

    def _silent(self, signal: Signal, node: str, n: int) -> str:
        """No value has arrived."""
        if signal.exporter == "dcgm" and self._scores.window.expected[n] == 0:
            return "the node has no GPUs"
        if signal.exporter == "dcgm" and self._at_least_one("exporter_down", n):
            return "exporter down: it does not answer"
        mine = [row for name, row in self._row.items() if self._scores.window.signals[row].exporter == signal.exporter]
        if signal.exporter and np.isnan(self._newest[mine, n]).all():
            return f"nothing arrives from its {EXPORTERS[signal.exporter]}"
        if node in self._hosts.get(signal.id, ()):
            return "only blanks or impossible values arrive, or none right now"
        return ""

    def _unjudged(self, signal: Signal, n: int, value: float) -> str:
        """A value has arrived and says nothing."""
        if signal.evidence.kind in ("missing", "gone") and np.isnan(self._scores.window.expected[n]):
            return "nobody knows how many GPUs the node should have"
        if signal.evidence.kind == "missing" and value == 0:
            return "it shows no GPU at all, which is another signal (gpus_gone)"
        if signal.evidence.kind == "peers" and self._at_least_one(f"{signal.exporter}_frozen", n):
            return "exporter frozen: it shows the same values all the time"
        if signal.evidence.kind == "peers" and signal.evidence.own_past:
            return "how the node stood before in this run is not known yet"
        return "too few samples within its persistence"

    def _at_least_one(self, signal: str, n: int) -> bool:
        return signal in self._row and bool(self._newest[self._row[signal], n] >= 1)
