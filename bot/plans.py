"""Playbooks applied: which plan an open recovery needs now, in which mode, and what becomes of proposed plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bot import events as ev
from bot.facts import broken, facts, same_question
from bot.fit import fit
from bot.guards import Ask, Case, Stop, ask_guards, lowered
from bot.model import (
    MODES,
    Action,
    Cluster,
    Facts,
    Incident,
    Mode,
    Observation,
    Plan,
    Recovery,
    Session,
    SessionState,
)
from bot.policy import Playbook, Policy, SessionRule
from bot.recovery import budget_spent, gap_before_next
from bot.sessions import rule_for, session_state
from bot.state import Draft


@dataclass(frozen=True, slots=True)
class Setting:
    """All that planning a step may look at."""

    incident: Incident
    recovery: Recovery
    session: Session
    cluster: Cluster
    at: int
    policy: Policy
    plan_id: str


# -- steps ----------------------------------------------------------------------------------------


def _hold_node(s: Setting) -> list[Action]:
    """Hold the incident's node unless somebody, we included, already does."""
    node = s.cluster.nodes.get(s.incident.subject)
    if s.incident.kind != "gpu_fault" or (node and node.holders):
        return []
    review = s.at + s.policy.numbers.approvals.review_after
    return [_action(s, "hold_node", s.incident.subject, why=_short_why(s.incident), review=review)]


def _requeue(s: Setting) -> list[Action]:
    attempt = s.session.latest
    if attempt is None:
        return []
    gap = gap_before_next(s.recovery, s.policy.numbers.recovery)
    not_before = (attempt.end + gap) if attempt.end is not None and gap else s.at
    return [_action(s, "requeue", attempt.job, why=_short_why(s.incident), not_before=not_before)]


def _watch(s: Setting) -> list[Action]:
    """Watching changes nothing: recoveries do it (running, regained, survived)."""
    return []


SPOKEN = {"hold_node": "drain {}", "requeue": "requeue job {}", "release_node": "set {} to RESUME"}


def spoken(action: Action) -> str:
    """The action as people say it."""
    return SPOKEN.get(action.step, action.step + " {}").format(action.target)


StepPlan = Callable[[Setting], list[Action]]
STEPS: dict[str, StepPlan] = {"hold_node": _hold_node, "requeue": _requeue, "watch": _watch}


def _action(s: Setting, step: str, target: str, *, why: str, review: int | None = None, not_before: int = 0) -> Action:
    attempt = s.session.latest
    return Action(
        cause=s.incident.tag,
        step=step,
        target=target,
        attempt=attempt.id if attempt else "",
        session=s.session.key,
        plan=s.plan_id,
        why=why,
        review=review,
        not_before=not_before,
    )


def _short_why(incident: Incident) -> str:
    hard = [r.text or r.signal for r in incident.reasons if r.hard]
    return (hard or incident.said or (incident.kind,))[0]


# -- proposing ------------------------------------------------------------------------------------


def propose(draft: Draft, seen: Observation, policy: Policy) -> None:
    """One plan at a time for each open recovery that waits for somebody to act."""
    if seen.cluster is None:
        return
    for recovery in draft.state.open_recoveries():
        session = draft.state.get(Session, recovery.session)
        incident = draft.state.get(Incident, recovery.tag)
        playbook = match(incident, policy)
        state = session_state(session, draft.state, seen.now, policy)
        if playbook and _needs_plan(draft, recovery, session, state, policy):
            _propose_one(
                draft, Setting(incident, recovery, session, seen.cluster, draft.at, policy, ""), playbook, state
            )


def match(incident: Incident, policy: Policy) -> Playbook | None:
    """The first playbook for the incident; a site's own stand before the shipped ones."""
    return next(
        (
            p
            for p in policy.playbooks
            if p.when.kind == incident.kind and (p.when.hard is None or p.when.hard == incident.hard)
        ),
        None,
    )


def _needs_plan(draft: Draft, recovery: Recovery, session: Session, state: SessionState, policy: Policy) -> bool:
    if state in ("starting", "ended") or session.latest is None:
        return False
    incident = draft.state.get(Incident, recovery.tag)
    if incident.kind == "session_hung" and incident.quiet_since is not None and session.latest.alive:
        return False  # it moves again: watched until that is certain
    if any(p.session == session.key and p.status in ("proposed", "approved") for p in draft.state.all(Plan)):
        return False
    if any(a.session == session.key and a.end is None for a in draft.state.all(Action)):
        return False
    last = recovery.chain[-1] if recovery.chain else None
    if last and last.ended is None:
        return False  # the rerun is under way: it gets its time
    return not (last and budget_spent(recovery, draft.at, policy.numbers.recovery))


