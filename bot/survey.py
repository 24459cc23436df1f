"""What each signal says now on every node, and why it says nothing where it does not."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from bot.errors import SourceError
from bot.model import Observation, Reading, SourceState
from bot.observe import LiveObserver, Made
from bot.policy import Policy, Signal
from bot.signals.needs import TELLERS, asking_for, metrics, missing
from bot.signals.unknown import Blanks, Reasons
from bot.window import Heard

DOWN = "exporter down"  # the beginning of the one reason that explains why a metric is not exported


class Asked(Protocol):
    """PrometheusSource."""

    def instant(self, query: str, at: int | None = None) -> list[tuple[Mapping[str, str], Any]]: ...


@dataclass(frozen=True, slots=True)
class Why:
    """A reason and the nodes that it holds for. state: of the readings."""

    state: Literal["unknown", "good"]
    why: str
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """One signal now. good, unknown: counts of nodes."""

    signal: Signal
    good: int = 0
    bad: tuple[Reading, ...] = ()
    unknown: int = 0
    why: tuple[Why, ...] = ()


@dataclass(frozen=True, slots=True)
class Survey:
    """strangers: hosts of the metrics that are no node. scheduled: a scheduler tells who runs where."""

    url: str
    policy: str
    at: int
    nodes: tuple[str, ...]
    signals: tuple[Told, ...]
    strangers: tuple[str, ...] = ()
    problems: tuple[SourceState, ...] = ()
    scheduled: bool = True

    @property
    def exit_code(self) -> int:
        return 3 if self.problems else 1 if any(told.bad for told in self.signals) else 0


def survey(observer: LiveObserver, source: Asked, url: str, *, scheduled: bool = True) -> Survey:
    """One look of the bot's, with the reasons for what it could not see."""
    seen = observer.observe(int(time.time()))
    made = observer.made or Made({}, {}, Heard())
    look = _Look(seen, made, observer.policy, scheduled)
    look.unserved = _unserved(source, look)
    return Survey(
        url=url,
        policy=observer.policy.hash,
        at=seen.at,
        nodes=look.nodes,
        signals=tuple(map(look.told, observer.policy.signals.values())),
        strangers=look.strangers,
        problems=tuple(s for s in seen.sources if s.problem),
        scheduled=scheduled,
    )


def unserved(source: Asked, signals: Mapping[str, Signal]) -> dict[str, str]:
    """Why these, whose queries find nothing, do: signal → reason. Raises SourceError."""
    needed = {name: metrics(signal.query) for name, signal in signals.items()}
    names = sorted({metric for wanted in needed.values() for metric in wanted})
    found = source.instant(asking_for(names)) if names else []
    there = {labels.get("__name__", "") for labels, _ in found}
    absent = {name: missing(wanted, there) for name, wanted in needed.items()}
    return {name: f"no {', no '.join(gone)}" if gone else "its query finds nothing" for name, gone in absent.items()}


def _unserved(source: Asked, look: _Look) -> Mapping[str, str]:
    silent = {signal.id: signal for signal in look.policy.signals.values() if look.is_silent(signal)}
    if not silent or look.made.scores is None:
        return {}
    try:
        return unserved(source, silent)
    except SourceError as error:
        return dict.fromkeys(
            silent, f"its query finds nothing, and whether its metrics are there cannot be read: {error}"
        )


@dataclass
class _Look:
    """unserved: signal → why its query finds nothing anywhere."""

    seen: Observation
    made: Made
    policy: Policy
    scheduled: bool
    unserved: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        if self.made.scores is None:
            return tuple(self.seen.cluster.nodes if self.seen.cluster else ())
        window = self.made.scores.window
        return tuple(node for node, known in zip(window.nodes, window.known, strict=True) if known)

    @cached_property
    def strangers(self) -> tuple[str, ...]:
        return tuple(sorted(set(self.made.scores.window.nodes) - set(self.nodes))) if self.made.scores else ()

    @cached_property
    def _bad(self) -> Mapping[str, list[Reading]]:
        found: dict[str, list[Reading]] = defaultdict(list)
        for reading in self.seen.readings:
            if reading.state == "bad" and reading.known:
                found[reading.signal].append(reading)
        return found

    @cached_property
    def _reasons(self) -> Reasons | None:
        hosts = {name: matrix.hosts for name, matrix in self.made.matrices.items()}
        return Reasons(self.made.scores, self.policy, hosts) if self.made.scores else None

    def is_silent(self, signal: Signal) -> bool:
        """It was asked, and nothing answered."""
        matrix = self.made.matrices.get(signal.id)
        return matrix is not None and bool(np.isnan(matrix.values).all())

    def told(self, signal: Signal) -> Told:
        blanks = self._reasons.of(signal) if self._reasons else Blanks(dict.fromkeys(self.nodes, ""))
        general = self._general(signal)
        unknown = {node: why for node, why in blanks.unknown.items() if node in self.nodes}
        if signal.id == "health_check" and not self.scheduled:
            unknown = dict.fromkeys(self.nodes, "")
        bad = tuple(self._bad.get(signal.id, ()))
        lonely = tuple(node for node in blanks.lonely if node in self.nodes)
        whys = [Why("unknown", why, nodes) for why, nodes in _grouped(unknown, general)]
        whys += [Why("good", "no peers to be compared with", lonely)] if lonely else []
        return Told(signal, len(self.nodes) - len(bad) - len(unknown), bad, len(unknown), tuple(whys))

    def _general(self, signal: Signal) -> str:
        """What holds for all nodes; empty where it depends on the node."""
        problems = {source.name: source.problem for source in self.seen.sources if source.problem}
        if signal.query:
            unread = self.made.unread.get(signal.id) or ("" if self.made.scores else problems.get("prometheus", ""))
            return f"cannot be read: {unread}" if unread else self._not_exported(signal)
        teller, key = TELLERS.get(signal.id, ("", ""))
        if teller == "scheduler":
            return "" if self.scheduled and self.seen.cluster else "no scheduler is asked"
        if not teller:
            return "nobody tells it: it has no query"
        if signal.id in self.made.heard.signals:
            return ""
        problem = problems.get(teller.lower(), "")
        return f"the {teller} cannot be read: {problem}" if problem else f"not configured: {teller} ({key})"

    def _not_exported(self, signal: Signal) -> str:
        why = self.unserved.get(signal.id, "")
        return f"metric not exported: {why}" if why.startswith("no ") else why


def _grouped(unknown: Mapping[str, str], general: str) -> Iterable[tuple[str, tuple[str, ...]]]:
    """Reasons with their nodes, the most frequent first. An exporter that is down explains what it does not export."""
    found: dict[str, list[str]] = defaultdict(list)
    for node, why in unknown.items():
        found[why if why.startswith(DOWN) or not general else general].append(node)
    return ((why, tuple(sorted(nodes))) for why, nodes in sorted(found.items(), key=lambda f: (-len(f[1]), f[0])))
