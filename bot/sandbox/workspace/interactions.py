"""What people do on the page becomes envelopes for the app; and what the app answers to the address it got with one."""

from __future__ import annotations

import html
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bot.sandbox.workspace.content import checked
from bot.sandbox.workspace.errors import Refused
from bot.sandbox.workspace.messages import message_json
from bot.sandbox.workspace.sockets import ACK_WITHIN, Payload, Sockets
from bot.sandbox.workspace.state import APP, BOT, CHANNEL, SLACKBOT, TEAM, Message, Workspace
from templates.blocks import Block

ANSWERS = 5
ANSWER_WITHIN = 1800.0  # s


@dataclass(slots=True)
class Address:
    """A response_url: who is answered, and the message that was clicked (empty after a command)."""

    user: str
    message: str
    until: float
    left: int = ANSWERS


class Interactions:
    """commands: the slash commands that the app has, by name. base: where this server is reached."""

    def __init__(
        self,
        workspace: Workspace,
        sockets: Sockets,
        base: str,
        commands: Sequence[str],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._workspace = workspace
        self._sockets = sockets
        self._base = base
        self._commands = commands
        self._clock = clock
        self._addresses: dict[str, Address] = {}

    # -- what people do ------------------------------------------------------------------------------------------

    async def type(self, user: str, line: str) -> bool:
        """A line in the box: a slash command, or a message. False: the person was told that it did not work."""
        self._workspace.person(user)
        line = line.strip()
        if not line.startswith("/"):
            if line:
                self._workspace.post(user, html.escape(line, quote=False))
            return True
        command, _, text = line.partition(" ")
        if command not in self._commands:
            known = ", ".join(f"`{name}`" for name in self._commands)
            return self._fail(user, f"`{_code(command)}` is not a command. There are {known}.")
        answer = await self._sockets.deliver("slash_commands", self._command(user, command, text.strip()))
        if answer is None:
            return self._fail(user, f"`{_code(line)}` did not work: {self._silence()}.")
        if answer.get("text") or answer.get("blocks"):
            self._say(answer, user)
        return True

    async def click(
        self, user: str, ts: str, action_id: str, *, value: str | None = None, block_id: str | None = None
    ) -> bool:
        """Raises Refused when the message has no such button; with a value and block given it is a stale page's."""
        self._workspace.person(user)
        message = self._workspace.message(ts)
        button = next((b for b in buttons(message) if b["action_id"] == action_id), {})
        if not button and (value is None or block_id is None):
            raise Refused("no_such_button")
        given = {"value": value, "block_id": block_id}
        action = {"type": "button", **button, "action_id": action_id, **{k: v for k, v in given.items() if v}}
        answer = await self._sockets.deliver("interactive", self._clicked(user, message, action))
        if answer is None:
            return self._fail(user, f"The click did not work: {self._silence()}.", message.thread)
        return True

    def _fail(self, user: str, text: str, thread: str = "") -> bool:
        self._workspace.post(SLACKBOT, text, to=user, thread=thread)
        return False

    def _silence(self) -> str:
        return (
            f"xidbot did not answer within {ACK_WITHIN:g} s" if self._sockets.connected else "xidbot is not connected"
        )

    # -- as Slack words it ---------------------------------------------------------------------------------------

    def _command(self, user: str, command: str, text: str) -> Payload:
        return {
            "team_id": TEAM,
            "team_domain": self._workspace.name,
            "channel_id": CHANNEL,
            "channel_name": self._workspace.channel_name,
            "user_id": user,
            "user_name": self._workspace.person(user).name.lower(),
            "command": command,
            "text": html.escape(text, quote=False),
            "api_app_id": APP,
            "is_enterprise_install": "false",
            "response_url": self._address(user),
            "trigger_id": self._trigger(),
        }

    def _clicked(self, user: str, message: Message, action: Mapping[str, object]) -> Payload:
        name = self._workspace.person(user).name.lower()
        place = {"channel_id": CHANNEL, "message_ts": message.ts, "is_ephemeral": bool(message.to)}
        return {
            "type": "block_actions",
            "user": {"id": user, "username": name, "name": name, "team_id": TEAM},
            "api_app_id": APP,
            "team": {"id": TEAM, "domain": self._workspace.name},
            "container": {"type": "message", **place, **({"thread_ts": message.thread} if message.thread else {})},
            "channel": {"id": CHANNEL, "name": self._workspace.channel_name},
            "message": message_json(message, self._workspace),
            "state": {"values": {}},
            "trigger_id": self._trigger(),
            "response_url": self._address(user, message.ts),
            "actions": [{**action, "action_ts": f"{self._workspace.clock():.6f}"}],
        }

    @staticmethod
    def _trigger() -> str:
        return f"{secrets.randbelow(10**12)}.{secrets.randbelow(10**12)}.{secrets.token_hex(16)}"

    # -- answers -------------------------------------------------------------------------------------------------

    def _address(self, user: str, message: str = "") -> str:
        secret = secrets.token_urlsafe()
        self._addresses[secret] = Address(user, message, self._clock() + ANSWER_WITHIN)
        return f"{self._base}/response/{secret}"

    def respond(self, secret: str, body: Mapping[str, object]) -> None:
        """Raises Refused: an address takes five answers in 30 minutes."""
        address = self._addresses.get(secret)
        if address is None or self._clock() > address.until:
            raise Refused("expired_url")
        if not address.left:
            raise Refused("used_url")
        if body.get("delete_original"):
            self._workspace.delete(address.message)
        elif body.get("replace_original") and address.message:
            text, blocks = checked(body)
            self._workspace.edit(address.message, text, blocks or ())
        else:
            self._say(body, address.user)
        address.left -= 1

    def _say(self, body: Mapping[str, object], user: str) -> None:
        text, blocks = checked(body)
        to = "" if body.get("response_type") == "in_channel" else user
        self._workspace.post(BOT, text, blocks or (), to=to, thread=str(body.get("thread_ts") or ""))


def buttons(message: Message) -> Iterator[Block]:
    """The buttons of a message, each with its block's id."""
    for block in message.blocks:
        elements = block.get("elements")
        for element in [*(elements if isinstance(elements, list) else ()), block.get("accessory")]:
            if isinstance(element, dict) and element.get("type") == "button":
                yield {**element, "block_id": block["block_id"]}


def _code(text: str) -> str:
    """Typed text within backticks."""
    return html.escape(text.replace("`", "\u02cb"), quote=False)
