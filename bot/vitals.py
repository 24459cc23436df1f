"""How the bot itself is: for a process manager's probe and for Prometheus. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import get_args

from bot import __version__
from bot.model import Kind, Observation, SourceHealth
from bot.policy import Policy
from bot.state import State


@dataclass(frozen=True, slots=True)
class Vitals:
    """Counted since the start. good_at: the last tick that saw both the scheduler and the metrics; None = none yet.

    blind: what the last tick could not see; empty = it was good.
    """

    started: int
    ticks: int = 0
    blind_ticks: int = 0
    good_at: int | None = None
    blind: str = "no tick yet"

    def after(self, seen: Observation, now: int) -> Vitals:
        """The next ones, when a tick has come to its end."""
        blind = blindness(seen)
        counted = replace(self, ticks=self.ticks + 1, blind_ticks=self.blind_ticks + bool(blind), blind=blind)
        return counted if blind else replace(counted, good_at=now)


def blindness(seen: Observation) -> str:
    """The sources of which nothing could be read; a part that is missing blinds nobody."""
    missing = {"scheduler": seen.cluster is None, "prometheus": seen.scores is None}
    return ", ".join(name for name, gone in missing.items() if gone)


def sick(vitals: Vitals, now: int, policy: Policy) -> str:
    """Why the last good tick is too old; empty when it is fresh. It may be as old as a source may be unreadable before
    that is an incident, and a step more for the tick under way."""
    patience = (policy.numbers.incidents.blind_after + 1) * policy.numbers.time.step
    if vitals.good_at is not None and now - vitals.good_at <= patience:
        return ""
    since = f"for {now - (vitals.good_at or vitals.started)} s" if vitals.ticks else "since the start"
    return f"no good tick {since}" + (f": cannot see {vitals.blind}" if vitals.blind and vitals.ticks else "")


# -- for Prometheus ----------------------------------------------------------------------------------------------------


Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """One metric."""

    name: str
    kind: str
    help: str
    samples: Mapping[Labels, float]


def exposition(
    state: State, vitals: Vitals, now: int, policy: Policy, cluster: str, extra: Mapping[str, float] | None = None
) -> str:
    """The text format 0.0.4. extra: gauges of other parts, by name without `xidbot_`."""
    families = [*_own(vitals, now, policy, cluster), *_of_state(state)]
    families += [
        Family(f"xidbot_{name}", "gauge", name.replace("_", " "), {(): v}) for name, v in (extra or {}).items()
    ]
    return "".join(line + "\n" for family in families for line in _lines(family))


def _own(vitals: Vitals, now: int, policy: Policy, cluster: str) -> Iterator[Family]:
    info = (("version", __version__), ("cluster", cluster), ("mode", policy.write_mode), ("policy", policy.hash))
    yield Family("xidbot_info", "gauge", "What runs here", {info: 1})
    yield Family("xidbot_up", "gauge", "The last good tick is fresh", {(): not sick(vitals, now, policy)})
    yield Family("xidbot_start_timestamp_seconds", "gauge", "When it was started", {(): vitals.started})
    yield Family("xidbot_ticks_total", "counter", "Looks at the cluster that came to their end", {(): vitals.ticks})
    yield Family("xidbot_blind_ticks_total", "counter", "Of these, without a source", {(): vitals.blind_ticks})
    if vitals.good_at is not None:
        age = now - vitals.good_at
        yield Family("xidbot_last_good_tick_age_seconds", "gauge", "Age of the last tick that saw all", {(): age})


def _of_state(state: State) -> Iterator[Family]:
    incidents = state.open_incidents()
    kinds: dict[Labels, float] = {(("kind", kind),): sum(i.kind == kind for i in incidents) for kind in get_args(Kind)}
    yield Family("xidbot_incidents_open", "gauge", "Open incidents", kinds)
    waiting = sum(not i.acked_by for i in incidents)
    yield Family("xidbot_incidents_unacknowledged", "gauge", "Open incidents that nobody has seen", {(): waiting})
    sources = [s for s in state.all(SourceHealth) if not s.name.startswith("node:")]
    up: dict[Labels, float] = {(("source", s.name),): not s.problem for s in sorted(sources, key=lambda s: s.name)}
    yield Family("xidbot_source_up", "gauge", "The source can be read, since its first problem", up)
    silent = sum(bool(s.problem) for s in state.all(SourceHealth) if s.name.startswith("node:"))
    yield Family("xidbot_nodes_silent", "gauge", "Nodes without telemetry", {(): silent})
    yield Family("xidbot_sessions", "gauge", "Runs under care", {(): len(state.live_sessions())})
    yield Family("xidbot_recoveries_open", "gauge", "Recoveries under way", {(): len(state.open_recoveries())})
    yield Family("xidbot_holds", "gauge", "Nodes we hold", {(): len(state.our_holds())})
    yield Family("xidbot_paused", "gauge", "Writes are paused", {(): bool(state.meta.paused_by)})


def _lines(family: Family) -> Iterator[str]:
    if not family.samples:
        return
    yield f"# HELP {family.name} {_escaped(family.help)}"
    yield f"# TYPE {family.name} {family.kind}"
    for labels, value in family.samples.items():
        told = ",".join(f'{name}="{_quoted(text)}"' for name, text in labels)
        yield f"{family.name}{f'{{{told}}}' if told else ''} {float(value):.15g}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
