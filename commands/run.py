"""From what was typed or clicked to a reply and the events that follow; Slack and the command line share it."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bot.errors import Denied, UsageError, XidbotError
from bot.events import Event
from bot.model import ROLES, Observation, Request, Role
from bot.policy import Policy
from bot.ports import Roles
from bot.state import State
from commands import BY_NAME, Command

MAX_TEXT = 1000  # characters; nobody types more, and a message of 5,000 is an accident


@dataclass(frozen=True, slots=True)
class Services:
    """What a command may look at. seen.cluster is None while the scheduler cannot be read."""

    state: State
    seen: Observation
    policy: Policy
    roles: Roles
    now: int
    tz: str = "UTC"


@dataclass(frozen=True, slots=True)
class Asked:
    """A request taken apart. words: what follows the command's name."""

    request: Request
    words: tuple[str, ...]
    services: Services

    @property
    def rest(self) -> str:
        return " ".join(self.words)


@dataclass(frozen=True, slots=True)
class Reply:
    """What to say (mrkdwn) and what to record."""

    text: str
    events: Sequence[Event] = field(default_factory=tuple)
    ok: bool = True


def answer(request: Request, services: Services) -> Reply:
    """Never raises an XidbotError: whatever is wrong becomes the reply, and then nothing is done."""
    try:
        command, words = parse(request.text)
        check_role(request.user, command.role, services.roles, command.name)
        return _function(command)(Asked(request, words, services))
    except XidbotError as error:
        return Reply(str(error), ok=False)


def parse(text: str) -> tuple[Command, tuple[str, ...]]:
    """Raises UsageError with the nearest command and its example."""
    if len(text) > MAX_TEXT:
        raise UsageError(f"that is {len(text)} characters; {MAX_TEXT} are enough for any command", "nothing was done")
    if any(not c.isprintable() for c in text):
        raise UsageError("that contains characters that cannot be shown", "nothing was done")
    words = text.split()
    name = words[0].lower() if words else "help"
    if name not in BY_NAME:
        near = difflib.get_close_matches(name, BY_NAME, n=1)
        hint = f"did you mean `{BY_NAME[near[0]].example}`?" if near else "try `help`"
        raise UsageError(f"there is no command `{name[:40]}`", hint)
    return BY_NAME[name], tuple(words[1:])


def check_role(user: str, needed: Role, roles: Roles, what: str) -> None:
    """Raises Denied. Nobody is whoever no list names."""
    has = roles.of(user)
    if has is None or ROLES.index(has) < ROLES.index(needed):
        raise Denied(
            f"`{what}` needs the role {needed}; you have {has or 'none'}. Nothing was done.",
            f"an admin can add you under slack.roles.{needed} of the site file",
        )


def usage(command: str) -> UsageError:
    row = BY_NAME[command]
    return UsageError(f"usage: `{row.usage}`", f"for example `{row.example}`")


def _function(command: Command) -> Callable[[Asked], Reply]:
    module, _, name = command.run.partition(":")
    function: Callable[[Asked], Reply] = getattr(importlib.import_module(module), name)
    return function
