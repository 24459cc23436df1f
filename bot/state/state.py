"""What the log adds up to, and a draft of it."""

from __future__ import annotations

from collections.abc import Iterable

from bot import events as ev
from bot.model import Hold, Incident, Recovery, Session
from bot.state.documents import Documents
from bot.state.projections import PROJECT


class State(Documents):
    """Documents as the events left them."""

    def copy(self) -> State:
        twin = State(self._load)
        twin.docs = {name: dict(table) for name, table in self.docs.items()}
        return twin

    def apply(self, event: ev.Event) -> None:
        PROJECT[type(event)](self, event)

    # -- looks that many need --------------------------------------------------------------------

    def open_incidents(self) -> list[Incident]:
        return sorted((i for i in self.all(Incident) if i.closed is None), key=lambda i: (i.id, i.episode))

    def live_sessions(self) -> list[Session]:
        return [s for s in self.all(Session) if s.ended_at is None]

    def open_recoveries(self) -> list[Recovery]:
        return [r for r in self.all(Recovery) if r.ended is None]

    def our_holds(self) -> list[Hold]:
        return [h for h in self.all(Hold) if h.released is None]

    def session_of(self, job: str) -> Session | None:
        """The newest session that has this job id: ids are reused after a reset."""
        mine = [s for s in self.all(Session) if job in s.jobs]
        return max(mine, key=lambda s: s.first_submit, default=None)


class Draft:
    """A state being decided upon: every event is applied as soon as it is emitted, so later stages see it."""

    def __init__(self, state: State, at: int, policy_hash: str) -> None:
        self.state = state.copy()
        self.at = at
        self.policy = policy_hash
        self.events: list[ev.Event] = []

    def emit(self, event: ev.Event) -> None:
        self.state.apply(event)
        self.events.append(event)


def fold(events: Iterable[ev.Event]) -> State:
    state = State()
    for event in events:
        state.apply(event)
    return state
