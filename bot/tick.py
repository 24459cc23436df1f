"""The first loop: observe → decide → record, then answer what people asked with the same eyes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from bot.decide import decide
from bot.digest import due_events
from bot.events import Event, RequestAnswered
from bot.garbage import uncollected
from bot.model import Answer, Observation, Request
from bot.policy import Policy
from bot.ports import Observer
from bot.state import State
from store.store import Store


@dataclass(frozen=True, slots=True)
class Told:
    """What came of one request."""

    text: str
    events: tuple[Event, ...]
    ok: bool


AnswerTo = Callable[[Request, State, Observation, int], Told]


@dataclass(frozen=True, slots=True)
class Watcher:
    """What the loop needs. answer: the commands, handed in because they lie above."""

    store: Store
    observer: Observer
    policy: Policy
    answer: AnswerTo
    tz: str = "UTC"


def tick(watcher: Watcher, now: int) -> Observation:
    """One round. Raises StoreError (LeaseHeld when another bot writes); sources that fail are part of what is seen."""
    watcher.store.take_lease()
    with uncollected():
        seen = watcher.observer.observe(now)
        watcher.store.append(decide(watcher.store.state(), seen, watcher.policy))
    watcher.store.append(due_events(watcher.store, now, watcher.tz))
    for request in watcher.store.inbox():
        _answer(watcher, request, seen, now)
    watcher.store.trim(now)
    return seen


def _answer(watcher: Watcher, request: Request, seen: Observation, now: int) -> None:
    """The reply and what it causes are one transaction: asked once, answered once, done once."""
    told = watcher.answer(request, watcher.store.state(), seen, now)
    answer = Answer(request.id, request.user, request.text[:200], told.text, told.ok, now, request.source)
    watcher.store.append([*told.events, RequestAnswered(now, answer)])
