"""One workspace as Slack would keep it: a channel, its messages and threads, what only one person sees, and files.

Knows no network. Every message carries the number of its last change, so whoever has seen change n asks for what came
after it. May be used from any thread.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import tzinfo

from bot.model import Role
from bot.sandbox.workspace.errors import Refused
from bot.sandbox.workspace.files import File, Files
from templates.blocks import Block

TEAM, APP, CHANNEL, ON_CALL = "T0LOCAL", "A0XIDBOT", "C0GPU", "S0ONCALL"
BOT, BOT_ID, SLACKBOT = "U0XIDBOT", "B0XIDBOT", "USLACKBOT"


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody whom the reader of the page can be."""

    id: str
    name: str
    role: Role


@dataclass(frozen=True, slots=True)
class Message:
    """thread: the ts of the message that this one answers. to: the only person who sees it."""

    ts: str
    user: str
    text: str
    blocks: tuple[Block, ...] = ()
    thread: str = ""
    to: str = ""
    files: tuple[str, ...] = ()
    edited: str = ""
    deleted: bool = False
    version: int = 0

    @property
    def at(self) -> float:
        return float(self.ts)

    def seen_by(self, viewer: str | None) -> bool:
        """None is the Web API: it never tells what was for one person."""
        return not self.to or self.to == viewer


PEOPLE = (
    Person("U01ALICE", "Alice", "admin"),
    Person("U02BOB", "Bob", "operator"),
    Person("U03CAROL", "Carol", "viewer"),
)
ADMIN, OPERATOR, VIEWER = (person.id for person in PEOPLE)


@dataclass
class Workspace:
    """clock: Unix seconds, gives messages their ts. tz: of the times on the page (None: this machine's). keep: told
    every message and file as it is now, before anybody sees it."""

    clock: Callable[[], float] = time.time
    tz: tzinfo | None = None
    name: str = "xidbot"
    channel_name: str = "gpu-incidents"
    people: Sequence[Person] = PEOPLE
    keep: Callable[[Message | File], object] = lambda _thing: None
    groups: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=lambda: {ON_CALL: ("on-call", (OPERATOR,))})

    def __post_init__(self) -> None:
        self._lock = threading.RLock()
        self._messages: dict[str, Message] = {}
        self._watchers: set[Callable[[], object]] = set()
        self._numbers = itertools.count(1)
        self.files = Files(self.keep)
        self._last_ts = 0
        self._topic = ""
        self.version = 0

    # -- names ---------------------------------------------------------------------------------------------------

    def person(self, user: str) -> Person:
        """Raises Refused."""
        for person in self.people:
            if person.id == user:
                return person
        raise Refused("user_not_found")

    def names(self) -> dict[str, str]:
        """What is shown for the ids of people, groups and the channel."""
        names = {person.id: person.name for person in self.people}
        groups = {group: name for group, (name, _) in self.groups.items()}
        return {**names, **groups, CHANNEL: self.channel_name, BOT: "xidbot", SLACKBOT: "Slackbot"}

    def mine(self, user: str) -> frozenset[str]:
        """The person's id, and those of their groups."""
        return frozenset({user, *(group for group, (_, members) in self.groups.items() if user in members)})

    # -- messages ------------------------------------------------------------------------------------------------

    def post(
        self,
        user: str,
        text: str,
        blocks: Sequence[Block] = (),
        *,
        thread: str = "",
        to: str = "",
        files: Sequence[str] = (),
    ) -> Message:
        """Raises Refused for a thread that never was."""
        with self._lock:
            if thread and thread not in self._messages:
                raise Refused("cannot_reply_to_message")
            root = self._messages[thread].thread or thread if thread else ""
            shown = self._with_ids(blocks)
            message = self._put(Message(self._new_ts(), user, text, shown, root, to, tuple(files)))
            if root:
                self._put(self._messages[root])  # its count of replies has changed
        self._tell()
        return message

    def edit(self, ts: str, text: str, blocks: Sequence[Block]) -> Message:
        """Raises Refused."""
        with self._lock:
            old = self.message(ts)
            edited = f"{self.clock():.6f}"
            message = self._put(replace(old, text=text, blocks=self._with_ids(blocks), edited=edited))
        self._tell()
        return message

    def delete(self, ts: str) -> None:
        """Raises Refused."""
        with self._lock:
            self._put(replace(self.message(ts), deleted=True))
        self._tell()

    def message(self, ts: str) -> Message:
        """Raises Refused."""
        message = self._messages.get(ts)
        if message is None or message.deleted:
            raise Refused("message_not_found")
        return message

    def channel(self, viewer: str | None = None) -> list[Message]:
        """What stands in the channel, oldest first, without the threads."""
        return [message for message in self._all() if not message.thread and message.seen_by(viewer)]

    def replies(self, ts: str, viewer: str | None = None) -> list[Message]:
        """The thread under a message, without the message."""
        return [message for message in self._all() if message.thread == ts and message.seen_by(viewer)]

    def author(self, ts: str) -> str:
        """Of a message that may have been deleted."""
        return self._messages[ts].user

    def whispers(self, user: str) -> list[Message]:
        """What only this person sees."""
        return [message for message in self._all() if message.to == user]

    def changed_since(self, version: int, viewer: str) -> list[Message]:
        """In the order of their changes, deleted ones too."""
        with self._lock:
            changed = [m for m in self._messages.values() if m.version > version and m.seen_by(viewer)]
        return sorted(changed, key=lambda message: message.version)

    def _all(self) -> list[Message]:
        with self._lock:
            return [message for message in self._messages.values() if not message.deleted]

    def _put(self, message: Message) -> Message:
        numbered = replace(message, version=self.version + 1)
        self.keep(numbered)
        self._messages[message.ts] = numbered
        self.version += 1
        return numbered

    def restore(self, messages: Sequence[Message], files: Iterable[File]) -> None:
        """What an earlier workspace kept, oldest first."""
        for number, message in enumerate(messages, start=1):
            self._messages[message.ts] = replace(message, version=number)
        self.version = len(messages)
        self._last_ts = int(messages[-1].ts.replace(".", "")) if messages else 0
        self.files.restore(files)

    def _new_ts(self) -> str:
        """Later than all before, also when the clock stands still."""
        self._last_ts = max(self._last_ts + 1, int(self.clock() * 1e6))
        return f"{self._last_ts // 1_000_000}.{self._last_ts % 1_000_000:06d}"

    def _with_ids(self, blocks: Sequence[Block]) -> tuple[Block, ...]:
        """A block without an id gets one, as in Slack: a click has to name it."""
        return tuple({**block, "block_id": block.get("block_id") or self._block_id()} for block in blocks)

    def _block_id(self) -> str:
        return f"b{next(self._numbers):05X}"

    # -- what the page watches -----------------------------------------------------------------------------------

    @property
    def topic(self) -> str:
        return self._topic

    @topic.setter
    def topic(self, text: str) -> None:
        self._topic = text
        self._tell()

    @contextmanager
    def watched(self, tell: Callable[[], object]) -> Iterator[None]:
        """`tell` is called after each change, on the thread that made it."""
        with self._lock:
            self._watchers.add(tell)
        try:
            yield
        finally:
            with self._lock:
                self._watchers.discard(tell)

    def touch(self) -> None:
        """Something beside the messages has changed."""
        self._tell()

    def _tell(self) -> None:
        with self._lock:
            watchers = list(self._watchers)
        for tell in watchers:
            tell()