def _propose_one(draft: Draft, setting: Setting, playbook: Playbook, state: SessionState) -> None:
    earlier = [p for p in draft.state.all(Plan) if p.tag == setting.incident.tag]
    setting = replace(setting, plan_id=f"{setting.incident.tag}.{len(earlier) + 1}")
    actions = tuple(a for step in playbook.steps if step.step in STEPS for a in STEPS[step.step](setting))
    nodes = [setting.incident.subject] if setting.incident.kind == "gpu_fault" else []
    bound = facts(setting.session, setting.incident, nodes, setting.cluster, [a.step for a in actions])
    if not actions or _asked_before(bound, earlier):
        return
    mode, objections = _mode_now(draft, setting, playbook, actions, state)
    _record(draft, setting, playbook, actions, bound, mode, objections)


def _mode_now(
    draft: Draft, s: Setting, playbook: Playbook, actions: Sequence[Action], state: SessionState
) -> tuple[Mode, tuple[tuple[str, Ask | Stop], ...]]:
    """The mode after guards and refusals, and what objected."""
    rule = _rule(s.session, s.cluster, s.policy)
    case = Case(draft.state, s.cluster, s.policy, draft.at, actions, s.incident, s.session, rule)
    objections = ask_guards(case)
    earlier = [p for p in draft.state.all(Plan) if p.tag == s.incident.tag]
    mode = lowered(mode_of(playbook, actions, state, rule, s.policy), objections)
    return _after_refusal(mode, earlier), objections


def _rule(session: Session, cluster: Cluster, policy: Policy) -> SessionRule | None:
    job = next((cluster.jobs[j] for j in reversed(session.jobs) if j in cluster.jobs), None)
    return rule_for(job, policy) if job else None


def _asked_before(bound: Facts, earlier: Sequence[Plan]) -> bool:
    """Answered, or left to expire, for the same facts: nobody is asked twice the same question."""
    return any(p.status in ("rejected", "expired", "done") and same_question(p.facts, bound) for p in earlier)


def _after_refusal(mode: Mode, earlier: Sequence[Plan]) -> Mode:
    """What the gate or the scheduler refused is not tried again by itself: a person is asked."""
    failed = [p for p in earlier if p.status == "failed"]
    return "approve" if failed and mode in ("veto", "auto") else mode


def mode_of(
    playbook: Playbook, actions: Sequence[Action], state: SessionState, rule: SessionRule | None, policy: Policy
) -> Mode:
    """The lowest of the steps' modes in this session state, under the site's ceiling and the rule's."""
    used = {a.step for a in actions}
    modes: list[Mode] = [getattr(step, state) for step in playbook.steps if step.step in used]
    ceilings: list[Mode] = [policy.write_mode, *([rule.mode] if rule and rule.mode else [])]
    return min([*modes, *ceilings], key=MODES.index)


def _record(
    draft: Draft,
    setting: Setting,
    playbook: Playbook,
    actions: tuple[Action, ...],
    bound: Facts,
    mode: Mode,
    objections: Sequence[tuple[str, Ask | Stop]],
) -> None:
    numbers = setting.policy.numbers.approvals
    expires = draft.at + numbers.expires if mode == "approve" else None
    due = {"veto": draft.at + numbers.veto, "auto": draft.at}.get(mode)
    why = "; ".join(f"{name}: {verdict.why}" for name, verdict in objections)
    plan = Plan(
        id=setting.plan_id,
        incident=setting.incident.id,
        episode=setting.incident.episode,
        playbook=playbook.id,
        session=setting.session.key,
        mode=mode,
        actions=actions,
        facts=bound,
        proposed=draft.at,
        fit=_fit_text(actions, setting.cluster),
        expires=expires,
        due=due,
        why=why,
    )
    draft.emit(ev.PlanProposed(draft.at, plan, draft.policy))
    withheld_by = objections[0][0] if objections else f"mode {mode}"
    for action in actions if mode in ("observe", "suggest") else ():
        draft.emit(
            ev.ActionWithheld(draft.at, plan.incident, plan.episode, action.step, action.target, withheld_by, why)
        )


