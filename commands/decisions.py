"""Approve, reject, acknowledge: by click or typed, the same."""

from __future__ import annotations

from bot import events as ev
from bot import plans
from bot.errors import Denied, UsageError
from bot.facts import broken
from bot.guards import OVERRIDABLE, Case, ask_guards
from bot.model import Incident, Plan, Session
from bot.state import Draft
from commands import find
from commands.run import Asked, Reply, usage


def approve(asked: Asked) -> Reply:
    plan = _decidable(asked, "approve")
    if plan.mode not in ("approve", "veto"):
        raise Denied(f"plan {plan.id} is in mode {plan.mode}: {plan.why or 'nothing can be approved'}")
    _check_facts(asked, plan)
    _check_guards(asked, plan)
    draft = Draft(asked.services.state, asked.services.now, asked.services.policy.hash)
    plans.approve(draft, plan, "approved", asked.request.user, asked.services.policy)
    steps = ", then ".join(plans.spoken(a) for a in plan.actions)
    return Reply(f"Approved plan {plan.id}: {steps}.", draft.events)


def _decidable(asked: Asked, verb: str) -> Plan:
    if not asked.words:
        raise usage(verb)
    plan = find.plan(asked.services.state, asked.words[0])
    if plan.status == "approved":
        raise UsageError(f"plan {plan.id} was already approved by {plan.by}; it is being carried out")
    if plan.status != "proposed":
        why = f": {plan.why}" if plan.why else ""
        raise UsageError(f"plan {plan.id} is {plan.status}{why}. Nothing was done.")
    return plan


def _check_facts(asked: Asked, plan: Plan) -> None:
    cluster = asked.services.seen.cluster
    if cluster is None:
        raise Denied("the scheduler cannot be read right now, so the plan's facts cannot be checked", "try again")
    if plan.expires is not None and asked.services.now >= plan.expires:
        raise UsageError(f"plan {plan.id} has expired; nothing was done")
    why = broken(plan, asked.services.state, cluster)
    if why:
        raise Denied(f"the facts have changed since plan {plan.id} was proposed: {why}", "look at the new plan")


def _check_guards(asked: Asked, plan: Plan) -> None:
    s = asked.services
    session, incident = s.state.get(Session, plan.session), s.state.get(Incident, plan.tag)
    objections = ask_guards(Case(s.state, s.seen.cluster, s.policy, s.now, plan.actions, incident, session))
    final = [(name, verdict) for name, verdict in objections if name not in OVERRIDABLE]
    if final:
        raise Denied(f"{final[0][0]}: {final[0][1].why}", "nothing was done")


def reject(asked: Asked) -> Reply:
    plan = _decidable(asked, "reject")
    why = " ".join(asked.words[1:]) or "no reason given"
    event = ev.PlanDecided(asked.services.now, plan.id, "rejected", asked.request.user, why)
    return Reply(f"Rejected plan {plan.id}: nothing will be done for these facts.", [event])


def acknowledge(asked: Asked) -> Reply:
    if not asked.words:
        raise usage("ack")
    incident = find.incident(asked.services.state, asked.words[0])
    if incident.closed is not None:
        raise UsageError(f"incident {incident.id} is closed: {incident.closed_why}")
    if incident.acked_by:
        raise UsageError(f"incident {incident.id} was acknowledged by {incident.acked_by}")
    event = ev.IncidentAcknowledged(asked.services.now, incident.id, incident.episode, asked.request.user)
    return Reply(f"Incident {incident.id}: seen. No more reminders; nothing else changes.", [event])
