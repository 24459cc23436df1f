"""What was asked about: a run, a node or an incident, with all that the state knows of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from zoneinfo import ZoneInfo

from bot.guards import OVERRIDABLE, Case, Stop, ask_guards
from bot.model import Hold, Incident, Plan, Recovery, Session, SourceHealth
from bot.policy import Policy
from bot.state import State

# What a person can do where a guard objects.
REMEDIES = {
    "pause": "an admin types `resume`",
    "scheduler unknown": "`xidbot doctor` says why the scheduler cannot be read",
    "controller of record": "recover it where its controller is, or name xidbot as controller in its session rule",
    "unrecoverable": "its owner submits it again",
    "exit code": "mend what the code tells, then requeue it by hand",
    "unknown host": "correct prometheus.node_labels or node_pattern; `xidbot doctor` names the hosts",
    "foreign hold": "whoever holds the node gives it back, or requeues the run",
    "provenance": "look at the node; `exclude NODE` if you agree",
    "chain budget": "mend the cause, then requeue the run by hand",
    "fit": "free nodes that the run can use",
    "held nodes": "release one of them with proof (`readmit NODE REASON`)",
    "writes": "wait until the window has passed",
    "fleet retries": "wait until the hour has passed",
}


@dataclass(frozen=True, slots=True)
class Topic:
    """What was asked about, with all that the state knows of it."""

    word: str
    state: State
    policy: Policy
    now: int
    tz: str
    session: Session | None = None
    incident: Incident | None = None
    node: str = ""

    def at(self, moment: int) -> str:
        return datetime.fromtimestamp(moment, ZoneInfo(self.tz)).strftime("%a %d %b %H:%M:%S")

    def unread(self, source: str) -> str:
        """Why a source cannot be read, and since when; empty = it can."""
        health = self.state.find(SourceHealth, source)
        if health is None or not health.problem:
            return ""
        return f"{source} cannot be read since {self.at(health.since)}: {health.problem}"

    @property
    def nodes(self) -> tuple[str, ...]:
        return (self.node,) if self.node else self.session.nodes if self.session else ()

    @property
    def hold(self) -> Hold | None:
        return next((h for h in self.state.our_holds() if h.node == self.node), None)

    @property
    def plan(self) -> Plan | None:
        """The newest plan of the incident, for the run if one is asked about."""
        plans = [p for p in self.state.all(Plan) if self.incident and p.tag == self.incident.tag]
        mine = [p for p in plans if self.session is None or p.session == self.session.key]
        return max(mine, key=lambda p: (p.proposed, p.id), default=None)

    @property
    def recovery(self) -> Recovery | None:
        if not self.session or not self.incident:
            return None
        return self.state.find(Recovery, f"{self.incident.tag}/{self.session.key}")

    def objections(self) -> list[tuple[str, bool, str]]:
        """(guard, final, why): what the state alone tells now, and what else was recorded with the plan."""
        plan, session = self.plan, self.session
        if plan is None or plan.status != "proposed":
            return []
        case = Case(self.state, None, self.policy, self.now, plan.actions, self.incident, session)
        found = [(name, v) for name, v in ask_guards(case) if name != "scheduler unknown"]
        now = [(name, isinstance(v, Stop), v.why) for name, v in found]
        unread = self.unread("scheduler")
        gone = [("scheduler unknown", True, unread)] if unread else []
        return gone + now + [o for o in _recorded(plan) if o[0] not in {name for name, *_ in now}]


def _recorded(plan: Plan) -> list[tuple[str, bool, str]]:
    """Guards that objected when it was proposed: `name: why; name: why`."""
    parts = [part.partition(": ") for part in plan.why.split("; ")]
    return [(name, name not in OVERRIDABLE, why) for name, _, why in parts if name in REMEDIES]


def topic_of(word: str, state: State, policy: Policy, now: int, tz: str) -> Topic:
    number = word.removeprefix("incident-")
    incident = _newest(i for i in state.all(Incident) if number in (str(i.id), i.tag))
    if incident:
        return Topic(word, state, policy, now, tz, _hurt(incident, state), incident, _node_of(incident))
    job = word.removeprefix("session-")
    runs = [s for s in state.all(Session) if word == s.name or job in s.jobs]
    session = max(runs, key=lambda s: (s.ended_at is None, s.first_submit), default=None)
    if session:
        mine = (i for i in state.all(Incident) if session.key in i.hurt or i.subject in (session.name, *session.nodes))
        return Topic(word, state, policy, now, tz, session, _newest(mine))
    incident = _newest(i for i in state.all(Incident) if i.subject == word)
    hurt = _hurt(incident, state) if incident else None
    on_it = hurt or next((s for s in state.live_sessions() if word in s.nodes), None)
    return Topic(word, state, policy, now, tz, on_it, incident, word)


def _newest(found: Iterable[Incident]) -> Incident | None:
    """An open one first, and one that tells more than that nothing is seen."""
    return max(found, key=lambda i: (i.closed is None, i.kind != "blind", i.id, i.episode), default=None)


def _hurt(incident: Incident, state: State) -> Session | None:
    """The hurt run that was thought about last."""
    plans = {p.session: p.proposed for p in state.all(Plan) if p.tag == incident.tag}
    runs = (state.find(Session, key) for key in incident.hurt)
    return max((s for s in runs if s), key=lambda s: plans.get(s.key, 0), default=None)


def _node_of(incident: Incident) -> str:
    return incident.subject if incident.kind in ("gpu_fault", "precursor") else ""
