"""Rules that can stop or downgrade any action. One visible list; each answers with nothing, an Ask or a Stop.

Guards predict the gate's caps so that a person is asked in time; the gate's own caps are final.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor

from bot.fit import fit
from bot.model import Action, Cluster, Incident, Mode, Session
from bot.policy import Policy, SessionRule
from bot.recovery import budget_spent
from bot.state import State


@dataclass(frozen=True, slots=True)
class Case:
    """What is about to be done. incident and session are None for a typed command on a node."""

    state: State
    cluster: Cluster | None
    policy: Policy
    at: int
    actions: Sequence[Action]
    incident: Incident | None = None
    session: Session | None = None
    rule: SessionRule | None = None

    def targets(self, step: str) -> list[str]:
        return [a.target for a in self.actions if a.step == step]


@dataclass(frozen=True, slots=True)
class Ask:
    """Not by itself: a person must approve."""

    why: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Not at all."""

    why: str


Verdict = Ask | Stop | None


def paused(case: Case) -> Verdict:
    """While paused nothing is written; detection goes on."""
    meta = case.state.meta
    return Stop(f"paused by {meta.paused_by}: {meta.paused_why}") if meta.paused_by else None


def scheduler_seen(case: Case) -> Verdict:
    """Nothing is done to a scheduler that cannot be read."""
    if case.cluster is None:
        return Stop("the scheduler cannot be read right now")
    return None


def controller(case: Case) -> Verdict:
    """Where another controller is of record, xidbot observes."""
    if case.session and case.session.controller != "xidbot":
        return Stop(f"{case.session.controller} is the controller of record of {case.session.name}; xidbot observes")
    return None


def recoverable(case: Case) -> Verdict:
    """Only batch jobs that may be requeued are."""
    if case.session and case.targets("requeue") and case.session.unrecoverable:
        return Stop(f"{case.session.name} cannot be requeued: {case.session.unrecoverable}")
    return None


def exit_code(case: Case) -> Verdict:
    """A site's codes (93: do not requeue) win over every playbook; a missing code proves nothing."""
    latest = case.session.latest if case.session else None
    codes = case.rule.no_requeue_codes if case.rule else ()
    if latest and case.targets("requeue") and latest.exit_code.split(":")[0] in codes:
        return Stop(f"exit code {latest.exit_code} means: do not requeue")
    return None


def known_node(case: Case) -> Verdict:
    """A host that maps to no node of the scheduler is never acted on."""
    unknown = [n for n in case.targets("hold_node") if case.cluster and n not in case.cluster.nodes]
    if unknown or (case.incident and case.incident.kind == "gpu_fault" and not case.incident.known):
        name = unknown[0] if unknown else case.incident.subject if case.incident else ""
        return Stop(f"{name} is no node of the scheduler; check prometheus.node_labels and node_pattern")
    return None


def foreign_hold(case: Case) -> Verdict:
    """Another holder's drain is never overwritten."""
    for name in case.targets("hold_node"):
        node = case.cluster.nodes.get(name) if case.cluster else None
        if node and node.others:
            return Stop(f"{name} is already held by {node.others[0].by}: {node.others[0].why}")
    return None


def fits(case: Case) -> Verdict:
    """Before anything is held or requeued: are there nodes that the job can use?"""
    for action in case.actions:
        job = case.cluster.jobs.get(action.target) if case.cluster and action.step == "requeue" else None
        if job is None or case.cluster is None:
            continue
        answer = fit(job, set(case.targets("hold_node")), case.cluster)
        if not answer.ok:
            return Ask(f"it would not start again: {answer.why}")
    return None


def provenance(case: Case) -> Verdict:
    """Claimed evidence never goes past suggest alone."""
    reasons = [r for r in case.incident.reasons if r.hard] if case.incident else []
    if reasons and all(r.provenance == "claimed" for r in reasons):
        return Stop("the evidence is only claimed; nothing the kernel or a driver said")
    return None


