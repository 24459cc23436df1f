"""The past through the same score and decide: which alarms there would have been, and what would have been done.

Decided in mode observe: what the bot would do is withheld and kept in a shadow, so that it is known and changes nothing
of what was seen. The log of a replay is all that it knows, so that a replay goes on where it stopped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from bot.decide import decide
from bot.events import (
    ActionWithheld,
    Event,
    IncidentClosed,
    IncidentFaded,
    IncidentOpened,
    IncidentQuieted,
    NodeHeld,
    NodeReleased,
    ReadingChanged,
    StallChanged,
)
from bot.model import Hold, Incident, Observation, Reading, SourceHealth, Stall, StorageView
from bot.policy import Policy
from bot.replay import ReplayObserver
from bot.signals.xid import xid
from bot.state import KINDS, State
from bot.storage.words import words

PATIENCE = 600  # s; an incident closed that late changes no figure, and a day has 144 such looks instead of 1,440
CATEGORIES = {"blind": "telemetry", "session_failed": "application", "session_hung": "progress"}  # without a reason
KEEP = 86_400  # s that a closed incident is remembered: as long as the same key is a new episode of it


@dataclass(frozen=True, slots=True)
class Alarm:
    """One episode of an incident. node: empty for what is not of a single node; end: when its evidence had ended; why:
    its reasons in words."""

    node: str
    start: int
    end: int
    kind: str
    category: str
    score: float
    why: str = ""


@dataclass
class Replayed:
    """What came of a replay. until: as far as it has come."""

    events: list[Event]
    until: int


def replay(observer: ReplayObserver, policy: Policy, done: Replayed, progress: Callable[[int], None]) -> Replayed:
    """From where `done` stopped to the observer's end; progress is told each moment looked at.

    Where nothing changes, only time can decide something: that is looked at now and then. Raises SourceError."""
    lag, step = policy.numbers.time.lag, policy.numbers.time.step
    state = _state(done.events)
    for at in range(max(observer.start, done.until), observer.end + 1, step):
        now = at + lag
        told = {incident.subject for incident in state.open_incidents()}
        if observer.striking(now, told) or (at % PATIENCE < step and not _idle(state)):
            decided = decide(state, _as_ours(observer.observe(now), observer.jobs_at(now), state), policy)
            for event in (*decided, *_shadow(state, decided, now, policy)):
                state.apply(event)
                done.events.append(event)
        done.until = at + step
        progress(at)
        if at % KEEP < step:
            state = _forgotten(state, now)
            done.events = _thinned(done.events)
    return done


def _as_ours(seen: Observation, jobs: Mapping[str, str], state: State) -> Observation:
    """Storage told under the recording's names of the sessions, under the keys that they have in the state."""
    found = {name: state.session_of(job) for name, job in jobs.items()} if seen.storage else {}
    keys = {name: session.key for name, session in found.items() if session}

    def view(told: StorageView) -> StorageView:
        sessions = tuple(replace(s, session=keys.get(s.session, s.session)) for s in told.sessions)
        beyond = tuple((keys.get(name, name), s) for name, s in told.stall.beyond) if told.stall else ()
        return replace(told, sessions=sessions, stall=told.stall and replace(told.stall, beyond=beyond))

    return replace(seen, storage=tuple(map(view, seen.storage)))


def _shadow(state: State, decided: Sequence[Event], now: int, policy: Policy) -> Iterator[Event]:
    """Holds as if they had been made, until their review: the caps count them, the cluster does not know them."""
    for event in decided:
        if isinstance(event, ActionWithheld) and event.step == "hold_node" and event.by == "mode observe":
            tag, review = f"{event.incident}.{event.episode}", now + policy.numbers.approvals.review_after
            yield NodeHeld(now, Hold(event.target, tag, "as if", "xidbot", now, review))
    for hold in state.our_holds():
        if hold.review is not None and now >= hold.review:
            yield NodeReleased(now, hold.id, "xidbot", "as if")


def _state(events: Sequence[Event]) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state


def _idle(state: State) -> bool:
    """Nothing is under way that time alone could change."""
    waits = state.open_incidents() or state.open_recoveries()
    return not waits and not any(source.problem for source in state.all(SourceHealth))


def _forgotten(state: State, now: int) -> State:
    """Without what has ended for long, as the store forgets it."""
    for kind in KINDS:
        docs = state.docs[kind.name]
        for key in [key for key, doc in docs.items() if not kind.live(doc) and _ended(doc) < now - KEEP]:
            del docs[key]
    return state


