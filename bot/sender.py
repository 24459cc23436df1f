"""Brings Slack to what the slots want: nothing lost, nothing twice, not faster than Slack takes it.

One call a slot and round. A post whose outcome is not known is looked up before it is repeated; edits and whispers
may be repeated. What a failure means for *other* slots (a channel shut, Slack away) is kept in memory only: after a
restart one try shows how things are.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from bot.errors import AuthFailed, RateLimited, Rejected, SourceError
from bot.ports import Chat, Posted
from store.slots import SlotRow, Slots
from templates.blocks import Block, plain, stamp, text_block
from templates.cut import cut_middle

log = logging.getLogger(__name__)

SPACING = 1.05  # s between writes to one channel: Slack takes about one a second
AWAY_MAX = 60  # s between tries while Slack cannot be reached: 1, 2, 4, … 60
LOOK_AFTER = 5  # s before an unclear post is looked up: it may still be on its way
SLOW = 300  # s between tries of what a person must put right first
WHISPER_LIFE = 900  # s after which an answer helps nobody
WHISPER_TEXT = 3_900

UNSHOWABLE = frozenset({"invalid_blocks", "invalid_blocks_format", "msg_too_long", "msg_blocks_too_long"})
CHANNEL_SHUT = frozenset(
    {"channel_not_found", "not_in_channel", "is_archived", "restricted_action", "ekm_access_denied"}
)
HOPELESS = UNSHOWABLE | {"cant_update_message", "edit_window_closed", "no_text", "cannot_reply_to_message"}

Verb = Literal["post", "edit", "find", "whisper"]


@dataclass(slots=True)
class Sent:
    """What one round did: how often each call went well, and what went wrong."""

    calls: Counter[Verb] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Pace:
    """When Slack may be asked what. Times are Unix seconds."""

    free: dict[str, float] = field(default_factory=dict)  # channel → next write
    shut: dict[tuple[Verb, str], float] = field(default_factory=dict)
    away_until: float = 0
    failures: int = 0

    def allows(self, verb: Verb, channel: str, now: float) -> bool:
        writes = verb in ("post", "edit")
        waits = self.free.get(channel, 0) if writes else 0
        return now >= max(waits, self.shut.get((verb, channel), 0), self.away_until)

    def shut_channels(self, now: float) -> list[str]:
        """Those that take neither posts nor edits for now."""
        return [
            channel
            for (verb, channel), until in self.shut.items()
            if verb == "post" and until > now and self.shut.get(("edit", channel), 0) > now
        ]

    def shut_channel(self, channel: str, until: float) -> None:
        self.shut |= {("post", channel): until, ("edit", channel): until}

    def away(self, now: float) -> float:
        """Slack could not be reached; the seconds until the next try of anything."""
        wait = _doubling(self.failures)
        self.failures += 1
        self.away_until = now + wait
        return wait


class Sender:
    """Runs on one thread. `clock` gives Unix seconds and is asked again after each call, which may take long."""

    def __init__(self, slots: Slots, chat: Chat, clock: Callable[[], float]) -> None:
        self._slots = slots
        self._chat = chat
        self._clock = clock
        self.pace = Pace()
        self._do: dict[Verb, Callable[[SlotRow], None]] = {
            "post": self._post,
            "edit": self._edit,
            "find": self._find,
            "whisper": self._whisper,
        }

    def send_due(self, limit: int = 200) -> Sent:
        """One round: at most one call for each due slot. Raises StoreError only."""
        done, now = Sent(), self._clock()
        if now < self.pace.away_until:
            return done
        for row in self._slots.due(now, limit, self.pace.shut_channels(now)):
            verb = _verb(row)
            if verb == "whisper" and now - row.first_wanted > WHISPER_LIFE:
                self._slots.failed(row, row.problem or "it could not be delivered in time")
            elif self.pace.allows(verb, row.channel, self._clock()):
                self._try(row, verb, done)
        return done

    def _try(self, row: SlotRow, verb: Verb, done: Sent) -> None:
        try:
            self._do[verb](row)
        except SourceError as error:
            log.warning("%s of %s: %s", verb, row.block_id, error)
            done.problems.append(f"{row.block_id}: {error}")
            self._trouble(row, verb, error)
        else:
            self.pace.failures = 0
            done.calls[verb] += 1

    # -- the four calls ------------------------------------------------------------------------------------------

    def _post(self, row: SlotRow) -> None:
        self._begin(row)
        self._until_taken(row, lambda text, blocks: self._chat.post(row.channel, text, blocks, row.thread))

    def _edit(self, row: SlotRow) -> None:
        def edit(text: str, blocks: Sequence[Block]) -> Posted:
            self._chat.update(row.posted, text, blocks)
            return row.posted

        self._begin(row)
        self._until_taken(row, edit)

    def _find(self, row: SlotRow) -> None:
        found = self._chat.find(row.channel, row.block_id, row.first_wanted, row.thread)
        if found is None:
            self._slots.absent(row)
        else:
            self._slots.sent(row, found, row.sent)

    def _whisper(self, row: SlotRow) -> None:
        self._slots.claim(row)
        text = cut_middle(row.text, WHISPER_TEXT)
        self._chat.whisper(row.channel, row.whisper_to, text, row.thread, row.response_url)
        self._slots.sent(row, Posted(row.channel, ""), row.wanted)

    def _begin(self, row: SlotRow) -> None:
        self._slots.claim(row)
        self.pace.free[row.channel] = self._clock() + SPACING

    def _until_taken(self, row: SlotRow, send: Callable[[str, Sequence[Block]], Posted]) -> None:
        """Blocks that Slack refuses must not cost the message: then its text in one block, then its text alone."""
        blocks = list(row.blocks) or [text_block(row.text)]
        text = plain(blocks, row.text)
        forms = [
            (row.text or text, stamp(blocks, row.block_id)),
            (text, stamp([text_block(text)], row.block_id)),
            (text, []),
        ]
        problem = ""
        for number, form in enumerate(forms, start=1):
            try:
                posted = send(*form)
            except Rejected as error:
                if error.code not in UNSHOWABLE or number == len(forms):
                    raise
                problem = f"shown as plain text: {error}"
            else:
                self._slots.sent(row, posted, row.wanted, problem)
                return

    # -- when it goes wrong --------------------------------------------------------------------------------------

    def _trouble(self, row: SlotRow, verb: Verb, error: SourceError) -> None:
        now = self._clock()
        if isinstance(error, RateLimited):
            self.pace.shut[verb, row.channel] = now + error.retry_after
            self._put_off(row, verb, now + error.retry_after, str(error))
        elif isinstance(error, Rejected):
            self._rejected(row, verb, error, now)
        elif isinstance(error, AuthFailed):
            self.pace.away_until = now + SLOW
            self._put_off(row, verb, now, str(error))
        else:
            self._unreachable(row, verb, error, now)

    def _unreachable(self, row: SlotRow, verb: Verb, error: SourceError, now: float) -> None:
        wait = max(self.pace.away(now), _doubling(row.tries))
        maybe_done = getattr(error, "maybe_done", True)
        if verb == "post" and maybe_done:
            self._slots.unclear(row, now + max(wait, LOOK_AFTER), str(error))
        elif verb == "edit" and maybe_done:
            self._slots.later(replace(row, sent=""), now + wait, str(error))
        else:
            self._put_off(row, verb, now + wait, str(error))

    def _rejected(self, row: SlotRow, verb: Verb, error: Rejected, now: float) -> None:
        deleted = verb == "edit" and error.code == "message_not_found"
        if deleted and row.reposts == 0:
            self._slots.gone(row)
        elif deleted or verb == "whisper" or (verb != "find" and error.code in HOPELESS):
            self._slots.failed(row, str(error))
        else:
            if error.code in CHANNEL_SHUT:
                self.pace.shut_channel(row.channel, now + SLOW)
            self._put_off(row, verb, now + SLOW, str(error))

    def _put_off(self, row: SlotRow, verb: Verb, until: float, problem: str) -> None:
        """A post that was being looked up stays one whose outcome is unclear."""
        put_off = self._slots.unclear if verb == "find" else self._slots.later
        put_off(row, until, problem)


def _verb(row: SlotRow) -> Verb:
    if row.whisper_to:
        return "whisper"
    if row.ts:
        return "edit"
    return "find" if row.state == "posting" else "post"


def _doubling(tries: int) -> float:
    return float(min(AWAY_MAX, 2 ** min(tries, 10)))
