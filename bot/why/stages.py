"""The stages, from seen to next, and how far each has come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from bot.model import Action, Incident, Plan, Reading, Recovery, Session
from bot.plans import match, spoken
from bot.policy import Policy, SessionRule
from bot.sessions import session_state
from bot.state import State
from bot.why.topic import REMEDIES, Topic, topic_of

Verdict = Literal["yes", "no", "stop", ""]
NOTHING = "nothing to do"


@dataclass(frozen=True, slots=True)
class Stage:
    """verdict: yes = passed, no = not reached, stop = held up here; empty for what comes next."""

    name: str
    verdict: Verdict
    text: str


def explain(word: str, state: State, policy: Policy, now: int, tz: str = "UTC") -> tuple[Stage, ...]:
    """session-123 or a job id, a node, an incident's number: seen, signal, decision, guard, next."""
    topic = topic_of(word, state, policy, now, tz)
    return (_seen(topic), _signal(topic), _decision(topic), _guard(topic), Stage("next", "", _next(topic)))


def told(stages: Iterable[Stage]) -> str:
    return "\n".join(f"{stage.name:<10} {stage.verdict:<5} {stage.text}" for stage in stages)


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
