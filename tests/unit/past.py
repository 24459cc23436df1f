"""A small cluster's past in memory, for replays: values by hand or by chance, a look a minute."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from bot import policy as policies
from bot.backtest_files import Run
from bot.errors import Unreachable
from bot.plans import STEPS
from bot.policy import Match, Policy, SessionRule, Signal
from bot.ports import Matrix
from playbooks import load as load_playbooks

MINUTE, HOUR, DAY = 60, 3600, 86_400
STEP = MINUTE
T0 = 1_800_000_000 // DAY * DAY
NODES = tuple(f"n{i}" for i in range(1, 7))
WELL = {"gpu_missing": 8.0, "gpus_gone": 8.0, "uptime": 1e6, "gpu_temperature": 60.0, "interrupts": 9000.0}
SIGNALS = (*WELL, "xid_reboot", "correctable_remap_growth", "link_down", "storage_write", "exporter_down")


@cache
def policy(*signals: str) -> Policy:
    """The shipped one in looks of a minute, which withholds everything, with these signals of the catalogue alone."""
    built = policies.build(
        policy={"time": {"step": "60s"}},
        playbooks=load_playbooks(None, STEPS),
        sessions=[SessionRule(match=Match(name="*"))],
    )
    return built.model_copy(update={"signals": {name: built.signals[name] for name in signals or SIGNALS}})


@dataclass
class Past:
    """Implements ports.MetricSource. told: (signal, node) → (from, until, value) in minutes since T0, the later ones
    over the earlier; what is not told is well. broken: what begins at this moment or later cannot be read. asked: (signal, start,
    end, step)."""

    told: dict[tuple[str, str], list[tuple[int, int, float]]] = field(default_factory=dict)
    nodes: tuple[str, ...] = NODES
    broken: int | None = None
    asked: list[tuple[str, int, int, int]] = field(default_factory=list)
    _known: dict[tuple[str, str], tuple[int, NDArray[np.float64]]] = field(default_factory=dict)

    def matrix(self, signal: Signal, start: int, end: int, step: int, nodes: Collection[str]) -> Matrix:
        self.asked.append((signal.id, start, end, step))
        if self.broken is not None and start >= self.broken:
            raise Unreachable("prometheus", "connection refused")
        times = np.arange(start, end + 1, step, dtype=np.int64)
        columns = [self._column(signal.id, node, times) for node in self.nodes]
        values = np.stack(columns, axis=1) if columns else np.empty((len(times), 0))
        return Matrix(self.nodes, tuple(node in nodes for node in self.nodes), times, values)

    def _column(self, signal: str, node: str, times: NDArray[np.int64]) -> NDArray[np.float64]:
        minutes = (times - T0) // MINUTE
        if (signal, node) not in self._known:
            spans = self.told.get((signal, node), [(0, 0, 0.0)])
            first, last = min(begin for begin, _, _ in spans) - 1, max(end for _, end, _ in spans)
            line = np.full(last - first + 1, WELL.get(signal, 0.0))
            for begin, end, value in spans:
                line[begin - first : end - first] = value
            self._known[signal, node] = first, line
        first, line = self._known[signal, node]
        return np.asarray(line[np.clip(minutes - first, 0, len(line) - 1)])

    def tells(self, signal: str, node: str, value: float, begin: int, end: int) -> None:
        self._known.pop((signal, node), None)
        self.told.setdefault((signal, node), []).append((begin, end, value))

    def silences(self, node: str, begin: int, end: int, exporter: str = "") -> None:
        """Nothing that this exporter (empty = any) tells of the node arrives."""
        for name, signal in policy().signals.items():
            if exporter in ("", signal.exporter):
                self.tells(name, node, math.nan, begin, end)


VALUES: Mapping[str, tuple[float, ...]] = {
    "gpu_missing": (8, 8, 7, 0, math.nan),
    "gpu_temperature": (60, 62, 85, math.nan),
    "interrupts": (9000, 8800, 300, math.nan),
    "xid_reboot": (0, 0, 0, 79, math.nan),
    "correctable_remap_growth": (0, 12, 40, math.nan),
    "link_down": (0, 2, math.nan),
    "storage_write": (0, 0, 1e9),
    "uptime": (1e6, 1e6, 60),
}


def by_chance(seed: int, begin: int, end: int) -> Past:
    """Minutes since T0: every value of every node stays for some minutes and goes on to another."""
    dice = np.random.default_rng(seed)
    past = Past()
    for signal, values in VALUES.items():
        for node in NODES:
            at = begin
            while at < end:
                stays = int(dice.integers(1, 16))
                past.tells(signal, node, float(dice.choice(values)), at, at + stays)
                at += stays
    return past


def run(job: str = "1", nodes: tuple[str, ...] = NODES, begin: int = -600, end: int | None = None, **facts: str) -> Run:
    """begin, end: minutes since T0."""
    until = None if end is None else T0 + end * MINUTE
    return Run(facts.get("session", "train"), job, nodes, T0 + begin * MINUTE, until, facts.get("state", ""))
