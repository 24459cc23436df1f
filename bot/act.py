"""The second loop: carry out recorded actions. Intent before act, read before act, read after error."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from bot import events as ev
from bot.errors import GateError, SourceError
from bot.facts import broken
from bot.guards import OVERRIDABLE, Case, Stop, ask_guards
from bot.model import (
    ROLES,
    Action,
    ActionEnd,
    Argv,
    Cluster,
    Done,
    Hold,
    Incident,
    Next,
    Plan,
    Report,
    Session,
    Unclear,
)
from bot.plans import spoken
from bot.policy import Policy
from bot.ports import Gate, Roles, Scheduler
from bot.state import State
from store.store import Store

log = logging.getLogger(__name__)
TRIES = 3  # gate calls per action; after that a person looks
SETTLED: dict[int, ActionEnd] = {0: "done", 3: "already", 4: "refused"}
UNCLEAR = 6
SWITCHES = ("pause", "resume")  # the gate's own verbs: no scheduler needed


@dataclass(frozen=True, slots=True)
class Actor:
    """What the loop needs. gate None: nothing can be written here, and every action is refused saying so."""

    store: Store
    scheduler: Scheduler
    gate: Gate | None
    roles: Roles
    policy: Policy


def act(actor: Actor, now: int) -> None:
    """One round. Raises LeaseHeld: who does not hold the lease must not write."""
    actor.store.take_lease()
    for action in list(due(actor.store.state(), now)):
        carry_out(actor, action, now)


def due(state: State, now: int) -> Iterator[Action]:
    """Wanted actions whose time has come; of a plan only the first that has not ended."""
    for action in sorted((a for a in state.all(Action) if a.end is None), key=lambda a: (a.wanted, a.not_before)):
        plan = state.find(Plan, action.plan) if action.plan else None
        before = _before(action, plan, state)
        if action.not_before <= now and all(b.end is not None for b in before):
            yield action


def _before(action: Action, plan: Plan | None, state: State) -> list[Action]:
    """The actions of the plan that come before this one."""
    keys = [a.key for a in plan.actions] if plan else []
    earlier = keys[: keys.index(action.key)] if action.key in keys else []
    return [state.get(Action, key) for key in earlier]


def carry_out(actor: Actor, action: Action, now: int) -> None:
    """One action as far as it goes now: it ends, or stays for the next round."""
    state = actor.store.state()
    cluster = _look(actor, action, state, now)
    if cluster is None and action.step not in SWITCHES:
        if _expired(action, now):
            _end(actor, action, "expired", "the scheduler could not be read in time", now)
        return
    refusal = _refusal(actor, action, state, cluster, now)
    if refusal:
        _end(actor, action, *refusal, now)
        return
    _converge(actor, action, _next(actor, action, cluster), now)


def _look(actor: Actor, action: Action, state: State, now: int) -> Cluster | None:
    if action.step in SWITCHES:
        return None
    session = state.find(Session, action.session) if action.session else None
    try:
        return actor.scheduler.snapshot(now, session.jobs if session else ())
    except SourceError as error:
        log.warning("action %s waits: %s", action.key, error)
        return None


def _expired(action: Action, now: int) -> bool:
    return action.expires is not None and now >= action.expires and action.started is None


def _refusal(
    actor: Actor, action: Action, state: State, cluster: Cluster | None, now: int
) -> tuple[ActionEnd, str] | None:
    """Why it must not be done (any more). What was started already is finished, whatever has changed since."""
    if action.started is not None or action.step in SWITCHES:
        return None
    plan = state.find(Plan, action.plan) if action.plan else None
    failed = [b for b in _before(action, plan, state) if b.end not in ("done", "already")]
    if failed:
        return "abandoned", f"{spoken(failed[0])} ended {failed[0].end}"
    if _expired(action, now):
        return "expired", "it could not be carried out in time"
    if not _may(actor, action):
        return "refused", f"role: {action.by} may not do this any more"
    changed = broken(plan, state, cluster) if plan and cluster else ""
    if changed:
        return "superseded", changed
    return _guarded(actor, action, state, cluster, now)


def _may(actor: Actor, action: Action) -> bool:
    """Roles are checked at the click and again here. Nobody asked for an automatic action."""
    if action.origin == "auto":
        return True
    needed = "admin" if action.step == "release_node" else "operator"
    has = actor.roles.of(action.by)
    return has is not None and ROLES.index(has) >= ROLES.index(needed)


def _guarded(
    actor: Actor, action: Action, state: State, cluster: Cluster | None, now: int
) -> tuple[ActionEnd, str] | None:
    incident = state.find(Incident, action.cause)
    session = state.find(Session, action.session) if action.session else None
    case = Case(state, cluster, actor.policy, now, [action], incident, session)
    for name, verdict in ask_guards(case):
        overridden = name in OVERRIDABLE and action.origin != "auto"
        already = name == "foreign hold"  # the node is out of service, which is what was wanted
        if not overridden and not already and (isinstance(verdict, Stop) or action.origin == "auto"):
            return "refused", f"{name}: {verdict.why}"
    return None


def _next(actor: Actor, action: Action, cluster: Cluster | None) -> Next:
    if cluster is None:
        return Argv(action.step, ("--why", action.why) if action.step == "pause" else ())
    return actor.scheduler.next_command(action, cluster)


def _converge(actor: Actor, action: Action, step: Next, now: int) -> None:
    if isinstance(step, Unclear):
        _end(actor, action, "unclear", step.why, now)
    elif isinstance(step, Done) and (action.started is None or step.ours):
        _end(actor, action, "done" if action.started is not None else "already", step.detail, now)
    elif isinstance(step, Argv):
        _call(actor, action, step, now)
    elif isinstance(step, Done):
        # It is as wanted, and we had begun: whether by us or by somebody else is in the gate's log, under the key.
        _call(actor, action, Argv(action.argv[0], action.argv[1:]), now)


def _call(actor: Actor, action: Action, argv: Argv, now: int) -> None:
    """Through the gate, with the key under which it happens at most once."""
    if actor.gate is None:
        _end(actor, action, "refused", "no gate is configured: scheduler.gate is empty", now)
        return
    if action.tries >= TRIES:
        _end(actor, action, "failed", f"the gate was called {action.tries} times without an answer", now)
        return
    actor.store.append([ev.ActionStarted(now, action.key, (argv.verb, *argv.operands))])
    try:
        report = actor.gate.run(argv, action.key)
    except GateError as error:
        log.error("gate: %s", error)
        return  # started is recorded; the next round asks again, up to TRIES
    _report(actor, action, report, now)


def _report(actor: Actor, action: Action, report: Report, now: int) -> None:
    """After a failure or an unclear end the world is read again in the next round: the gate may have acted, and the
    same key finishes what is missing."""
    ours = report.exit == 3 and action.started is not None and report.body.get("ours") is True
    if ours or report.exit in SETTLED:
        _end(actor, action, "done" if ours else SETTLED[report.exit], report.text, now)
    elif action.tries + 1 >= TRIES:
        _end(actor, action, "unclear" if report.exit == UNCLEAR else "failed", report.text, now)
    else:
        log.warning("gate, %s: %s", action.key, report.text)


def _end(actor: Actor, action: Action, end: ActionEnd, detail: str, now: int) -> None:
    """The end of the action and what follows from it for the ledger of holds, together."""
    ended: list[ev.Event] = [ev.ActionEnded(now, action.key, end, detail)]
    if end == "done" and action.step == "hold_node":
        ended.append(ev.NodeHeld(now, _hold(action, now)))
    if end == "done" and action.step == "release_node":
        mine = [h for h in actor.store.state().our_holds() if h.node == action.target]
        ended += [ev.NodeReleased(now, h.id, action.by, action.why) for h in mine]
    actor.store.append(ended)


def _hold(action: Action, now: int) -> Hold:
    return Hold(action.target, action.cause, action.why, action.by, now, action.review)