def held_nodes(case: Case) -> Verdict:
    """Not more nodes held by us at once than the smaller of count and share."""
    caps = case.policy.numbers.caps
    wanted = set(case.targets("hold_node")) - {h.node for h in case.state.our_holds()}
    held = {h.node for h in case.state.our_holds()}
    if wanted and case.cluster and len(held | wanted) > (room := cap_of_nodes(case.cluster, case.policy)):
        names = ", ".join(sorted(held)) or "none"
        return Ask(f"caps: {len(held)} of {room} nodes already held by us ({names}); caps.held_nodes {caps.held_nodes}")
    return None


def cap_of_nodes(cluster: Cluster, policy: Policy) -> int:
    """The smaller of the absolute cap and the share of eligible nodes, at least 1 (small pools)."""
    eligible = sum(1 for n in cluster.nodes.values() if n.gpus)
    caps = policy.numbers.caps
    return max(1, min(caps.held_nodes, floor(eligible * caps.held_share)))


def writes(case: Case) -> Verdict:
    """Not more holds and requeues than this in the window."""
    caps = case.policy.numbers.caps
    since = case.at - caps.write_window
    recent = [a for a in case.state.all(Action) if _is_write(a) and (a.started or 0) > since]
    wanted = [a for a in case.actions if a.step in ("hold_node", "requeue") and a.started is None]
    if wanted and len(recent) + len(wanted) > caps.writes:
        return Ask(f"caps: {len(recent)} writes in the last {caps.write_window // 60} min, {caps.writes} are allowed")
    return None


def _is_write(action: Action) -> bool:
    return action.step in ("hold_node", "requeue") and action.end not in ("already", "refused", "superseded")


def fleet_retries(case: Case) -> Verdict:
    """Not more requeues than this in the window, whatever their runs."""
    caps = case.policy.numbers.caps
    since = case.at - caps.fleet_window
    recent = [a for a in case.state.all(Action) if a.step == "requeue" and a.end == "done" and (a.ended or 0) > since]
    if case.targets("requeue") and len(recent) >= caps.fleet_retries:
        return Ask(f"caps: {len(recent)} requeues in the last hour across the fleet, {caps.fleet_retries} are allowed")
    return None


def chain_budget(case: Case) -> Verdict:
    """A chain that spent its attempts gets no further one."""
    mine = [r for r in case.state.open_recoveries() if case.session and r.session == case.session.key]
    for recovery in mine:
        spent = budget_spent(recovery, case.at, case.policy.numbers.recovery)
        if spent and case.targets("requeue"):
            return Stop(f"the chain's budget is spent: {spent}")
    return None


Guard = Callable[[Case], Verdict]
GUARDS: tuple[tuple[str, Guard], ...] = (
    ("pause", paused),
    ("scheduler unknown", scheduler_seen),
    ("controller of record", controller),
    ("unrecoverable", recoverable),
    ("exit code", exit_code),
    ("unknown host", known_node),
    ("foreign hold", foreign_hold),
    ("provenance", provenance),
    ("chain budget", chain_budget),
    ("fit", fits),
    ("held nodes", held_nodes),
    ("writes", writes),
    ("fleet retries", fleet_retries),
)
# What a person's word overrides: their click is the answer to these questions. The gate's caps stay final.
OVERRIDABLE = frozenset({"fit", "held nodes", "writes", "fleet retries"})
TYPED_ONLY_STOPS = frozenset({"pause", "scheduler unknown", "controller of record", "unrecoverable", "unknown host"})


def ask_guards(case: Case) -> tuple[tuple[str, Ask | Stop], ...]:
    """Every guard that objects, by name, in the list's order."""
    verdicts = ((name, guard(case)) for name, guard in GUARDS)
    return tuple((name, verdict) for name, verdict in verdicts if verdict is not None)


def lowered(mode: Mode, objections: Sequence[tuple[str, Ask | Stop]]) -> Mode:
    """The mode after the guards: a Stop leaves a suggestion, an Ask leaves a question."""
    if any(isinstance(v, Stop) for _, v in objections):
        return mode if mode in ("observe", "suggest") else "suggest"
    if objections and mode in ("veto", "auto"):
        return "approve"
    return mode