def _fit_text(actions: Sequence[Action], cluster: Cluster) -> str:
    without = {a.target for a in actions if a.step == "hold_node"}
    jobs = [cluster.jobs.get(a.target) for a in actions if a.step == "requeue"]
    return "; ".join(fit(job, without, cluster).why for job in jobs if job)


# -- what becomes of plans ------------------------------------------------------------------------


def review(draft: Draft, seen: Observation, policy: Policy) -> None:
    """Void what no longer holds, expire what nobody answered, remind at half time, start what is due."""
    for plan in [p for p in draft.state.all(Plan) if p.status == "proposed"]:
        why = broken(plan, draft.state, seen.cluster) if seen.cluster else ""
        if why:
            draft.emit(ev.PlanDecided(draft.at, plan.id, "voided", "xidbot", why))
        elif plan.expires is not None and draft.at >= plan.expires:
            _expire(draft, plan)
        elif plan.mode != "auto" and _outgrown(draft, plan, seen, policy):
            draft.emit(ev.PlanDecided(draft.at, plan.id, "voided", "xidbot", "more can be done now than was asked"))
        elif plan.due is not None and draft.at >= plan.due and seen.cluster is not None:
            approve(draft, plan, "auto", "xidbot", policy)
        elif _wants_reminder(plan, draft):
            draft.emit(ev.PlanReminded(draft.at, plan.id, "on call"))
    for plan in [p for p in draft.state.all(Plan) if p.status == "approved"]:
        _finish(draft, plan)


def _expire(draft: Draft, plan: Plan) -> None:
    """An expired approval does nothing, and the next person is told."""
    draft.emit(ev.PlanDecided(draft.at, plan.id, "expired", "xidbot", "nobody answered in time; nothing was done"))
    draft.emit(ev.PlanReminded(draft.at, plan.id, "secondary"))


def _outgrown(draft: Draft, plan: Plan, seen: Observation, policy: Policy) -> bool:
    """More may be done now than the plan asks for: a guard has lifted, or the run has died since, for which the
    playbook does not ask. (The site's ceiling changes with a restart only.)"""
    recovery = draft.state.find(Recovery, f"{plan.tag}/{plan.session}")
    incident, session = draft.state.get(Incident, plan.tag), draft.state.get(Session, plan.session)
    playbook, state = match(incident, policy), session_state(session, draft.state, seen.now, policy)
    if recovery is None or playbook is None or seen.cluster is None or state in ("starting", "ended"):
        return False
    most = mode_of(playbook, plan.actions, state, _rule(session, seen.cluster, policy), policy)
    if MODES.index(most) <= MODES.index(plan.mode):
        return False  # guards only lower it
    setting = Setting(incident, recovery, session, seen.cluster, draft.at, policy, plan.id)
    mode = _mode_now(draft, setting, playbook, plan.actions, state)[0]
    return MODES.index(mode) > MODES.index(plan.mode)


def _wants_reminder(plan: Plan, draft: Draft) -> bool:
    """Half time, unless somebody said that they have seen it."""
    incident = draft.state.get(Incident, plan.tag)
    if plan.expires is None or plan.reminded or incident.acked_by:
        return False
    return draft.at >= plan.proposed + (plan.expires - plan.proposed) // 2


def approve(draft: Draft, plan: Plan, origin: str, by: str, policy: Policy) -> None:
    """Turns the plan's actions into wanted ones; the actor carries them out in order."""
    expires = draft.at + policy.numbers.approvals.action_expires
    draft.emit(ev.PlanDecided(draft.at, plan.id, "approved", by))
    for action in plan.actions:
        wanted = replace(
            action,
            origin="auto" if origin == "auto" else "approved",
            by=by,
            wanted=draft.at,
            expires=max(expires, action.not_before + policy.numbers.approvals.action_expires),
        )
        draft.emit(ev.ActionWanted(draft.at, wanted, draft.policy))


def _finish(draft: Draft, plan: Plan) -> None:
    actions = [draft.state.find(Action, a.key) for a in plan.actions]
    ends = [a.end for a in actions if a is not None]
    if any(end is None for end in ends):
        return
    if all(end in ("done", "already") for end in ends):
        draft.emit(ev.PlanDecided(draft.at, plan.id, "done", plan.by))
    else:
        why = "; ".join(f"{spoken(a)}: {a.end}, {a.detail}" for a in actions if a and a.end != "done")
        draft.emit(ev.PlanDecided(draft.at, plan.id, "failed", plan.by, why))
