"""Slack without sockets: what the bot posts is kept here, what people click and type goes through Bolt's dispatch."""

from __future__ import annotations

import queue
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from slack_bolt import BoltRequest

from bot.model import Request
from bot.ports import Posted
from bot.sandbox.people import Shown
from bot.sandbox.workspace.state import CHANNEL, TEAM
from bot.slack import SlackApp, Tokens, build_app

TOKENS = Tokens("xoxb-simulated", "xapp-simulated")
NOWHERE = "http://127.0.0.1:9/"  # the port that discards: nothing may be asked of it
RECORDED_WITHIN = 10.0  # s of wall time; a listener needs a millisecond
CALL_TAKES = 1.1  # s; Slack takes about one message a second


@dataclass
class SimulatedChat:
    """Implements ports.Chat. Its clock goes on with every call, so that the sender's pace is kept on simulated time."""

    now: float = 0
    posts: int = 0
    whispers: list[tuple[str, str]] = field(default_factory=list)
    _shown: dict[str, tuple[Shown, ...]] = field(default_factory=dict)

    def clock(self) -> float:
        return self.now

    def post(self, channel: str, text: str, blocks: Sequence[dict[str, object]], thread: str = "") -> Posted:
        self.posts += 1
        self.now += CALL_TAKES
        at = Posted(channel, f"{int(self.now)}.{self.posts:06d}")
        self._show(at, blocks)
        return at

    def update(self, at: Posted, text: str, blocks: Sequence[dict[str, object]]) -> None:
        self.now += CALL_TAKES
        self._show(at, blocks)

    def find(self, channel: str, block_id: str, since: int, thread: str = "") -> Posted | None:
        """Every post was answered, so nothing is ever looked for."""
        return None

    def whisper(self, channel: str, user: str, text: str, thread: str = "", response_url: str = "") -> None:
        self.now += CALL_TAKES
        self.whispers.append((user, text))

    def buttons(self) -> Collection[Shown]:
        return [button for shown in self._shown.values() for button in shown]

    def _show(self, at: Posted, blocks: Sequence[Mapping[str, Any]]) -> None:
        elements = [element for block in blocks if block["type"] == "actions" for element in block["elements"]]
        shown = tuple(Shown(at.channel, at.ts, e["action_id"], e["value"]) for e in elements if e["type"] == "button")
        if shown:
            self._shown[at.ts] = shown
        else:
            self._shown.pop(at.ts, None)


class BoltDesk:
    """Implements people.Desk. Every call returns when the bot has recorded it: what runs is the same each time."""

    def __init__(self, chat: SimulatedChat, inbox: Callable[[Request], object]) -> None:
        self._chat, self._inbox = chat, inbox
        self._recorded: queue.Queue[bool] = queue.Queue()
        self._calls = 0
        self.app: SlackApp = build_app(TOKENS, self._record, base_url=NOWHERE, clock=chat.clock)

    def _record(self, request: Request) -> None:
        self._inbox(request)
        self._recorded.put(True)

    def buttons(self) -> Collection[Shown]:
        return self._chat.buttons()

    def click(self, user: str, button: Shown) -> None:
        message = {"type": "message", "message_ts": button.ts, "channel_id": button.channel}
        action = {"type": "button", "block_id": "b", "action_id": button.action_id, "value": button.value}
        self._dispatch(
            {
                "type": "block_actions",
                "user": {"id": user},
                "team": {"id": TEAM},
                "container": message,
                "channel": {"id": button.channel},
                "message": {"ts": button.ts},
                "actions": [{**action, "action_ts": self._moment()}],
            }
        )

    def type(self, user: str, line: str) -> None:
        command, _, text = line.partition(" ")
        self._dispatch(
            {
                "command": command,
                "text": text,
                "user_id": user,
                "channel_id": CHANNEL,
                "team_id": TEAM,
                "trigger_id": self._moment(),
            }
        )

    def _moment(self) -> str:
        self._calls += 1
        return f"{int(self._chat.now)}.{self._calls:06d}"

    def _dispatch(self, body: dict[str, Any]) -> None:
        """As an envelope of Socket Mode that has arrived."""
        answer = self.app.bolt.dispatch(BoltRequest(mode="socket_mode", body=body))
        if answer.status != 200:
            raise RuntimeError(f"Bolt answered {answer.status} to {body}")
        self._recorded.get(timeout=RECORDED_WITHIN)

    def close(self) -> None:
        self.app.stop()
