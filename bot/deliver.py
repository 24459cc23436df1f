"""The third loop: bring messages to their wanted state. What is wanted is written down first; sending may fail for as
long as it likes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from bot import events as ev
from bot.calls import Calls, Quiet
from bot.compose import STORY, answer_card, incident_card, story_card
from bot.digest_post import Files, Poster, post_digests
from bot.model import Answer, Incident
from bot.policy import Policy
from bot.state import State
from bot.storage_post import Pictures, post_pictures
from store.slots import Slots
from store.store import Store, tag_of
from templates import escape
from templates.blocks import Card, card_blocks, fallback

log = logging.getLogger(__name__)
CURSOR = "story"
SETTLED_AFTER = 86_400  # s; a message of an incident closed longer ago does not change any more


@dataclass(frozen=True, slots=True)
class Deliverer:
    """What the loop needs. send: brings due slots to Slack (None: nothing is connected, messages only wait)."""

    store: Store
    slots: Slots
    policy: Policy
    tz: str
    channel: str
    on_call: Mapping[str, str] = field(default_factory=dict)  # "on call" and "secondary" → whom to mention
    send: Callable[[], object] | None = None
    files: Files | None = None
    quiet: Quiet | None = None  # what calls nobody; None: nothing

    @property
    def calls(self) -> Calls:
        return Calls(self.store, self.on_call, self.quiet)


def deliver(deliverer: Deliverer, now: int) -> None:
    state = deliverer.store.state()
    _want_incidents(deliverer, state, now)
    if deliverer.calls.ready:
        _want_stories(deliverer, state, now)
    _want_answers(deliverer, state, now)
    if deliverer.send:
        deliverer.send()
    # Last, so that a fault in the digest cannot hold up other messages.
    post_digests(Poster(deliverer.store, deliverer.slots, deliverer.tz, deliverer.channel, deliverer.files), now)
    post_pictures(
        Pictures(deliverer.store, deliverer.slots, deliverer.tz, deliverer.channel, deliverer.files), state, now
    )


def _want_incidents(d: Deliverer, state: State, now: int) -> None:
    """One message per episode, edited in place."""
    for incident in sorted(state.all(Incident), key=lambda i: (i.id, i.episode)):
        if incident.closed is None or now - incident.closed < SETTLED_AFTER:
            _want(d, incident.tag, "main", _card(d, incident, state), now)


def _card(d: Deliverer, incident: Incident, state: State) -> Card:
    card = incident_card(incident, state, d.policy, d.tz)
    silence = d.calls.silence(incident, state) if incident.closed is None else ""
    told = (f":no_bell: Nobody is called: {escape(silence)}",) if silence else ()
    return replace(card, paragraphs=(*card.paragraphs, *told))


def _want(d: Deliverer, tag: str, slot: str, card: Card, now: int, thread_slot: str = "") -> None:
    d.slots.want(
        tag,
        slot,
        channel=d.channel,
        text=fallback(card),
        blocks=card_blocks(card),
        now=now,
        thread_slot=thread_slot,
    )


def _want_stories(d: Deliverer, state: State, now: int) -> None:
    """What has happened since the cursor goes into the threads, one reply per incident and round.

    The slot is named by its first event, so a crash between writing slot and cursor writes the same slot again.
    """
    last = int(d.store.cursor(CURSOR) or 0)
    found = d.store.events(after=last, limit=500)
    told: dict[str, list[tuple[int, ev.Event]]] = {}
    for number, event in found:
        if type(event) in STORY and (tag := tag_of(event)):
            told.setdefault(tag, []).append((number, event))

    def say(tag: str, slot: str, *lines: str) -> None:
        _want(d, tag, slot, story_card(tag, slot, list(lines)), now, thread_slot="main")

    for tag, items in told.items():
        lines = [d.calls.line(number, event, STORY[type(event)](event, state), state) for number, event in items]
        say(tag, f"story-{items[0][0]}", *lines)
    if found:
        d.store.set_cursor(CURSOR, str(found[-1][0]))
    d.calls.make_up(state, now, say)


def _want_answers(d: Deliverer, state: State, now: int) -> None:
    """Answers to what was asked in Slack, to the person who asked; the command line reads its own."""
    for answer in state.all(Answer):
        if answer.source == "slack" and now - answer.at < SETTLED_AFTER:
            request = d.store.request(answer.request)
            card = answer_card(answer)
            d.slots.want(
                f"r{answer.request}",
                "reply",
                channel=(request.channel if request else "") or d.channel,
                text="\n".join(card.paragraphs),
                blocks=card_blocks(card),
                now=now,
                whisper_to=answer.user,
                response_url=request.response_url if request else "",
                thread=request.thread if request else "",
            )
