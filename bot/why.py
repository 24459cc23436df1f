"""How far xidbot has come with a run, a node or an incident, and what is missing: a line of evidence a stage. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Literal
from zoneinfo import ZoneInfo

from bot.guards import OVERRIDABLE, Case, Stop, ask_guards
from bot.model import Action, Hold, Incident, Plan, Reading, Recovery, Session, SourceHealth
from bot.plans import match, spoken
from bot.policy import Policy, SessionRule
from bot.sessions import session_state
from bot.state import State

Verdict = Literal["yes", "no", "stop", ""]
NOTHING = "nothing to do"

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
class Stage:
    """verdict: yes = passed, no = not reached, stop = held up here; empty for what comes next."""

    name: str
    verdict: Verdict
    text: str


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


def explain(word: str, state: State, policy: Policy, now: int, tz: str = "UTC") -> tuple[Stage, ...]:
    """session-123 or a job id, a node, an incident's number: seen, signal, decision, guard, next."""
    topic = _topic(word, state, policy, now, tz)
    return (_seen(topic), _signal(topic), _decision(topic), _guard(topic), Stage("next", "", _next(topic)))


def told(stages: Iterable[Stage]) -> str:
    return "\n".join(f"{stage.name:<10} {stage.verdict:<5} {stage.text}" for stage in stages)


# -- what the word means --------------------------------------------------------------------------


def _topic(word: str, state: State, policy: Policy, now: int, tz: str) -> Topic:
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


# -- seen -----------------------------------------------------------------------------------------


def _seen(t: Topic) -> Stage:
    known = _known(t)
    if not known:
        return Stage("seen", "no", _unknown(t))
    unread = t.unread("scheduler")
    return Stage("seen", "stop" if unread else "yes", f"{known}; but {unread}" if unread else known)


def _known(t: Topic) -> str:
    if t.node:
        return _known_node(t)
    if t.session:
        return _run(t.session)
    return f"incident {t.incident.id}, {t.incident.kind} of {t.incident.subject}" if t.incident else ""


def _run(session: Session) -> str:
    latest = session.latest
    state = f"ended: {session.ended}" if session.ended_at is not None else latest.state if latest else "no attempt"
    nodes = f"{len(session.nodes)} nodes" if session.nodes else "no node yet"
    job = session.jobs[-1] if session.jobs else "?"
    return f"job {job} of {session.user}, {nodes}, {state}; controller {session.controller}"


def _known_node(t: Topic) -> str:
    read = [r for r in t.state.all(Reading) if r.node == t.node]
    facts = [f"held by us since {t.at(t.hold.since)} ({t.hold.why})"] if t.hold else []
    facts += [f"{t.session.name} runs there"] if t.session and t.node in t.session.nodes else []
    facts += [f"incident {t.incident.id}, {t.incident.kind}"] if t.incident else []
    return f"node {t.node}: {', '.join(facts)}" if facts else f"node {t.node}" if read else ""


def _unknown(t: Topic) -> str:
    rules = "; ".join(_rule(rule) for rule in t.policy.sessions)
    return f"no run, node or incident {t.word[:60]} is known; runs under care: {rules or 'no session rule at all'}"


def _rule(rule: SessionRule) -> str:
    given = rule.match.model_dump(exclude_none=True)
    return " ".join(f"{name}={glob}" for name, glob in given.items()) or "a rule that matches nothing"


# -- signal ---------------------------------------------------------------------------------------


def _signal(t: Topic) -> Stage:
    if t.incident:
        return Stage("signal", "yes", _evidence(t, t.incident))
    unread = t.unread("prometheus")
    if unread:
        return Stage("signal", "no", unread)
    return Stage("signal", "no", _quiet(t) if t.nodes and _known(t) else "nothing to look at")


def _evidence(t: Topic, incident: Incident) -> str:
    first = next(iter(sorted(incident.reasons, key=lambda r: -r.evidence)), None)
    if first is None:
        said = incident.said[0] if incident.said else incident.kind
        return f"{incident.subject}: {said}, incident {incident.id}, {t.at(incident.opened)}"
    soft = f"soft, evidence {first.evidence:.2f}" if first.evidence else "its nodes together"
    strength = "hard" if first.hard else soft
    since = t.at(first.since or incident.opened)
    return f"{first.node} {first.text or first.signal} ({first.signal}, {strength}) {since}, incident {incident.id}"


def _quiet(t: Topic) -> str:
    read = [r for r in t.state.all(Reading) if r.node in t.nodes]
    bad = [r for r in read if r.state == "bad"]
    unknown = sorted({f"{r.signal} on {r.node}" for r in read if r.state == "unknown"})
    if bad:
        top = max(bad, key=lambda r: r.evidence)
        line = t.policy.numbers.score
        needs = f"a precursor needs {line.open_at:g} for {line.open_after // 60} min"
        return f"{top.signal} on {top.node} is bad, evidence {top.evidence:.2f}; {needs}"
    blind = f"; unknown: {', '.join(unknown[:3])}{' and more' if len(unknown) > 3 else ''}" if unknown else ""
    return f"nothing bad on {', '.join(t.nodes) if len(t.nodes) < 4 else f'its {len(t.nodes)} nodes'}{_pace(t)}{blind}"


