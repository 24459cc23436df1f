"""Whom a message calls. Alertmanager's silences hold for Slack too; who was not called because of one is called when it
has ended and a person is still needed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from bot import events as ev
from bot.compose import needs_mention
from bot.model import Incident, Plan
from bot.pages import GIVEN_UP_FOR, given_up, severity_of
from bot.state import State
from store.store import Store, tag_of

CURSOR = "uncalled"  # tag → [number of the last event that would have called, whom they would have called]

Withheld = dict[str, tuple[int, list[str]]]


class Quiet(Protocol):
    """What is silenced. looked: it is known by now, or known to be out of reach."""

    looked: bool

    def silence(self, incident: Incident, state: State) -> str:
        """Who silenced it and until when; empty: nobody, or nobody knows."""
        ...

    def lasts(self, incident: Incident, state: State, now: int) -> bool:
        """The silence that it was seen under goes on, as far as is known."""
        ...


@dataclass(frozen=True, slots=True)
class Calls:
    """on_call: "on call" and "secondary" → whom to mention. quiet None: nothing is ever silenced."""

    store: Store
    on_call: Mapping[str, str] = field(default_factory=dict)
    quiet: Quiet | None = None

    @property
    def ready(self) -> bool:
        return self.quiet is None or self.quiet.looked

    def silence(self, incident: Incident | None, state: State) -> str:
        return self.quiet.silence(incident, state) if self.quiet and incident else ""

    def line(self, number: int, event: ev.Event, text: str, state: State) -> str:
        """The text of an event, with whom it calls."""
        who = "secondary" if isinstance(event, ev.PlanReminded) and event.who == "secondary" else "on call"
        if not self.on_call.get(who) or not needs_mention(event):
            return text
        tag = tag_of(event)
        silence = self.silence(_incident(tag, state), state)
        withheld = self._withheld()
        before = withheld.pop(tag, (0, []))
        if silence:
            withheld[tag] = number, sorted({*before[1], who})
        self._keep(withheld)
        return f"{text} ({who} is not called: {silence})" if silence else f"{self._mention([who])} {text}"

    def make_up(self, state: State, now: int, say: Callable[[str, str, str], None]) -> None:
        """Calls whom silences kept from being called. say(tag, slot, line) may be asked twice for the same."""
        withheld = self._withheld()
        for tag, (number, who) in list(withheld.items()):
            incident = _incident(tag, state)
            if incident and self.quiet and self.quiet.lasts(incident, state, now):
                continue
            why = _needed(incident, state, now) if incident else ""
            if why:
                say(
                    tag, f"story-{number}-called", f"{self._mention(who)} the silence in Alertmanager is over and {why}"
                )
            del withheld[tag]
        self._keep(withheld)

    def _mention(self, who: list[str]) -> str:
        return " ".join(f"\x02{person}\x03" for one in who if (person := self.on_call.get(one)))

    def _withheld(self) -> Withheld:
        return {tag: (number, who) for tag, (number, who) in json.loads(self.store.cursor(CURSOR) or "{}").items()}

    def _keep(self, withheld: Withheld) -> None:
        if withheld != self._withheld():
            self.store.set_cursor(CURSOR, json.dumps(withheld))


def _incident(tag: str, state: State) -> Incident | None:
    return next((i for i in state.all(Incident) if i.tag == tag), None)


def _needed(incident: Incident, state: State, now: int) -> str:
    """What a person is still needed for; empty when for nothing."""
    if incident.acked_by or (incident.closed is not None and now - incident.closed >= GIVEN_UP_FOR):
        return ""
    mine = [plan for plan in state.all(Plan) if plan.tag == incident.tag and plan.status == "proposed"]
    asks = sorted(plan.id for plan in mine if plan.mode in ("approve", "veto"))
    if asks:
        return f"plan {asks[-1]} still waits for a decision"
    if given_up(incident, state):
        return "the run is still down, given up"
    open_still = incident.closed is None and severity_of(incident, state) == "page"
    return "this still wants a person, though its plan has run out" if open_still else ""
