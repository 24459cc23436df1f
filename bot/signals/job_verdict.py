"""From what the lines of a job's log tell to one sentence: which rank on which node failed first, and of what. Pure.

The ranks that complain of a collective are those that wait. The one to blame is the one that does not come, so it is
looked for among the silent, and where nothing tells it apart, that is said.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from bot.signals.job_kinds import KINDS, Hint
from bot.signals.job_lines import JobFinding, JobLines

LINES = 3  # for people
WAITING = ("nccl_timeout", "heartbeat", "told")
CLEAR = 1  # s that the first must be ahead of the others on other nodes: log lines of one second have no order
BLAMABLE: tuple[Hint, ...] = ("hardware", "network", "unknown")  # a full disk or a bug is no node's fault


@dataclass(frozen=True, slots=True)
class JobVerdict:
    """rank, node: the first to fail, None where the log does not tell. suspects: nodes to look at, empty where the
    fault is the program's or the storage's. since, at: Unix seconds of the beginning and of the line, None where no
    line tells a time. text: one sentence. lines: the log's own, at most 3."""

    kind: str
    hint: Hint
    rank: int | None
    node: str | None
    since: int | None
    at: int | None
    text: str
    lines: tuple[str, ...]
    suspects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Suspect:
    """Whom the waiting ranks wait for, and why we think so."""

    ranks: tuple[int, ...]
    nodes: tuple[str, ...]
    why: str


def verdict(log: JobLines) -> JobVerdict | None:
    """None when nothing in the log tells of a failure."""
    found = log.findings()
    for level, judge in ((1, _of_causes), (2, _of_symptoms), (3, _of_ends)):
        here = [f for f in found if KINDS[f.kind].level == level]
        if here:
            return judge(log, here, found)
    return None


# -- a line names the cause -------------------------------------------------------------------------------------------


def _of_causes(log: JobLines, causes: Sequence[JobFinding], found: Sequence[JobFinding]) -> JobVerdict:
    """Hardware that says so, else what comes first; a Python error may only be how another failure reached a rank."""
    strong = [f for f in causes if KINDS[f.kind].hint == "hardware"]
    weak = [f for f in causes if f.kind != "python_error"]
    pool = strong or weak or causes
    root = _root(found)
    of_root = [f for f in pool if root and f.rank == root.rank]
    first = _first(of_root or pool)
    same = [f for f in pool if f.kind == first.kind]
    first = first if first.node else next((f for f in same if f.node), first)  # cgroups tell no node, srun then does
    others = {f.node for f in same if f.node and f.node != first.node}
    clear = bool(of_root) or all(_ahead(first, f) for f in same if f.node and f.node != first.node)
    hint = KINDS[first.kind].hint
    suspects = (first.node,) if first.node and clear and hint in BLAMABLE else ()
    text = f"{_who(first)}: {KINDS[first.kind].words}"
    if others:
        text += f"; {len(same)} lines from {len(others) + 1} nodes tell it"
    return JobVerdict(
        kind=first.kind,
        hint=hint,
        rank=first.rank,
        node=first.node,
        since=_since([first]),
        at=first.at,
        text=text,
        lines=_lines([first, *pool, *found]),
        suspects=suspects,
    )


def _root(found: Sequence[JobFinding]) -> JobFinding | None:
    """The failure that torchrun calls the first. Each node's agent has one of its own: the earliest, where it is so."""
    roots = [f for f in found if f.first and f.kind != "killed"]
    if not roots:
        return None
    first = _first(roots)
    return first if all(f.node == first.node or _ahead(first, f) for f in roots) else None


def _ahead(first: JobFinding, other: JobFinding) -> bool:
    return first.at is not None and other.at is not None and other.at - first.at > CLEAR


# -- only symptoms -----------------------------------------------------------------------------------------------------


def _of_symptoms(log: JobLines, symptoms: Sequence[JobFinding], found: Sequence[JobFinding]) -> JobVerdict:
    waiting = [f for f in found if f.kind in WAITING]
    timed_out = [f for f in waiting if f.kind != "told"]
    shown = _first(timed_out or [f for f in symptoms if f.first] or symptoms)
    network = [f for f in symptoms if f.kind == "network"]
    suspect = _waited_for(log, waiting, found) if timed_out or len(network) > 2 else None
    suspect = suspect or _unreachable(network) or (None if timed_out else _left(shown, symptoms))
    hint: Hint = "network" if network else "storage" if timed_out and log.work.saving else KINDS[shown.kind].hint
    text = KINDS[shown.kind].words + (f" while a checkpoint was being saved{_after(log)}" if log.work.saving else "")
    text += f"; {suspect.why}" if suspect else "; cannot tell which rank or node began it"
    ranks, nodes = (suspect.ranks, suspect.nodes) if suspect else ((), ())
    return JobVerdict(
        kind=shown.kind,
        hint=hint,
        rank=ranks[0] if len(ranks) == 1 else None,
        node=nodes[0] if len(nodes) == 1 else shown.node if suspect and not timed_out and not network else None,
        since=_since(timed_out or [shown]),
        at=shown.at,
        text=text,
        lines=_lines([shown, *symptoms, *found]),
        suspects=nodes if hint in BLAMABLE else (),
    )


def _after(log: JobLines) -> str:
    return f" after step {log.work.step}" if log.work.step is not None else ""


