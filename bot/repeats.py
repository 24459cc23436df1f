"""Xids that are the application's as a rule, and become the GPU's when they stay with one GPU. Pure.

A program's fault shows on many of its ranks, or on the same rank wherever that runs. A GPU's shows on the one GPU,
under programs and owners that have nothing else in common.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bot import events as ev
from bot.model import AppXid, Attempt, Cluster, Job, NodeScore, Observation, Reading, Sighting
from bot.policy import Policy, RepeatNumbers
from bot.signals.xid import xid
from bot.state import Draft, State

SIGNAL = "xid_repeated"  # of the catalogue
CLOCKS = 60  # s that a node's clock and the scheduler's may differ


@dataclass(frozen=True, slots=True)
class Repeated:
    """One GPU with the same code in unlike runs, the newest first. shown: GPUs that showed it, of each run's."""

    sightings: Sequence[Sighting]
    shown: Sequence[int]

    @property
    def newest(self) -> int:
        return self.sightings[0].xid.at

    @property
    def text(self) -> str:
        last = self.sightings[0].xid
        runs = ", ".join(_run(s, shown) for s, shown in zip(self.sightings, self.shown, strict=True))
        return f"Xid {last.code} ({xid(last.code).name}) stays with GPU {last.gpu}: {runs}"


def _run(s: Sighting, shown: int) -> str:
    owner = f" of {s.owner}" if s.owner else ""
    return f"{s.attempt} {s.program}{owner} (on {shown} of {s.gpus} GPUs)"


def judged(draft: Draft, seen: Observation, policy: Policy) -> Observation:
    """Records the sightings, and adds to what is seen the reading of each GPU that they now speak against."""
    _record(draft, seen, policy)
    signal, numbers = policy.signals.get(SIGNAL), policy.numbers.repeats
    if signal is None or signal.weight * signal.evidence.strength == 0 or seen.scores is None:
        return seen
    found: dict[str, Repeated] = {}
    for one in repeated(draft.state.all(Sighting), draft.at, numbers):
        node = one.sightings[0].xid.node
        if draft.at - one.newest - numbers.settle <= numbers.lasts:
            found[node] = max(found.get(node, one), one, key=lambda r: r.newest)
    readings = {node: _reading(one, policy) for node, one in found.items()}
    return _with(seen, readings, seen.scores, policy) if readings else seen


# -- which run ---------------------------------------------------------------------------------------------------------


def _record(draft: Draft, seen: Observation, policy: Policy) -> None:
    """A sighting whose run cannot be told says nothing, and neither do more of them once the program is to blame."""
    if seen.cluster is None or not seen.app_xids:
        return
    numbers = policy.numbers.repeats
    on = _attempts_by_node(seen.cluster)
    shown = _shown(draft.state.all(Sighting))
    for told in sorted(seen.app_xids, key=lambda x: (x.at, x.node, x.gpu)):
        ran = _ran(told, on.get(told.node, ())) if told.at >= draft.at - numbers.within else None
        sighting = _sighting(told, *ran, seen.cluster, draft.state) if ran else None
        known = draft.state.find(Sighting, sighting.id) if sighting else None
        if sighting and known is None and _may_tell(shown[_where(sighting)], sighting.gpus, numbers):
            shown[_where(sighting)] += 1
            draft.emit(ev.AppXidSeen(draft.at, sighting))


def _may_tell(shown: int, gpus: int, numbers: RepeatNumbers) -> bool:
    """One of few, or the first that is one of many, which takes the others along."""
    return _stands_out(max(shown - 1, 0), gpus, numbers)


def _attempts_by_node(cluster: Cluster) -> Mapping[str, list[tuple[Job, Attempt]]]:
    found: dict[str, list[tuple[Job, Attempt]]] = defaultdict(list)
    for job in cluster.jobs.values():
        for attempt in job.attempts:
            for node in attempt.nodes if attempt.started else ():
                found[node].append((job, attempt))
    return found


