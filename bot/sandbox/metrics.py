"""The simulation's Prometheus: every signal of the shipped catalogue, from what the cluster's record holds. PromQL is
not read: signals are told apart by their id, and one that is not known here is unknown everywhere."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bot.errors import Unreachable
from bot.model import Checkpoint
from bot.policy import Signal
from bot.ports import Matrix
from bot.sandbox.cluster import GPUS, SimulatedCluster
from bot.sandbox.record import EVERYWHERE, Moment, Record, State
from bot.signals.score import words
from bot.signals.xid import codes

Floats = NDArray[np.float64]
Times = NDArray[np.int64]

SHOWN = 300  # s for which a gauge's change is seen: the catalogue looks five minutes back


@dataclass(frozen=True, slots=True)
class Asked:
    """One signal over these times (T,) for these nodes (N,). Values are (T, N)."""

    signal: Signal
    record: Record
    times: Times
    nodes: Sequence[str]

    def level(self, value: float) -> Floats:
        return np.full((len(self.times), len(self.nodes)), float(value))

    def spells(self, what: State) -> Iterator[tuple[NDArray[np.bool_], int, float]]:
        """(at which times, column, value) of each spell."""
        columns = {node: column for column, node in enumerate(self.nodes)}
        for spell in self.record.spells:
            if spell.what == what and spell.node in columns:
                end = self.times[-1] + 1 if spell.end is None else spell.end
                yield (self.times >= spell.start) & (self.times < end), columns[spell.node], spell.value


# -- what each signal is -----------------------------------------------------------------------------------------------


def _xid(asked: Asked) -> Floats:
    """The code for as long as the gauge's change is seen, if it is one of the signal's; else 0."""
    values, wanted = asked.level(0), codes(asked.signal.xid_action)
    columns = {node: column for column, node in enumerate(asked.nodes)}
    for at, node, _, code in changes(asked.record):
        if code in wanted and node in columns:
            values[(asked.times >= at) & (asked.times <= at + SHOWN), columns[node]] = code
    return values


def changes(record: Record) -> Iterator[tuple[int, str, int, int]]:
    """(at, node, GPU, code) where a GPU's gauge really changed: it keeps the last Xid, so the same code again is not
    seen (dcgm-exporter 500)."""
    shown: dict[tuple[str, int], int] = {}
    for at, node, gpu, code in sorted((m.at, m.node, m.gpu, int(m.value)) for m in record.marks if m.what == "xid"):
        if shown.get((node, gpu)) != code:
            yield at, node, gpu, code
        shown[node, gpu] = code


def _growth(what: Moment, back: int, asked: Asked) -> Floats:
    """By how much a counter rose within `back` seconds."""
    values = asked.level(0)
    columns = {node: column for column, node in enumerate(asked.nodes)}
    for mark in asked.record.marks:
        if mark.what == what and mark.node in columns:
            values[(asked.times >= mark.at) & (asked.times < mark.at + back), columns[mark.node]] += mark.value
    return values


def _gpus(asked: Asked) -> Floats:
    values = asked.level(GPUS)
    for when, column, lost in asked.spells("gpus_lost"):
        values[when, column] -= lost
    return values


def _flag(what: State, asked: Asked) -> Floats:
    values = asked.level(0)
    for when, column, value in asked.spells(what):
        values[when, column] = value
    return values


def _exporter_down(asked: Asked) -> Floats:
    """`up` is Prometheus's own: also known of a machine that does not answer at all."""
    return np.maximum(_flag("exporter_down", asked), _flag("silent", asked))


MINUTE, DAY = 60, 86_400
SIGNALS: Mapping[str, Callable[[Asked], Floats]] = {
    "xid_reboot": _xid,
    "xid_reset": _xid,
    "xid_repair": _xid,
    "xid_test": _xid,
    "xid_reset_idle": _xid,
    "xid_restart_app": _xid,
    "gpu_missing": _gpus,
    "gpus_gone": _gpus,
    "exporter_down": _exporter_down,
    "row_remap_failure": partial(_flag, "remap_failed"),
    "dbe": partial(_growth, "double_bit", 10 * MINUTE),
    "uncorrectable_remap": partial(_growth, "uncorrectable", 10 * MINUTE),
    "correctable_remap_growth": partial(_growth, "correctable", DAY),
}
SCRAPED_OTHERWISE = frozenset({"exporter_down"})  # known without the node's exporter


# -- the ports ---------------------------------------------------------------------------------------------------------


class SimulatedMetrics:
    """Implements ports.MetricSource."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    @property
    def problem(self) -> str:
        """Why nothing can be read at present; empty = it can."""
        blind = self._cluster.record.during("blind", self._cluster.now)
        return "no answer within 10 s" if blind else ""

    def matrix(self, signal: Signal, start: int, end: int, step: int, nodes: Collection[str]) -> Matrix:
        """A row for each step from start to end, both included. Raises Unreachable while Prometheus is blind."""
        if self.problem:
            raise Unreachable("prometheus", self.problem)
        hosts = tuple(self._cluster.scheduler.nodes)
        times = np.arange(start, end + 1, step, dtype=np.int64)
        values = self._values(Asked(signal, self._cluster.record, times, hosts))
        return Matrix(hosts, tuple(host in nodes for host in hosts), times, values)

    def _values(self, asked: Asked) -> Floats:
        shape = SIGNALS.get(asked.signal.id)
        if shape is None:
            return asked.level(np.nan)
        values = shape(asked)
        if asked.signal.id not in SCRAPED_OTHERWISE:
            values[_exporter_down(asked) > 0] = np.nan
        return values

    def details(self, signal: Signal, at: int, nodes: Collection[str]) -> dict[str, str]:
        """node → 'Xid 79 (…) on GPU 3'."""
        wanted = codes(signal.xid_action) if signal.xid_action else ()
        return {
            node: f"{words(signal, code, np.nan)} on GPU {gpu}"
            for when, node, gpu, code in changes(self._cluster.record)
            if node in nodes and code in wanted and when <= at <= when + SHOWN
        }


class SimulatedCheckpoints:
    """Implements ports.CheckpointSource: the trainer's gauges, which Prometheus scrapes too."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    def checkpoints(self, at: int, jobs: Mapping[str, Sequence[str]]) -> Sequence[Checkpoint]:
        if self._cluster.record.during("blind", self._cluster.now, EVERYWHERE):
            raise Unreachable("prometheus", "no answer within 10 s")
        newest = {save.job: save for save in self._cluster.run.saves if (save.completed or 0) <= at}
        return [newest[job] for job in jobs if job in newest]