def _pace(t: Topic) -> str:
    """What is known of how the run gets on, while no incident tells it."""
    pace = t.session.pace if t.session and not t.node else None
    if pace is None:
        return ""
    if pace.excused:
        return f"; it may stand still ({pace.excused})"
    if pace.idle_since is not None:
        patience = t.policy.numbers.progress.hung_after // 60
        return f"; nothing moves since {t.at(pace.idle_since)}, a hang from {patience} min"
    if pace.slow_since is not None:
        return f"; slower than usual since {t.at(pace.slow_since)}"
    return "; it moves" if pace.moved else "; it was not seen to move yet"


# -- decision -------------------------------------------------------------------------------------


def _decision(t: Topic) -> Stage:
    plan = t.plan
    if plan:
        return _planned(t, plan)
    typed = _typed(t)
    if typed:
        return Stage("decision", "yes", f"{spoken(typed)}, typed by {typed.by}")
    return Stage("decision", "no", _undecided(t, t.incident) if t.incident else "nothing to decide")


def _planned(t: Topic, plan: Plan) -> Stage:
    steps = f"{', '.join(map(spoken, plan.actions))}; mode {plan.mode}"
    only = plan.status == "proposed" and plan.mode in ("observe", "suggest") and not _final(t)
    return Stage("decision", "stop" if only else "yes", f"{steps}: nothing is done in it" if only else steps)


def _final(t: Topic) -> list[tuple[str, bool, str]]:
    return [o for o in t.objections() if o[1]]


def _typed(t: Topic) -> Action | None:
    """What a person asked for since the incident opened."""
    since = t.incident.opened if t.incident else 0
    about = {t.node} | ({t.session.key} if t.session else set())
    mine = [a for a in t.state.all(Action) if not a.plan and a.wanted >= since and {a.target, a.session} & about]
    return max((a for a in mine if a.origin == "command"), key=lambda a: a.wanted, default=None)


def _undecided(t: Topic, incident: Incident) -> str:
    recovery, session = t.recovery, t.session
    if match(incident, t.policy) is None:
        return f"no playbook for {incident.kind}: people are told, nothing is planned"
    if session is None or recovery is None:
        return "no run under care was hurt, so there is nothing to recover"
    if recovery.ended is not None:
        return f"the recovery ended before a plan was needed: {recovery.outcome}, {recovery.why}"
    return f"no plan is needed while the run is {session_state(session, t.state, t.now, t.policy)}"


# -- guard ----------------------------------------------------------------------------------------


def _guard(t: Topic) -> Stage:
    plan = t.plan
    if plan is None:
        typed = _typed(t)
        return _carried([typed]) if typed else Stage("guard", "no", "nothing to ask about")
    objections = t.objections()
    if objections:
        return Stage("guard", "stop", "; ".join(f"{name}: {why}" for name, _, why in objections))
    if plan.status == "proposed":
        return Stage("guard", "yes", "none objects")
    if plan.status in ("approved", "done", "failed"):
        return _carried([a for a in (t.state.find(Action, a.key) for a in plan.actions) if a])
    return Stage("guard", "stop", f"plan {plan.id} {plan.status}: {plan.why}")


def _carried(actions: Iterable[Action]) -> Stage:
    """What came of the actions; one that ended otherwise than wanted is what stopped the rest."""
    wrong = next((a for a in actions if a.end not in (None, "done", "already")), None)
    if wrong:
        return Stage("guard", "stop", f"{spoken(wrong)}: {wrong.end}, {wrong.detail}")
    return Stage("guard", "yes", ", ".join(f"{spoken(a)}: {a.end or 'under way'}" for a in actions))


# -- next -----------------------------------------------------------------------------------------


def _next(t: Topic) -> str:
    if not _known(t):
        return "add a rule under `sessions:` that matches the job, or name a node or an incident"
    plan = t.plan
    if plan and plan.status == "proposed":
        return _waiting(t, plan)
    if t.recovery and t.recovery.ended is None:
        return _followed(t, t.recovery, plan)
    if t.recovery:
        return f"{NOTHING}: {t.recovery.outcome}, {t.recovery.why}"
    if t.unread("scheduler") or t.unread("prometheus"):
        return "`xidbot doctor` says what is wrong"
    return f"`readmit {t.node} REASON` gives it back, with proof" if t.hold else NOTHING


def _waiting(t: Topic, plan: Plan) -> str:
    objections = t.objections()
    remedies = "; ".join(REMEDIES[name] for name, *_ in objections)
    if plan.mode in ("observe", "suggest") or _final(t):
        return remedies or _ceiling(t)
    until = f" before {t.at(plan.expires)}" if plan.expires is not None else ""
    if plan.due is not None:
        return f"it acts at {t.at(plan.due)}; `reject {plan.id}` stops it"
    return f"{remedies}, or `approve {plan.id}`{until}" if remedies else f"`approve {plan.id}`{until}"


def _ceiling(t: Topic) -> str:
    if t.policy.write_mode in ("observe", "suggest"):
        return f"raise site.write_mode to approve (it is {t.policy.write_mode}), or do it by hand"
    return "raise the step's mode in the playbook or in the session rule, or do it by hand"


def _followed(t: Topic, recovery: Recovery, plan: Plan | None) -> str:
    if recovery.regained is not None:
        return f"regained {t.at(recovery.regained)}; waits until it has survived"
    if recovery.chain and recovery.chain[-1].ended is None:
        step = f" beyond step {recovery.last_step:,}" if recovery.last_step is not None else ""
        return f"waits for a checkpoint{step}"
    if plan and plan.status == "approved":
        return "it is being carried out"
    name = t.session.name if t.session else "SESSION"
    return f"`retry {name}` requeues it by hand" if plan else "waits for what comes next"