def _thinned(events: Sequence[Event]) -> list[Event]:
    """With the newest change alone of each reading: a day of a large cluster has ten thousands, and no figure needs
    one that was overtaken."""
    newest = {(e.reading.node, e.reading.signal): e for e in events if isinstance(e, ReadingChanged)}
    keep = {id(event) for event in newest.values()}
    return [event for event in events if not isinstance(event, ReadingChanged) or id(event) in keep]


def _ended(doc: object) -> int:
    for name in ("closed", "ended_at", "ended", "decided", "released"):
        moment = getattr(doc, name, None)
        if isinstance(moment, int):
            return moment
    return 1 << 62


# -- what came of it ---------------------------------------------------------------------------------------------------


def alarms(done: Replayed, policy: Policy) -> list[Alarm]:
    """Every incident that was opened, in order; a storage incident may hold several stalls."""
    opened = {(e.incident.id, e.incident.episode): e.incident for e in done.events if isinstance(e, IncidentOpened)}
    ended = _ends(opened, done)
    stalls = _stalls(done.events)
    found: list[Alarm] = []
    for key, incident in opened.items():
        mine = [_stall(incident, stall, ended[key]) for stall in stalls.get(key, ())]
        found += mine or [_alarm(incident, ended[key], policy)]
    return found


def _ends(opened: Iterable[tuple[int, int]], done: Replayed) -> dict[tuple[int, int], int]:
    """Of the evidence of each: when it went quiet or was shown no more, at the latest when the incident closed."""
    closed = {(e.incident, e.episode): e.at for e in done.events if isinstance(e, IncidentClosed)}
    quiet = {(e.incident, e.episode): e.since for e in done.events if isinstance(e, IncidentQuieted)}
    faded = {(e.incident, e.episode): e.since for e in done.events if isinstance(e, IncidentFaded)}
    found = {}
    for key in opened:
        since = [moment for moment in (quiet.get(key), faded.get(key)) if moment is not None]
        found[key] = min((*since, closed.get(key, done.until)))
    return found


def _stalls(events: Sequence[Event]) -> dict[tuple[int, int], list[Stall]]:
    """Of each storage incident its stalls as they were known in the end: after one is over, the next is another."""
    found: dict[tuple[int, int], list[Stall]] = {}
    for event in events:
        if isinstance(event, IncidentOpened) and event.incident.stall:
            found[event.incident.id, event.incident.episode] = [event.incident.stall]
        elif isinstance(event, StallChanged):
            mine = found[event.incident, event.episode]
            over = mine[-1].ended is not None and event.stall.ended is None
            mine[len(mine) if over else -1 :] = [event.stall]
    return found


def _alarm(incident: Incident, end: int, policy: Policy) -> Alarm:
    category = next((_part(reason, policy) for reason in incident.reasons), CATEGORIES.get(incident.kind, ""))
    why = "; ".join(reason.text for reason in incident.reasons) or incident.note
    score = round(incident.score, 3)
    return Alarm(_node(incident), incident.opened, end, incident.kind, category, score, why)


def _part(reason: Reading, policy: Policy) -> str:
    """What failed: a signal of Xids stands for codes of several parts."""
    signal = policy.signals.get(reason.signal)
    if signal and signal.xid_action and reason.value:
        return xid(int(reason.value)).kind
    return signal.category if signal else ""


def _stall(incident: Incident, stall: Stall, end: int) -> Alarm:
    """Since the rule was true; which node, only where its path is to blame."""
    node = stall.node if stall.verdict == "node_path" else ""
    why = "; ".join(words(stall).numbers)
    return Alarm(node, stall.onset, stall.ended or end, incident.kind, stall.verdict, round(incident.score, 3), why)


def _node(incident: Incident) -> str:
    if incident.kind == "blind":
        return incident.subject.removeprefix("node:") if incident.subject.startswith("node:") else ""
    return incident.subject if incident.kind in ("gpu_fault", "precursor") else ""


def stopped(done: Replayed) -> dict[str, int]:
    """What each guard withheld: its name → actions. The mode observe is none."""
    names = Counter(e.by for e in done.events if isinstance(e, ActionWithheld) and not e.by.startswith("mode "))
    return dict(sorted(names.items()))


def peak_held(done: Replayed) -> int:
    """The most nodes that would have been held by us at once."""
    held: set[str] = set()
    peak = 0
    for event in done.events:
        if isinstance(event, NodeHeld):
            held.add(event.hold.id)
        elif isinstance(event, NodeReleased):
            held.discard(event.hold)
        peak = max(peak, len({hold.partition("@")[0] for hold in held}))
    return peak
