"""Commands that change the world: they record wanted actions; the actor carries them out."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime

from bot import events as ev
from bot.errors import Denied, UsageError
from bot.fit import fit
from bot.guards import OVERRIDABLE, Case, ask_guards
from bot.model import MODES, Action, Cluster, Hold, Session
from bot.schedulers.hostlist import parse_targets
from bot.sessions import faulty_nodes, session_state
from bot.yamlfile import seconds
from commands import find
from commands.run import Asked, Reply, usage


def retry(asked: Asked) -> Reply:
    if len(asked.words) != 1:
        raise usage("retry")
    session = find.session(asked.services.state, asked.words[0])
    action = _requeue(asked, session)
    _refuse_below_approve(asked, f"requeue {session.name} (job {action.target})")
    _refuse_by_guards(asked, [action], session)
    warning = _warning(asked, session)
    return Reply(
        f"{session.name}: job {action.target} will be requeued and started now, from {_checkpoint(session)}.{warning}",
        [ev.ActionWanted(asked.services.now, action, asked.services.policy.hash)],
    )


def _requeue(asked: Asked, session: Session) -> Action:
    services, latest = asked.services, session.latest
    state = session_state(session, services.state, services.now, services.policy)
    if latest is None or (state == "starting" and latest.state == "PENDING"):
        raise UsageError(f"{session.name} already waits in the queue; a second requeue would only cost it priority")
    if any(a.session == session.key and a.end is None for a in services.state.all(Action)):
        raise UsageError(f"{session.name} is being requeued already")
    if latest.alive:
        _refuse_unfit(session, latest.job, _cluster(asked))
    return _action(asked, "requeue", latest.job, f"/retry by {asked.request.user}", session.key, latest.id)


def _refuse_unfit(session: Session, job_id: str, cluster: Cluster) -> None:
    """Stopping a run that could not start again helps nobody."""
    job = cluster.jobs.get(job_id)
    answer = fit(job, (), cluster) if job else None
    if answer and not answer.ok:
        raise Denied(f"{session.name} is running and would not start again: {answer.why}", "nothing was done")


def _warning(asked: Asked, session: Session) -> str:
    """A requeue may land on the same bad node again: say it before it does."""
    nodes = asked.services.seen.cluster.nodes if asked.services.seen.cluster else {}
    bad = [n for n in sorted(faulty_nodes(asked.services.state) & set(session.nodes)) if n in nodes and nodes[n].open]
    return f" :warning: {', '.join(bad)} is faulty and not held: `exclude {bad[0]}` first." if bad else ""


def _checkpoint(session: Session) -> str:
    if session.checkpoint is None or session.checkpoint.step is None:
        return "a checkpoint that xidbot cannot see"
    return f"step {session.checkpoint.step:,}"


def exclude(asked: Asked) -> Reply:
    nodes, review_in, reason = _parse_exclude(asked)
    review = asked.services.now + review_in
    why = reason or f"excluded by {asked.request.user}"
    actions = [replace(_action(asked, "hold_node", node, why), review=review) for node in nodes]
    held = {h.node: h for h in asked.services.state.our_holds()}
    again = [n for n in nodes if n in held]
    if again:
        raise UsageError(
            f"{again[0]} is already held by xidbot since {_day(held[again[0]].since)}: {held[again[0]].why}"
        )
    _refuse_below_approve(asked, f"hold {', '.join(nodes)}")
    _refuse_by_guards(asked, actions, None)
    return Reply(
        f"{', '.join(nodes)} will be kept from new work now. Review {_day(review)}: that is no release date, "
        f"`readmit` or proof gives it back. Running jobs are not stopped.",
        [ev.ActionWanted(asked.services.now, a, asked.services.policy.hash) for a in actions],
    )


def _parse_exclude(asked: Asked) -> tuple[tuple[str, ...], int, str]:
    """`NODE [for 24h] [REASON]` → nodes, seconds to the review, reason."""
    if not asked.words:
        raise usage("exclude")
    match = re.fullmatch(r"(\S+)(?:\s+for\s+(\S+))?(?:\s+(.*))?", asked.rest)
    if match is None:
        raise usage("exclude")
    targets, span, reason = match.groups()
    nodes = parse_targets(targets, _cluster(asked).nodes)
    return nodes, _span(span, asked), (reason or "").strip()


def _span(text: str | None, asked: Asked) -> int:
    if text is None:
        return asked.services.policy.numbers.approvals.review_after
    try:
        return int(str(seconds(text)))
    except ValueError as error:
        raise UsageError(str(error)) from error


def readmit(asked: Asked) -> Reply:
    if len(asked.words) < 2:
        raise usage("readmit")
    node, reason = asked.words[0], " ".join(asked.words[1:])
    (name,) = parse_targets(node, _cluster(asked).nodes, cap=1)
    hold = next((h for h in asked.services.state.our_holds() if h.node == name), None)
    _refuse_foreign(asked, name, hold)
    _refuse_below_approve(asked, f"set {name} to RESUME")
    action = _action(asked, "release_node", name, reason)
    _refuse_by_guards(asked, [action], None)
    return Reply(
        f"{name} will take work again. Recorded as proof by your statement: {reason}",
        [ev.ActionWanted(asked.services.now, action, asked.services.policy.hash)],
    )


def _refuse_foreign(asked: Asked, name: str, hold: Hold | None) -> None:
    node = _cluster(asked).nodes[name]
    if node.others:
        other = node.others[0]
        raise Denied(f"{name} is held by {other.by}: {other.why}", "xidbot never lifts another holder's drain")
    if hold is None and node.ours is None:
        raise UsageError(f"{name} is not held by xidbot; the scheduler says {node.state}")


def pause(asked: Asked) -> Reply:
    why = asked.rest or "no reason given"
    now = asked.services.now
    return Reply(
        f"Paused: nothing is written until `resume`. Detection goes on. ({why})",
        [
            ev.Paused(now, asked.request.user, why),
            ev.ActionWanted(now, _action(asked, "pause", "gate", why), asked.services.policy.hash),
        ],
    )


def resume(asked: Asked) -> Reply:
    now, meta = asked.services.now, asked.services.state.meta
    if not meta.paused_by:
        raise UsageError("xidbot is not paused")
    return Reply(
        "Resumed. What had waited is looked at anew; nothing old is carried out.",
        [
            ev.Resumed(now, asked.request.user),
            ev.ActionWanted(now, _action(asked, "resume", "gate", "resume"), asked.services.policy.hash),
        ],
    )


def _action(asked: Asked, step: str, target: str, why: str, session: str = "", attempt: str = "") -> Action:
    now = asked.services.now
    return Action(
        cause=f"r{asked.request.id}",
        step=step,
        target=target,
        attempt=attempt,
        session=session,
        origin="command",
        by=asked.request.user,
        why=why,
        wanted=now,
        not_before=now,
        expires=now + asked.services.policy.numbers.approvals.action_expires,
    )


def _cluster(asked: Asked) -> Cluster:
    if asked.services.seen.cluster is None:
        problem = next((s.problem for s in asked.services.seen.sources if s.name == "scheduler"), "it does not answer")
        raise Denied(f"the scheduler cannot be read right now: {problem}", "nothing was done; try again")
    return asked.services.seen.cluster


def _refuse_below_approve(asked: Asked, would: str) -> None:
    mode = asked.services.policy.write_mode
    if MODES.index(mode) < MODES.index("approve"):
        raise Denied(f"write_mode is {mode}: I would {would}, and do not", "raise site.write_mode to approve")


def _refuse_by_guards(asked: Asked, actions: list[Action], session: Session | None) -> None:
    """Typing is the approval, so only what no approval overrides stops it; the gate's caps are final anyway."""
    s = asked.services
    objections = ask_guards(Case(s.state, s.seen.cluster, s.policy, s.now, actions, None, session))
    final = [(name, verdict) for name, verdict in objections if name not in OVERRIDABLE]
    if final:
        raise Denied(f"{final[0][0]}: {final[0][1].why}", "nothing was done")


def _day(at: int) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%a %d %b %H:%M UTC")