def _ran(told: AppXid, attempts: Sequence[tuple[Job, Attempt]]) -> tuple[Job, Attempt] | None:
    """The one run on the node at that moment. Where runs share a node, nobody knows whose GPU it was."""
    for slack in (0, CLOCKS):
        found = [(job, attempt) for job, attempt in attempts if _during(told.at, attempt, slack)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _during(at: int, attempt: Attempt, slack: int) -> bool:
    began = (attempt.start or 0) - slack <= at
    return began and (attempt.alive or (attempt.end is not None and at <= attempt.end + slack))


def _sighting(told: AppXid, job: Job, attempt: Attempt, cluster: Cluster, state: State) -> Sighting | None:
    """None where it is not known how many GPUs the run has: alone among 8 is not the same as the only one."""
    here = cluster.nodes.get(told.node)
    each = job.gpus_per_node or (here.gpus if here and here.gpus else 0)
    session = state.session_of(job.id)
    if not each:
        return None
    key = session.key if session else f"{cluster.name}/{job.id}@{job.first_submit}"
    place = attempt.nodes.index(told.node)
    return Sighting(told, attempt.id, key, job.name, job.user, place, each * len(attempt.nodes))


# -- which GPU ---------------------------------------------------------------------------------------------------------


def repeated(sightings: Iterable[Sighting], at: int, numbers: RepeatNumbers) -> Iterator[Repeated]:
    """GPUs that showed one code in enough runs unlike each other, each of which showed it nearly nowhere else."""
    recent = [s for s in sightings if at - numbers.within <= s.xid.at]
    shown = _shown(recent)
    by_gpu: dict[tuple[str, str, int], list[Sighting]] = defaultdict(list)
    for s in recent:
        if s.xid.at <= at - numbers.settle and _stands_out(shown[_where(s)] - 1, s.gpus, numbers):
            by_gpu[s.xid.node, s.xid.gpu, s.xid.code].append(s)
    for mine in by_gpu.values():
        unlike = _unlike(sorted(mine, key=lambda s: (-s.xid.at, s.id)))
        if len(unlike) >= numbers.runs:
            yield Repeated(unlike, [shown[_where(s)] for s in unlike])


def _shown(sightings: Iterable[Sighting]) -> Counter[tuple[str, str, int]]:
    """On how many GPUs each attempt showed each code."""
    return Counter(map(_where, sightings))


def _where(s: Sighting) -> tuple[str, str, int]:
    return s.session, s.attempt, s.xid.code


def _stands_out(others: int, gpus: int, numbers: RepeatNumbers) -> bool:
    """Besides this many others of the run it still is one of few; half of a small run is not few."""
    return others < max(1, numbers.share * gpus) and 2 * (others + 1) < gpus


def _unlike(newest_first: Sequence[Sighting]) -> list[Sighting]:
    found: list[Sighting] = []
    for s in newest_first:
        if all(_another_run(s, other) and not _another_part(s.xid, other.xid) for other in found):
            found.append(s)
    return found


def _another_run(a: Sighting, b: Sighting) -> bool:
    """Of another owner, of another program, or the same one with its ranks moved. The same program with the same rank
    on this GPU shows its own fault twice."""
    if a.owner != b.owner:
        return True
    if a.session != b.session and a.program != b.program:
        return True
    return (a.session, a.attempt) != (b.session, b.attempt) and a.place != b.place


def _another_part(a: AppXid, b: AppXid) -> bool:
    """Somebody put another GPU in its place."""
    return bool(a.uuid and b.uuid and a.uuid != b.uuid)


# -- as evidence -------------------------------------------------------------------------------------------------------


def _reading(one: Repeated, policy: Policy) -> Reading:
    """As weak as the weakest of what it was made of."""
    signal, newest = policy.signals[SIGNAL], one.sightings[0].xid
    claimed = any(s.xid.provenance == "claimed" for s in one.sightings)
    return Reading(
        node=newest.node,
        signal=SIGNAL,
        state="bad",
        evidence=signal.weight * signal.evidence.strength,
        value=float(newest.code),
        since=newest.at,
        provenance="claimed" if claimed else signal.provenance,
        text=one.text,
    )


def _with(
    seen: Observation, bad: Mapping[str, Reading], scores: Mapping[str, NodeScore], policy: Policy
) -> Observation:
    others = tuple(r for r in seen.readings if r.signal != SIGNAL or r.node not in bad)
    changed = {node: _scored(scores.get(node), reading, policy) for node, reading in bad.items()}
    return replace(seen, readings=(*others, *bad.values()), scores={**scores, **changed})


def _scored(known: NodeScore | None, reading: Reading, policy: Policy) -> NodeScore:
    """As the score would be with the signal in it: the strongest of a category, noisy-or across, soft under its cap."""
    numbers, signal = policy.numbers.score, policy.signals[SIGNAL]
    before = known or NodeScore(reading.node, 0.0, hard=False)
    same = [
        r for r in before.reasons if r.signal in policy.signals and policy.signals[r.signal].category == signal.category
    ]
    total = max(before.score, reading.evidence)
    if not any(r.evidence for r in same):
        total = 1 - (1 - before.score) * (1 - reading.evidence)
    if not before.hard:
        total = max(before.score, min(total, numbers.soft_cap))
    reasons = sorted((*before.reasons, reading), key=lambda r: (-r.evidence, r.signal))
    sudden = before.sudden or (signal.evidence.event and reading.evidence >= numbers.open_at)
    return replace(before, score=total, reasons=tuple(reasons), sudden=sudden)