def _waited_for(log: JobLines, waiting: Sequence[JobFinding], found: Sequence[JobFinding]) -> _Suspect | None:
    """The log's own word, then who is behind, then who is stuck alone, then who is silent."""
    named = {f.rank for f in found if f.kind == "desync" and f.rank is not None}
    stuck = {f.rank for f in waiting if f.kind == "heartbeat" and f.rank is not None}
    timed_out = {f.rank for f in waiting if f.kind == "nccl_timeout" and f.rank is not None}
    spoke = {f.rank for f in found if f.rank is not None} | {rank for _, rank in log.crew.counters}
    crew = set(range(log.crew.world)) if log.crew.world else log.crew.ranks
    everyone = len(crew | spoke)
    return (
        _few(log, named, everyone, "did not join the collective that the others waited in")
        or _few(log, _behind(log), everyone, "was behind the others in the order of collectives")
        or _few(log, stuck - timed_out if timed_out else set(), everyone, "was stuck itself while others only waited")
        or (_few(log, crew - spoke, everyone, "said nothing while the others failed") if spoke else None)
    )


def _behind(log: JobLines) -> set[int]:
    """Ranks that had completed fewer works than others of their group, or had none to do while others waited in one;
    of the first group where that is seen."""
    groups: dict[str, dict[int, tuple[int, int]]] = {}
    for (group, rank), counted in log.crew.counters.items():
        groups.setdefault(group, {})[rank] = counted
    for members in groups.values():
        completed = {done for _, done in members.values()}
        slow = {rank for rank, (_, done) in members.items() if done == min(completed)} if len(completed) > 1 else set()
        idle = {rank for rank, (enqueued, done) in members.items() if enqueued <= done}
        for apart in (slow, idle):
            if apart and 2 * len(apart) < len(members):
                return apart
    return set()


def _few(log: JobLines, ranks: Collection[int], everyone: int, why: str) -> _Suspect | None:
    """Ranks that stand out: one, or the ranks of one node, and less than half of all."""
    if not ranks or 2 * len(ranks) >= everyone:
        return None
    nodes = {log.crew.node_of(rank) for rank in ranks}
    if len(ranks) > 1 and (len(nodes) > 1 or None in nodes or len(log.crew.seen()) < 2):
        return None
    known = tuple(sorted(node for node in nodes if node))
    names = f"rank {min(ranks)}" if len(ranks) == 1 else f"{len(ranks)} ranks ({min(ranks)} … {max(ranks)})"
    return _Suspect(tuple(sorted(ranks)), known, f"{names}{f' on {known[0]}' if known else ''} {why}")


def _unreachable(network: Sequence[JobFinding]) -> _Suspect | None:
    """One node that tells of broken connections, or the two ends of one (Aegis, NSDI'25: exactly two hosts)."""
    nodes = sorted({f.node for f in network if f.node})
    if len(nodes) == 1:
        ranks = {f.rank for f in network if f.rank is not None}
        return _Suspect(tuple(ranks) if len(ranks) == 1 else (), (nodes[0],), f"{nodes[0]} lost its connections")
    if len(nodes) == 2:
        return _Suspect((), (nodes[0], nodes[1]), f"the connection between {nodes[0]} and {nodes[1]} broke")
    return None


def _left(first: JobFinding, symptoms: Sequence[JobFinding]) -> _Suspect | None:
    """The first that ended by itself; its node is suspect unless others ended by themselves as soon."""
    if first.node is None and first.rank is None:
        return None
    others = [f for f in symptoms if f.kind == first.kind and f.node and f.node != first.node]
    alone = first.node and all(_ahead(first, f) for f in others)
    ranks = () if first.rank is None else (first.rank,)
    return _Suspect(ranks, (first.node,) if first.node and alone else (), f"{_who(first)} was the first to fail")


# -- ended from outside ------------------------------------------------------------------------------------------------


def _of_ends(log: JobLines, ends: Sequence[JobFinding], found: Sequence[JobFinding]) -> JobVerdict:
    cancelled = [f for f in ends if f.kind == "cancelled"]
    first = _first(cancelled or ends)
    kind = KINDS[first.kind]
    text = f"{kind.words}; nothing before it tells of a failure"
    return JobVerdict(first.kind, kind.hint, None, None, _since([first]), first.at, text, _lines(ends))


# -- words -------------------------------------------------------------------------------------------------------------


def _first(found: Sequence[JobFinding]) -> JobFinding:
    """By their times where all tell one, else by the order of the log."""
    if all(f.began is not None for f in found):
        return min(found, key=lambda f: f.began or 0)
    return found[0]


def _since(found: Sequence[JobFinding]) -> int | None:
    return min((f.began for f in found if f.began is not None), default=None)


def _who(found: JobFinding) -> str:
    rank = f"rank {found.rank}" if found.rank is not None else ""
    local = f"local rank {found.local}" if not rank and found.local is not None else ""
    named = rank or local
    if found.node:
        return f"{named} on {found.node}" if named else found.node
    return f"{named} on an unknown node" if named else "an unknown rank"


def _lines(found: Sequence[JobFinding]) -> tuple[str, ...]:
    """One line of each kind, the most telling first."""
    by_kind: dict[str, str] = {}
    for one in sorted(found, key=lambda f: f is not found[0] and KINDS[f.kind].level):
        by_kind.setdefault(one.kind, one.text)
    return tuple(by_kind.values())[:LINES]
