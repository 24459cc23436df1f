"""What an approval is bound to, and whether it still holds: asked at the click and again by the actor."""

from __future__ import annotations

from collections.abc import Sequence

from bot.model import Cluster, Facts, Incident, NodeFact, Plan, Session
from bot.state import State


def facts(session: Session, incident: Incident, nodes: Sequence[str], cluster: Cluster, steps: Sequence[str]) -> Facts:
    save = session.checkpoint
    return Facts(
        session=session.key,
        attempt=session.latest.id if session.latest else "",
        owner=session.user,
        controller=session.controller,
        nodes=tuple(node_fact(name, cluster) for name in nodes),
        hard=tuple(sorted(r.signal for r in incident.reasons if r.hard)),
        checkpoint_step=save.step if save else None,
        checkpoint_at=save.completed if save else None,
        steps=tuple(steps),
    )


def node_fact(name: str, cluster: Cluster) -> NodeFact:
    """Of a node's state only who holds it (but us) and whether it is up: busy or idle changes nothing."""
    node = cluster.nodes.get(name)
    if node is None:
        return NodeFact(name, False, ("unknown to the scheduler",))
    return NodeFact(name, node.up, tuple(sorted(f"{h.kind}:{h.by}" for h in node.others)))


def broken(plan: Plan, state: State, cluster: Cluster) -> str:
    """Why the plan's facts no longer hold; empty = they do. More hard evidence or a newer checkpoint breaks nothing:
    they make the same plan righter; anything that vanished or went back does."""
    then = plan.facts
    session, incident = state.get(Session, then.session), state.get(Incident, plan.tag)
    if incident.closed is not None:
        return f"incident {incident.id} is closed: {incident.closed_why}"
    if session.ended_at is not None:
        return f"{session.name} ended: {session.ended}"
    now = facts(session, incident, [n.name for n in then.nodes], cluster, then.steps)
    if now.attempt != then.attempt:
        return f"{session.name} is at attempt {now.attempt} now, it was {then.attempt}"
    if (now.owner, now.controller) != (then.owner, then.controller):
        return f"{session.name} belongs to {now.owner} (controller {now.controller}) now"
    if set(then.hard) - set(now.hard):
        return f"evidence is gone: {', '.join(sorted(set(then.hard) - set(now.hard)))}"
    return _node_change(then, now) or _checkpoint_change(then, now)


def _node_change(then: Facts, now: Facts) -> str:
    for old, new in zip(then.nodes, now.nodes, strict=True):
        if old != new:
            return f"{old.name} was {_spoken(old)} and is {_spoken(new)} now"
    return ""


def _spoken(node: NodeFact) -> str:
    held = f"held by {', '.join(node.holders)}" if node.holders else "free of other holds"
    return f"{'up' if node.up else 'down'}, {held}"


def _checkpoint_change(then: Facts, now: Facts) -> str:
    """A newer one only updates the text; a missing or older one means a rerun would lose more than was approved."""
    for old, new in ((then.checkpoint_step, now.checkpoint_step), (then.checkpoint_at, now.checkpoint_at)):
        if old is not None and (new is None or new < old):
            return f"the checkpoint is older than approved: {new} instead of {old}"
    return ""


def same_question(old: Facts, new: Facts) -> bool:
    """Asking again would ask the same: only the checkpoint or added evidence differs."""

    def core(f: Facts) -> tuple[object, ...]:
        return (f.session, f.attempt, f.owner, f.controller, f.nodes, f.steps)

    return core(old) == core(new)
